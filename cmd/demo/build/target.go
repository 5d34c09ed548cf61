package main

import (
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

// target is a program to build.
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
	_, _ = io.Copy(b, said)
	_, _ = b.Write([]byte("\n"))
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
	line                 string // an incomplete one
	downloaded, compiled int
	rest                 []string // the last lines that are no progress
}

// Write takes what go build prints.
func (b *progress) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	lines := strings.Split(b.line+string(text), "\n")
	b.line = lines[len(lines)-1]
	for _, line := range lines[:len(lines)-1] {
		b.take(line)
	}
	return len(text), nil
}

// take counts a line: "go: downloading MODULE VERSION", the path of a package, or anything else.
func (b *progress) take(line string) {
	const most = 20
	before := b.downloaded + b.compiled
	switch {
	case strings.HasPrefix(line, "go: downloading "):
		b.downloaded++
	case line != "" && !strings.ContainsAny(line, " \t:#"):
		b.compiled++
	case line != "":
		b.rest = append(b.rest, line)
		b.rest = b.rest[max(0, len(b.rest)-most):]
	}
	if before == 0 && b.downloaded+b.compiled > 0 {
		b.Say("Building %s (about %s on two cores if nothing is compiled yet) ...", b.name, b.usually)
	}
}

// report prints from time to time how far the build is.
func (b *progress) report(ctx context.Context) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			b.Say("  %s", b.state())
		case <-ctx.Done():
			return
		}
	}
}

// done prints the end of a build that compiled something.
func (b *progress) done() {
	if b.compiled > 0 {
		b.Say("  built: %s", b.state())
	}
}

func (b *progress) state() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	state := fmt.Sprintf("%d packages compiled in %s", b.compiled, time.Since(b.began).Round(time.Second))
	if b.downloaded > 0 {
		state += fmt.Sprintf(", %d modules downloaded", b.downloaded)
	}
	return state
}
