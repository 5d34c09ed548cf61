package env

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sallyport.dev/sallyport/test/support/env/lookup"
)

// building returns a builder of an empty folder that pretends to build.
func building(t *testing.T, log *logLines, build func(ctx context.Context, src string, wanted []program, out string) error) *builder {
	t.Helper()
	return &builder{graph: current, dir: filepath.Join(t.TempDir(), "key"), logf: log.logf, every: time.Minute, build: build}
}

// write pretends to have built programs.
func write(wanted []program, out string) error {
	var errs []error
	for _, p := range wanted {
		errs = append(errs, os.WriteFile(filepath.Join(out, p.binary()), []byte("program"), 0o755))
	}
	return errors.Join(errs...)
}

func TestBuilderRenamesWhatIsFinished(t *testing.T) {
	var log logLines
	both := []program{etcdProgram, kubectlProgram}
	var b *builder
	b = building(t, &log, func(_ context.Context, src string, wanted []program, out string) error {
		if filepath.Dir(out) != b.dir || b.cached(etcdProgram) != "" || len(wanted) != 2 {
			t.Errorf("building %v into %s", wanted, out)
		}
		for name, want := range map[string]string{"go.mod": programsMod, "go.sum": programsSum} {
			got, err := os.ReadFile(filepath.Join(src, name))
			if err != nil || string(got) != want {
				t.Errorf("%s: error %v, differs: %t", name, err, string(got) != want)
			}
		}
		return write(wanted, out)
	})
	for range 2 {
		if err := b.ensure(t.Context(), both); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"etcd", "kubectl", "lock", "src"}, names(t, b.dir)); diff != "" {
		t.Errorf("cache folder (-want +got):\n%s", diff)
	}
	want := "building etcd " + current.version(etcdProgram.module) + ", kubectl " + KubernetesVersion() + ", once: usually up to 1 min"
	if !log.contains(want) || !log.contains("built etcd") {
		t.Errorf("log %q lacks %q", log.lines, want)
	}
	if len(log.lines) != 2 {
		t.Errorf("the second time, nothing is to be said: %q", log.lines)
	}
}

func TestBuilderLeavesNothingHalfMade(t *testing.T) {
	var log logLines
	broken := errors.New("compiler died")
	fails := true
	b := building(t, &log, func(_ context.Context, _ string, wanted []program, out string) error {
		if diff := cmp.Diff([]string(nil), names(t, out)); diff != "" {
			t.Errorf("it begins with (-want +got):\n%s", diff)
		}
		if fails {
			return errors.Join(broken, os.WriteFile(filepath.Join(out, wanted[0].binary()), []byte("half a prog"), 0o755))
		}
		return write(wanted, out)
	})
	if err := b.ensure(t.Context(), []program{etcdProgram}); !errors.Is(err, broken) {
		t.Errorf("ensure() = %v, want %v", err, broken)
	}
	if diff := cmp.Diff([]string{"lock", "src"}, names(t, b.dir)); diff != "" {
		t.Errorf("cache folder (-want +got):\n%s", diff)
	}
	// A killed build removes nothing.
	left := filepath.Join(b.dir, ".partial")
	if err := errors.Join(os.Mkdir(left, 0o755), write([]program{kubectlProgram}, left)); err != nil {
		t.Fatal(err)
	}
	fails = false
	if err := b.ensure(t.Context(), []program{etcdProgram}); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"etcd", "lock", "src"}, names(t, b.dir)); diff != "" {
		t.Errorf("cache folder (-want +got):\n%s", diff)
	}
}

func TestBuilderTellsHowLongItTakes(t *testing.T) {
	var log logLines
	b := building(t, &log, func(ctx context.Context, _ string, wanted []program, out string) error {
		eventually(t, "the builder to say how long it takes", func(context.Context) error {
			if !log.contains("still building: ") {
				return errors.New("it says nothing")
			}
			return nil
		})
		return write(wanted, out)
	})
	b.every = time.Millisecond
	if err := b.ensure(t.Context(), []program{etcdProgram}); err != nil {
		t.Fatal(err)
	}
	if last := log.lines[len(log.lines)-1]; !strings.HasPrefix(last, "built etcd ") {
		t.Errorf("the last it says is %q", last)
	}
}

