package env

import (
	"context"
	"errors"
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

	"github.com/google/go-cmp/cmp"
)

// stubProgram is cheap to pretend to build.
var stubProgram = program{name: Etcd, pkg: "example.com/etcd", module: "go.etcd.io/etcd/server/v3", minutes: 1}

// logLines collects what a builder says.
type logLines struct {
	mu    sync.Mutex
	lines []string
}

func (l *logLines) logf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

func (l *logLines) contains(part string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.lines, func(line string) bool { return strings.Contains(line, part) })
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, entry := range entries {
		found = append(found, entry.Name())
	}
	return found
}

// Every k8s.io module has to come from the release that the programs come from.
func TestWrapperModuleIsConsistent(t *testing.T) {
	version := KubernetesVersion()
	staged := "v0." + strings.TrimPrefix(version, "v1.")
	replaced := regexp.MustCompile(`(?m)^\s*(k8s\.io/\S+) => (\S+) (\S+)$`).FindAllStringSubmatch(wrapperMod, -1)
	if len(replaced) < 20 {
		t.Errorf("controlplane.mod replaces %d staging modules", len(replaced))
	}
	for _, r := range replaced {
		if r[1] != r[2] || r[3] != staged {
			t.Errorf("controlplane.mod: %s => %s %s, want %s %s", r[1], r[2], r[3], r[1], staged)
		}
	}
	client := requiredVersion(wrapperMod, "go.etcd.io/etcd/client/v3")
	if server := requiredVersion(wrapperMod, "go.etcd.io/etcd/server/v3"); server == "" || server != client {
		t.Errorf("controlplane.mod: etcd server %q, client %q", server, client)
	}
	if goVersion(wrapperMod) == "" {
		t.Error("controlplane.mod has no Go version")
	}
}

func TestCacheKey(t *testing.T) {
	key := func(mod, sum string, flags ...string) string {
		return wrapper{mod: mod, sum: sum, module: kubernetesModule, flags: flags}.key()
	}
	mod := "module x\n\nrequire k8s.io/kubernetes v1.2.3\n"
	first := key(mod, "sum", "-a", "-b")
	if !regexp.MustCompile(`^v1\.2\.3-[0-9a-f]{12}$`).MatchString(first) {
		t.Errorf("key() = %q", first)
	}
	if again := key(mod, "sum", "-a", "-b"); again != first {
		t.Errorf("the same build has the keys %q and %q", first, again)
	}
	others := map[string]string{
		"mod":           key(mod+"\n", "sum", "-a", "-b"),
		"sum":           key(mod, "sum2", "-a", "-b"),
		"flags":         key(mod, "sum", "-a"),
		"flags' bounds": key(mod, "sum", "-a-b"),
	}
	for what, other := range others {
		if other == first {
			t.Errorf("another %s, the same key %q", what, first)
		}
	}
}

func TestBuildFlagsSayTheVersion(t *testing.T) {
	parts := strings.SplitN(strings.TrimPrefix(KubernetesVersion(), "v"), ".", 3)
	flags := strings.Join(buildFlags(), " ")
	for _, want := range []string{
		"gitVersion=" + KubernetesVersion(), "gitMajor=" + parts[0] + " ", "gitMinor=" + parts[1], "-trimpath",
	} {
		if !strings.Contains(flags, want) {
			t.Errorf("build flags %q lack %q", flags, want)
		}
	}
}

func TestBuildEnv(t *testing.T) {
	got := buildEnv([]string{"HOME=/home/x", "GOOS=plan9"}, "-mod=vendor -modfile=tools.mod --race -tags=a,b -modcacherw -p=1")
	for _, want := range []string{"HOME=/home/x", "GOFLAGS=-mod=readonly -modcacherw -p=1", "GOWORK=off", "CGO_ENABLED=0"} {
		if !slices.Contains(got, want) {
			t.Errorf("buildEnv() lacks %q: %q", want, got)
		}
	}
	// The last one of a name counts.
	if slices.Index(got, "GOOS=plan9") > slices.IndexFunc(got[1:], func(s string) bool { return s == "GOOS=linux" }) {
		t.Errorf("buildEnv() builds for the caller's target: %q", got)
	}
}

func TestBuilderRenamesWhatIsFinished(t *testing.T) {
	var log logLines
	b := &builder{wrapper: controlPlane(), dir: filepath.Join(t.TempDir(), "key"), logf: log.logf}
	b.build = func(_ context.Context, src string, p program, out string) error {
		if filepath.Dir(out) != b.dir || isFile(filepath.Join(b.dir, p.name)) {
			t.Errorf("building into %s", out)
		}
		for name, want := range map[string]string{"go.mod": wrapperMod, "go.sum": wrapperSum} {
			got, err := os.ReadFile(filepath.Join(src, name))
			if err != nil || string(got) != want {
				t.Errorf("%s: error %v, differs: %t", name, err, string(got) != want)
			}
		}
		return os.WriteFile(out, []byte("program"), 0o755)
	}
	for range 2 {
		if err := b.ensure(t.Context(), []program{stubProgram}); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"etcd", "lock", "src"}, names(t, b.dir)); diff != "" {
		t.Errorf("cache folder (-want +got):\n%s", diff)
	}
	if want := "building etcd " + requiredVersion(wrapperMod, stubProgram.module) + ", once, about 1 minute"; !log.contains(want) {
		t.Errorf("log %q lacks %q", log.lines, want)
	}
	if len(log.lines) != 2 {
		t.Errorf("the second time, nothing is to be said: %q", log.lines)
	}
}

