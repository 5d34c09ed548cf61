package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport.dev/sallyport/cmd/internal/terminal"
)

// fakeGo puts a go command into PATH that prints what go build -v does and writes a program that denies.
func fakeGo(t *testing.T, script string) {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "go"), []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", folder+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Chdir(t.TempDir())
}

const builds = `
while [ "$1" != -o ]; do shift; done
echo "go: downloading example.org/x v1.0.0" >&2
echo "example.org/x" >&2
mkdir -p "$(dirname "$2")"
printf '#!/bin/sh\necho "DENIED by %s (OperationInProgress)"; exit 1\n' "$3" > "$2"
chmod +x "$2"
`

// The first build shows a denial before it compiles the demo. The next one does not need it.
func TestDenialBeforeTheDemoIsBuilt(t *testing.T) {
	fakeGo(t, builds)
	var out bytes.Buffer
	args, err := prepare(t.Context(), terminal.NewPrinter(&out))
	if err != nil || fmt.Sprint(args) != "[--denial=false]" {
		t.Errorf("got %v, %v", args, err)
	}
	at := -1
	for _, text := range []string{"Building sallyport review", "1 packages compiled", "$ sallyport review", "DENIED by ./cmd/demo/review", "Building the demo"} {
		next := strings.Index(out.String(), text)
		if next <= at {
			t.Errorf("%q is missing, or too early:\n%s", text, &out)
		}
		at = next
	}
	out.Reset()
	args, err = prepare(t.Context(), terminal.NewPrinter(&out))
	if err != nil || len(args) > 0 || strings.Contains(out.String(), "denial") {
		t.Errorf("the second time: got %v, %v\n%s", args, err, &out)
	}
}

// A failure shows what go said, without the lines of progress.
func TestBuildFails(t *testing.T) {
	fakeGo(t, "echo sallyport.dev/x >&2; echo 'x.go:1:1: undefined: y' >&2; printf 'no space left on device' >&2; exit 1")
	var out bytes.Buffer
	_, err := prepare(t.Context(), terminal.NewPrinter(&out))
	if err == nil {
		t.Fatal("no error")
	}
	for text, want := range map[string]bool{
		"building sallyport review": true, "undefined: y\nno space left on device": true, "sallyport.dev/x": false, "GOPROXY": true,
	} {
		if strings.Contains(err.Error(), text) != want {
			t.Errorf("contains %q: want %v: %v", text, want, err)
		}
	}
}

// A build that has nothing to compile prints nothing.
func TestNothingToBuild(t *testing.T) {
	fakeGo(t, "exit 0")
	var out bytes.Buffer
	if err := demo.build(t.Context(), terminal.NewPrinter(&out), "x"); err != nil || out.Len() > 0 {
		t.Errorf("got %v, %s", err, &out)
	}
}

// An interruption ends go build, which cleans up, and what it has started.
func TestBuildIsInterrupted(t *testing.T) {
	fakeGo(t, "trap 'echo cleaned >cleaned; exit 1' INT; echo example.org/x >&2; while :; do sleep 0.05; done")
	ctx, cancel := context.WithCancel(t.Context())
	out := &cancelling{cancel: cancel}
	if err := demo.build(ctx, terminal.NewPrinter(out), "x"); err == nil {
		t.Error("no error")
	}
	if _, err := os.Stat("cleaned"); err != nil {
		t.Error("go build was not interrupted")
	}
}

// cancelling cancels when the build has begun.
type cancelling struct{ cancel func() }

func (c *cancelling) Write(text []byte) (int, error) {
	c.cancel()
	return len(text), nil
}