func TestBuildersTakeTurns(t *testing.T) {
	var log logLines
	begun, finish := make(chan struct{}), make(chan struct{})
	first := building(t, &logLines{}, func(_ context.Context, _ string, wanted []program, out string) error {
		close(begun)
		<-finish
		return write(wanted, out)
	})
	second := building(t, &log, func(context.Context, string, []program, string) error { return errors.New("built twice") })
	second.dir, second.every = first.dir, time.Millisecond
	errs := make(chan error, 2)
	go func() { errs <- first.ensure(t.Context(), []program{etcdProgram}) }()
	<-begun

	// A third one gives up while it waits.
	impatient, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := second.ensure(impatient, []program{etcdProgram}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ensure() that gave up = %v", err)
	}

	go func() { errs <- second.ensure(t.Context(), []program{etcdProgram}) }()
	eventually(t, "the second builder to wait", func(context.Context) error {
		if !log.contains("another process") || !log.contains("still waiting") {
			return errors.New("it says nothing")
		}
		return nil
	})
	close(finish)
	for range 2 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// helperLock makes this test binary the other process of TestLockBetweenProcesses.
const helperLock = "SALLYPORT_ENV_TEST_LOCK"

func TestLockBetweenProcesses(t *testing.T) {
	if path := os.Getenv(helperLock); path != "" {
		if _, err := (&builder{every: time.Minute}).lock(t.Context(), path); err != nil {
			t.Fatal(err)
		}
		fmt.Println("locked")
		_, _ = io.Copy(io.Discard, os.Stdin) // until killed
	}
	path := filepath.Join(t.TempDir(), "lock")
	other := exec.Command(os.Args[0], "-test.run=^TestLockBetweenProcesses$", "-test.v")
	other.Env = append(os.Environ(), helperLock+"="+path)
	var out tail
	other.Stdout, other.Stderr = &out, &out
	stdin, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other process to lock", func(context.Context) error {
		if !strings.Contains(out.String(), "locked\n") {
			return errors.New(out.String())
		}
		return nil
	})

	waiting := make(chan struct{})
	got := make(chan error, 1)
	go func() {
		b := &builder{every: time.Minute, logf: func(string, ...any) { close(waiting) }}
		unlock, err := b.lock(t.Context(), path)
		if err == nil {
			unlock()
		}
		got <- err
	}()
	<-waiting
	// A killed holder cannot give its lock back, and need not.
	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = other.Wait()
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// What goes wrong is said in one line, with what to do; the programs are built once that is done.
func TestBuildErrors(t *testing.T) {
	tests := map[string]struct {
		script string // of go build
		want   []string
	}{
		"no room":    {`echo 'link: mapping output file failed: no space left on device' >&2; exit 1`, []string{"make room and run this again", "GOCACHE", "mapping output"}},
		"old Go":     {`echo 'go: go.mod requires go >= 1.26.0 (running go 1.20; GOTOOLCHAIN=local)' >&2; exit 1`, []string{"install Go " + current.goVersion(), "running go 1.20"}},
		"proxy off":  {`echo 'go: k8s.io/api@v0: module lookup disabled by GOPROXY=off' >&2; exit 1`, []string{"set GOPROXY", "disabled by"}},
		"bad proxy":  {`echo 'go: k8s.io/api@v0: reading https://x/k8s.io/api: 502 Bad Gateway' >&2; exit 1`, []string{"set GOPROXY", "502"}},
		"killed":     {`kill -KILL $$`, []string{"signal: killed", "GOPROXY"}},
		"impossible": {`for i in $(seq 100); do echo "line $i"; done; exit 1`, []string{"line 100"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			emptyCache(t)
			stubGo(t, `[ "$1" = env ] && exit; `+tc.script)
			_, err := Helm(t.Context(), nil)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range append(tc.want, "building helm "+HelmVersion()) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error lacks %q: %v", want, err)
				}
			}
			if lines := strings.Count(err.Error(), "\n"); lines > tailLines || name != "impossible" && lines > 1 {
				t.Errorf("%d lines: %v", lines, err)
			}
			stubGo(t, stubBuild)
			if _, err := Helm(t.Context(), nil); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestNoGo(t *testing.T) {
	emptyCache(t)
	t.Setenv("PATH", t.TempDir())
	_, err := Helm(t.Context(), nil)
	if !errors.Is(err, exec.ErrNotFound) || !strings.Contains(err.Error(), "install Go") || !strings.Contains(err.Error(), lookup.AssetsVariable) {
		t.Errorf("Helm() = %v", err)
	}
}

// This is what Go itself says.
func TestNoProxy(t *testing.T) {
	emptyCache(t)
	t.Setenv("GOMODCACHE", t.TempDir())
	for _, proxy := range []string{"off", "http://127.0.0.1:1"} {
		t.Setenv("GOPROXY", proxy)
		_, err := Helm(t.Context(), nil)
		if err == nil || !strings.Contains(err.Error(), "set GOPROXY to one that can") || strings.Contains(err.Error(), "\n") {
			t.Errorf("with GOPROXY=%s: %v", proxy, err)
		}
	}
}

func TestNoRoomInTheCache(t *testing.T) {
	b := building(t, &logLines{}, func(context.Context, string, []program, string) error {
		return &os.PathError{Op: "write", Path: "etcd", Err: syscall.ENOSPC}
	})
	if err := b.ensure(t.Context(), []program{etcdProgram}); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "make room") {
		t.Errorf("ensure() = %v", err)
	}
}

func TestBuildIsInterrupted(t *testing.T) {
	cache := emptyCache(t)
	begun := filepath.Join(cache, "begun")
	stubGo(t, `[ "$1" = env ] && exit; touch `+begun+`; exec sleep 60`)
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("Ctrl-C")
	failed := make(chan error)
	go func() {
		_, err := Helm(ctx, nil)
		failed <- err
	}()
	eventually(t, "the build to begin", func(context.Context) error { _, err := os.Stat(begun); return err })
	cancel(stopped)
	if err := <-failed; !errors.Is(err, stopped) {
		t.Errorf("Helm() = %v", err)
	}
	stubGo(t, stubBuild)
	if _, err := Helm(t.Context(), nil); err != nil {
		t.Error(err)
	}
}
