package main

import (
	"bytes"
	"context"
	"debug/elf"
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

	"sallyport.dev/sallyport/test/support/env/install"
	"sallyport.dev/sallyport/test/support/pages"
)

// demo is one that runs, with a folder of its own for what is temporary.
type demo struct {
	*testing.T
	*exec.Cmd
	out       *lockedBuffer
	ended     chan struct{}
	err       error
	temporary string
}

// folder is for the program.
var folder string

// build builds the program as make demo-binary does, without cgo.
var build = sync.OnceValues(func() (string, error) {
	if err := os.Setenv("CGO_ENABLED", "0"); err != nil {
		return "", err
	}
	return install.Build(context.Background(), folder, "sallyport.dev/sallyport/cmd/demo")
})

func TestMain(m *testing.M) {
	var err error
	if folder, err = os.MkdirTemp("", "sallyport-demo-test-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(folder)
	os.Exit(code)
}

// start runs the program as a user does who has no clone and no Go. It finds a control plane in the cache.
func start(t *testing.T, args ...string) *demo {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return startWith(t, cache, args...)
}

func startWith(t *testing.T, cache string, args ...string) *demo {
	t.Helper()
	t.Parallel()
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	d := &demo{T: t, Cmd: exec.CommandContext(t.Context(), binary, args...), out: &lockedBuffer{}, ended: make(chan struct{}), temporary: t.TempDir()}
	d.Dir = t.TempDir()
	d.Env = []string{"HOME=" + t.TempDir(), "XDG_CACHE_HOME=" + cache, "PATH=" + onlyTools(t), "TMPDIR=" + d.temporary, "DOWNLOAD=0"}
	d.Stdout, d.Stderr = d.out, d.out
	d.Cancel = d.interrupt
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(d.ended)
		d.err = d.Wait()
	}()
	return d
}

// onlyTools returns a PATH with the tools of the system that the demo needs.
func onlyTools(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for _, tool := range []string{"sh", "sed"} {
		path, err := exec.LookPath(tool)
		if err == nil {
			err = os.Symlink(path, filepath.Join(folder, tool))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func (d *demo) interrupt() error { return d.Process.Signal(os.Interrupt) }

// shows waits until the demo has printed something.
func (d *demo) shows(text string) {
	d.Helper()
	looking := time.NewTicker(50 * time.Millisecond)
	defer looking.Stop()
	for !strings.Contains(d.out.String(), text) {
		select {
		case <-d.ended:
			d.Fatalf("the demo ended: %v\n%s", d.err, d.out)
		case <-looking.C:
		}
	}
}

// ends waits for the end of the demo, which is to leave nothing behind.
func (d *demo) ends(well bool) {
	d.Helper()
	<-d.ended
	if (d.err == nil) != well {
		d.Errorf("the demo ended: %v\n%s", d.err, d.out)
	}
	if left, _ := filepath.Glob(d.temporary + "/*"); len(left) > 0 {
		d.Errorf("the demo leaves behind %v", left)
	}
	processes, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range processes {
		if line, _ := os.ReadFile(file); bytes.Contains(line, []byte(d.temporary)) {
			d.Errorf("the demo leaves behind a process: %q", line)
		}
	}
}

// The demo walks, stays up for what docs/getting-started.md has a reader type, and leaves nothing behind.
func TestDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	d := start(t, "--all")
	d.shows("Ctrl-C here ends")
	said := d.out.String()
	for _, page := range []string{"../../README.md", "../../docs/demo.md"} {
		for _, s := range shown(t, page) {
			s.IsIn(t, said)
		}
	}
	environment := regexp.MustCompile(`export KUBECONFIG=.*`).FindString(said)
	for _, s := range shown(t, "../../docs/getting-started.md") {
		reader := exec.CommandContext(t.Context(), "sh", "-c", environment+"\n"+s.Command)
		reader.Env = append(os.Environ(), "KUBERC=off", "KUBECACHEDIR="+t.TempDir())
		got, _ := reader.CombinedOutput() // some commands are to fail
		s.IsIn(t, "$ "+s.Command+"\n"+string(got))
	}
	if err := d.interrupt(); err != nil {
		t.Fatal(err)
	}
	d.ends(true)
}

// The program is static: it runs on any Linux of its architecture.
func TestStatic(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	file, err := elf.Open(binary)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if slices.ContainsFunc(file.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		t.Error("the demo needs a dynamic linker")
	}
}

// Without a control plane and without Go, it shows the first denial, and then what is missing.
func TestNothingFound(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	d := startWith(t, t.TempDir(), "--script")
	d.ends(false)
	for _, want := range []string{"OperationInProgress", "KUBEBUILDER_ASSETS", "Go"} {
		if !strings.Contains(d.out.String(), want) {
			t.Errorf("the demo does not say %q:\n%s", want, d.out)
		}
	}
}

// As a script it goes to the very end, and says how it went.
func TestScript(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	d := start(t, "--script")
	d.ends(true)
	d.shows("DEMO OK: ")
}

// Whoever interrupts it, here while the replicas start, need not wait for the end.
func TestInterrupted(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	d := start(t, "--script")
	d.shows("updated replicas are available")
	if err := d.interrupt(); err != nil {
		t.Fatal(err)
	}
	d.ends(false)
	for _, want := range []string{"Everything is removed.", "the demo was interrupted before its end"} {
		if !strings.Contains(d.out.String(), want) {
			t.Errorf("the demo does not say %q:\n%s", want, d.out)
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

// shown are the commands of a page that are about the demo's cluster: those that install it are not.
func shown(t *testing.T, file string) (found []pages.Shown) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range pages.Parse(file, string(text)).Blocks {
		found = append(found, b.Shown()...)
	}
	found = slices.DeleteFunc(found, func(s pages.Shown) bool { return !inDemo.MatchString(s.Command) })
	if len(found) == 0 {
		t.Errorf("%s shows no kubectl", file)
	}
	return found
}

var inDemo = regexp.MustCompile(`^(kubectl|helm uninstall) `)