func TestBuilderLeavesNothingHalfMade(t *testing.T) {
	broken := errors.New("compiler died")
	b := &builder{wrapper: controlPlane(), dir: filepath.Join(t.TempDir(), "key")}
	b.build = func(_ context.Context, _ string, _ program, out string) error {
		return errors.Join(broken, os.WriteFile(out, []byte("half a prog"), 0o755))
	}
	if err := b.ensure(t.Context(), []program{stubProgram}); !errors.Is(err, broken) {
		t.Errorf("ensure() = %v, want %v", err, broken)
	}
	if diff := cmp.Diff([]string{"lock", "src"}, names(t, b.dir)); diff != "" {
		t.Errorf("cache folder (-want +got):\n%s", diff)
	}
}

func TestBuildersTakeTurns(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "key")
	var log logLines
	building, finish := make(chan struct{}), make(chan struct{})
	first := &builder{wrapper: controlPlane(), dir: dir, build: func(_ context.Context, _ string, _ program, out string) error {
		close(building)
		<-finish
		return os.WriteFile(out, []byte("program"), 0o755)
	}}
	second := &builder{wrapper: controlPlane(), dir: dir, logf: log.logf, build: func(context.Context, string, program, string) error {
		return errors.New("built twice")
	}}
	errs := make(chan error, 2)
	go func() { errs <- first.ensure(t.Context(), []program{stubProgram}) }()
	<-building

	// A third one gives up while it waits.
	impatient, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := second.ensure(impatient, []program{stubProgram}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ensure() that gave up = %v", err)
	}

	go func() { errs <- second.ensure(t.Context(), []program{stubProgram}) }()
	eventually(t, "the second builder to wait", func(context.Context) error {
		if !log.contains("another process") {
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
		if _, err := lock(t.Context(), path, func() {}); err != nil {
			t.Fatal(err)
		}
		fmt.Println("locked")
		select {} // until killed
	}
	path := filepath.Join(t.TempDir(), "lock")
	other := exec.Command(os.Args[0], "-test.run=^TestLockBetweenProcesses$", "-test.v")
	other.Env = append(os.Environ(), helperLock+"="+path)
	var out tail
	other.Stdout, other.Stderr = &out, &out
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
		unlock, err := lock(t.Context(), path, func() { close(waiting) })
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

// stubGo puts a go command into PATH that is a shell script.
func stubGo(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

const stubBuild = `[ "$1" = env ] && exit
while [ "$1" != -o ]; do shift; done
echo "program of $3" >"$2"
`

func TestBinaries(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	assets := t.TempDir()
	t.Setenv(assetsVariable, assets)
	given := filepath.Join(assets, Kubectl)
	if err := os.WriteFile(given, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	stubGo(t, stubBuild)

	got, err := Binaries(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got.Kubectl != given {
		t.Errorf("kubectl is %s, not the one of %s", got.Kubectl, assetsVariable)
	}
	for path, want := range map[string]string{
		got.Etcd:              "program of go.etcd.io/etcd/server/v3\n",
		got.APIServer:         "program of k8s.io/kubernetes/cmd/kube-apiserver\n",
		got.ControllerManager: "program of k8s.io/kubernetes/cmd/kube-controller-manager\n",
	} {
		content, err := os.ReadFile(path)
		if err != nil || string(content) != want {
			t.Errorf("%s: %q, error %v; want %q", path, content, err, want)
		}
	}
}

func TestGoBuildErrors(t *testing.T) {
	t.Run("compiler", func(t *testing.T) {
		stubGo(t, `[ "$1" = env ] && exit; for i in $(seq 100); do echo "line $i"; done; echo "dial tcp: no route" >&2; exit 1`)
		err := controlPlane().goBuild(t.Context(), t.TempDir(), stubProgram, "out")
		if err == nil {
			t.Fatal("no error")
		}
		for _, want := range []string{"module proxy", "GOPROXY", "in PATH", "line 100\ndial tcp: no route"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("error lacks %q: %v", want, err)
			}
		}
		if strings.Contains(err.Error(), "line 1\n") {
			t.Errorf("error has more than the tail: %v", err)
		}
	})
	t.Run("no go", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		err := controlPlane().goBuild(t.Context(), t.TempDir(), stubProgram, "out")
		if !errors.Is(err, exec.ErrNotFound) || !strings.Contains(err.Error(), assetsVariable) {
			t.Errorf("goBuild() = %v", err)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		stubGo(t, `[ "$1" = env ] && exit; exec sleep 60`)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := controlPlane().goBuild(ctx, t.TempDir(), stubProgram, "out"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("goBuild() = %v", err)
		}
	})
}
