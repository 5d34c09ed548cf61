package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"sallyport.dev/sallyport/cmd/internal/terminal"
)

type target struct {
	pkg, name string
	usually   string // how long it takes on two cores if nothing is compiled yet
}

// every is the time between two lines of progress.
const every = 15 * time.Second

// build runs go build and prints its progress. It prints nothing if nothing has to be compiled.
func (t target) build(ctx context.Context, p terminal.Printer, out string) error {
	b := &progress{target: t, Printer: p, began: time.Now()}
	command := exec.CommandContext(ctx, "go", "build", "-v", "-buildvcs=false", "-ldflags=-s -w", "-o", out, t.pkg)
	// Without cgo the program is static, and shares its packages with the control plane, which is built without cgo.
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOGC=400")
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) } // go build removes its temporary files
	said, err := command.StderrPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return fmt.Errorf("building %s: %w", t.name, err)
	}
	lasting, end := context.WithCancel(ctx)
	var reporting sync.WaitGroup
	reporting.Go(func() { b.report(lasting) })
	for lines := bufio.NewScanner(said); lines.Scan(); {
		b.take(lines.Text())
	}
	_, _ = io.Copy(io.Discard, said) // behind a line that is too long
	err = command.Wait()
	end()
	reporting.Wait()
	if err != nil {
		return fmt.Errorf("building %s: %w; the first build needs a Go module proxy (GOPROXY) and about 3 GB of disk space\n%s",
			t.name, err, strings.Join(b.rest, "\n"))
	}
	b.done()
	return nil
}

// progress follows what go build -v prints.
type progress struct {
	target
	terminal.Printer
	began time.Time

	mu                   sync.Mutex
	begun                bool
	downloaded, compiled int
	rest                 []string // the last lines that are no progress
}

// take counts a line: "go: downloading MODULE VERSION", the path of a package, or anything else.
func (b *progress) take(line string) {
	const most = 20
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case strings.HasPrefix(line, "go: downloading "):
		b.downloaded++
		b.begin()
	case line != "" && !strings.ContainsAny(line, " \t:#"):
		b.compiled++
		b.begin()
	case line != "":
		b.rest = append(b.rest, line)
		b.rest = b.rest[max(0, len(b.rest)-most):]
	}
}

// begin prints once what is being built.
func (b *progress) begin() {
	if !b.begun {
		b.Say("Building %s (about %s on two cores if nothing is compiled yet) ...", b.name, b.usually)
	}
	b.begun = true
}

// report prints from time to time how far the build is.
func (b *progress) report(ctx context.Context) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			b.Say("  %s", b.state("so far"))
		case <-ctx.Done():
			return
		}
	}
}

// done prints the end of a build of which something was printed.
func (b *progress) done() {
	if b.begun {
		b.Say("  %s", b.state("in all"))
	}
}

func (b *progress) state(which string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begin()
	state := fmt.Sprintf("%s %s: %d packages compiled", time.Since(b.began).Round(time.Second), which, b.compiled)
	if b.downloaded > 0 {
		state += fmt.Sprintf(", %d modules downloaded", b.downloaded)
	}
	return state
}
