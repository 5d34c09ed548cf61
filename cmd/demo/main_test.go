package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport/test/env/install"
)

// The demo walks, stays up for what docs/getting-started.md has a reader type, and leaves nothing behind.
func TestDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane: left out with -short")
	}
	binary, err := install.Build(t.Context(), t.TempDir(), "sallyport.dev/sallyport/cmd/demo")
	if err != nil {
		t.Fatal(err)
	}
	temporary := t.TempDir()
	demo := exec.CommandContext(t.Context(), binary)
	demo.Env = append(os.Environ(), "TMPDIR="+temporary)
	out := &lockedBuffer{}
	demo.Stdout, demo.Stderr = out, out
	demo.Cancel = func() error { return demo.Process.Signal(os.Interrupt) }
	if err := demo.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- demo.Wait() }()
	await(t, out, ended)
	shown := out.String()
	for _, b := range blocks(t, "../../README.md") {
		b.isIn(t, shown)
	}
	environment := regexp.MustCompile(`export KUBECONFIG=.*`).FindString(shown)
	for _, b := range blocks(t, "../../docs/getting-started.md") {
		reader := exec.CommandContext(t.Context(), "sh", "-c", environment+"\n"+b.command)
		reader.Env = append(os.Environ(), "KUBERC=off", "KUBECACHEDIR="+t.TempDir())
		got, _ := reader.CombinedOutput() // some commands are to fail
		b.isIn(t, "$ "+b.command+"\n"+string(got))
	}
	if err := demo.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("ending the demo: %v\n%s", err, out)
	}
	if left, _ := filepath.Glob(temporary + "/*"); len(left) > 0 {
		t.Errorf("the demo leaves behind %v", left)
	}
}

// await returns when the walk is over and the demo waits for its reader.
func await(t *testing.T, out fmt.Stringer, ended <-chan error) {
	t.Helper()
	looking := time.NewTicker(50 * time.Millisecond)
	defer looking.Stop()
	for !strings.Contains(out.String(), "Ctrl-C here ends") {
		select {
		case err := <-ended:
			t.Fatalf("the demo ended: %v\n%s", err, out)
		case <-looking.C:
		}
	}
}

// lockedBuffer is written while it is read.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(text)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// block is a command that a page shows, and the lines below it.
type block struct {
	command string
	lines   []string
}

// blocks are the commands of a page that are about the demo's cluster.
func blocks(t *testing.T, file string) (found []block) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		for line := range strings.Lines(part[1]) {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				found = append(found, block{command: strings.TrimSpace(command)})
			} else {
				last := &found[len(found)-1]
				last.lines = append(last.lines, line)
			}
		}
	}
	found = slices.DeleteFunc(found, func(b block) bool { return !strings.HasPrefix(b.command, "kubectl ") })
	if len(found) == 0 {
		t.Errorf("%s shows no kubectl", file)
	}
	return found
}

// isIn reports what of the block is not in a text, but for what differs from one run to the next.
func (b *block) isIn(t *testing.T, text string) {
	t.Helper()
	there := map[string]bool{}
	for line := range strings.Lines(text) {
		there[lasting(line)] = true
	}
	for _, line := range append([]string{"$ " + b.command}, b.lines...) {
		if line = lasting(line); !there[line] && !passing.MatchString(line) {
			t.Errorf("a page shows below %q what is not there: %q", b.command, line)
		}
	}
	if t.Failed() {
		t.Logf("there is\n%s", text)
	}
}

// passing are the lines of steps that a watch may or may not see.
var passing = regexp.MustCompile(`: (Pending|InProgress): `)

var random, age = regexp.MustCompile(`(-(?:start|stop|restart|migrate|evict))-[a-z0-9]{5}\b`), regexp.MustCompile(`\b([0-9]+[smh])+\b`)

// lasting is what of a line is the same in every run.
func lasting(line string) string {
	return strings.Join(strings.Fields(age.ReplaceAllString(random.ReplaceAllString(line, "$1-xxxxx"), "0s")), " ")
}
