package env

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sallyport.dev/sallyport/test/env/lookup"
)

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
func TestModuleGraphsAreConsistent(t *testing.T) {
	for name, g := range map[string]graph{"programs.mod": current, "old.mod": old} {
		t.Run(name, func(t *testing.T) {
			staged := "v0." + strings.TrimPrefix(g.version(kubernetesModule), "v1.")
			replaced := regexp.MustCompile(`(?m)^\s*(k8s\.io/\S+) v0\.0\.0 => (\S+) (\S+)$`).FindAllStringSubmatch(g.mod, -1)
			if len(replaced) < 20 {
				t.Errorf("it replaces %d staging modules", len(replaced))
			}
			for _, r := range replaced {
				if r[1] != r[2] || r[3] != staged {
					t.Errorf("%s => %s %s, want %s %s", r[1], r[2], r[3], r[1], staged)
				}
				if required := g.version(r[1]); required != "" && required != staged {
					t.Errorf("it requires %s %s, want %s", r[1], required, staged)
				}
			}
			if g.goVersion() == "" {
				t.Error("it has no Go version")
			}
		})
	}
	client := current.version("go.etcd.io/etcd/client/v3")
	if server := current.version("go.etcd.io/etcd/server/v3"); server == "" || server != client {
		t.Errorf("programs.mod: etcd server %q, client %q", server, client)
	}
	minor := func(version string) int {
		n, err := strconv.Atoi(strings.Split(version, ".")[1])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if apart := minor(KubernetesVersion()) - minor(OldKubernetesVersion()); apart < 3 {
		t.Errorf("Kubernetes %s is %d minors older than %s, want 3", OldKubernetesVersion(), apart, KubernetesVersion())
	}
}

// A library at two versions would be compiled twice, and with it all that imports it.
func TestProgramsHaveTheLibrariesOfSallyport(t *testing.T) {
	content, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	common := 0
	for _, required := range regexp.MustCompile(`(?m)^\t(\S+) (v\S+)`).FindAllStringSubmatch(string(content), -1) {
		switch theirs := current.version(required[1]); theirs {
		case "":
		case required[2]:
			common++
		default:
			t.Errorf("%s: %s in go.mod, %s in programs.mod; run test/env/bump.sh %s %s", required[1], required[2], theirs, KubernetesVersion(), HelmVersion())
		}
	}
	if common < 50 {
		t.Errorf("programs.mod has %d modules of go.mod", common)
	}
}

func TestCacheKey(t *testing.T) {
	mod := "module x\n\nrequire k8s.io/kubernetes v1.2.3\n"
	first := graph{mod: mod, sum: "sum"}.key()
	if !regexp.MustCompile(`^v1\.2\.3-[0-9a-f]{12}$`).MatchString(first) {
		t.Errorf("key() = %q", first)
	}
	if again := (graph{mod: mod, sum: "sum"}).key(); again != first {
		t.Errorf("the same build has the keys %q and %q", first, again)
	}
	others := map[string]graph{
		"mod":           {mod: mod + "\n", sum: "sum"},
		"sum":           {mod: mod, sum: "sum2"},
		"parts' bounds": {mod: mod + "s", sum: "um"},
	}
	for what, other := range others {
		if other.key() == first {
			t.Errorf("another %s, the same key %q", what, first)
		}
	}
}

func TestBuildFlagsSayTheVersion(t *testing.T) {
	parts := strings.SplitN(strings.TrimPrefix(KubernetesVersion(), "v"), ".", 3)
	flags := strings.Join(current.flags(), " ")
	for _, want := range []string{
		"gitVersion=" + KubernetesVersion(), "gitMajor=" + parts[0] + " ", "gitMinor=" + parts[1], "version.version=" + HelmVersion(), "-trimpath",
	} {
		if !strings.Contains(flags, want) {
			t.Errorf("build flags %q lack %q", flags, want)
		}
	}
}

func TestBuildEnv(t *testing.T) {
	got := buildEnv([]string{"HOME=/home/x", "GOOS=plan9"}, "-mod=vendor -modfile=tools.mod --race -tags=a,b -modcacherw -p=1")
	for _, want := range []string{"HOME=/home/x", "GOFLAGS=-mod=readonly -modcacherw -p=1", "GOWORK=off", "CGO_ENABLED=0", "GOGC=400"} {
		if !slices.Contains(got, want) {
			t.Errorf("buildEnv() lacks %q: %q", want, got)
		}
	}
	// The last one of a name counts.
	if slices.Index(got, "GOOS=plan9") > slices.IndexFunc(got[2:], func(s string) bool { return s == "GOOS=linux" }) {
		t.Errorf("buildEnv() builds for the caller's target: %q", got)
	}
}

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
	want := "building etcd " + current.version(etcdProgram.module) + ", kubectl " + KubernetesVersion() + ", once: usually up to 3 minutes"
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

// emptyCache makes it a machine on which nothing is found and nothing is downloaded, and returns the folder of its cache.
func emptyCache(t *testing.T) string {
	t.Helper()
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("XDG_DATA_HOME", cache)
	t.Setenv(lookup.AssetsVariable, "")
	t.Setenv(lookup.DownloadVariable, "0")
	return cache
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

// stubBuild writes the programs that go build is to make.
const stubBuild = `[ "$1" = env ] && exit
while [ "$1" != -o ]; do shift; done
out=$2; shift 2
for pkg; do case $pkg in */v[0-9]) echo "program of $pkg" >"$out/server";; *) echo "program of $pkg" >"$out/${pkg##*/}";; esac; done
`

func TestBinaries(t *testing.T) {
	cache := emptyCache(t)
	assets := t.TempDir()
	t.Setenv(lookup.AssetsVariable, assets)
	given := filepath.Join(assets, Kubectl)
	if err := os.WriteFile(given, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	stubGo(t, stubBuild)

	var log logLines
	if err := Build(t.Context(), log.logf); err != nil {
		t.Fatal(err)
	}
	if !log.contains("found in " + lookup.AssetsVariable + " (" + assets + "): kubectl") {
		t.Errorf("it does not say what was found where: %q", log.lines)
	}
	helm, err := Helm(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	log = logLines{}
	got, err := Binaries(t.Context(), log.logf)
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(cache, "sallyport", "control-plane", current.key())
	if !log.contains("found in "+folder+": etcd, kube-apiserver, kube-controller-manager") || len(log.lines) != 2 {
		t.Errorf("it does not say what was found where: %q", log.lines)
	}
	if got.Kubectl != given {
		t.Errorf("kubectl is %s, not the one of %s", got.Kubectl, lookup.AssetsVariable)
	}
	for path, want := range map[string]string{
		got.Etcd:              "program of go.etcd.io/etcd/server/v3\n",
		got.APIServer:         "program of k8s.io/kubernetes/cmd/kube-apiserver\n",
		got.ControllerManager: "program of k8s.io/kubernetes/cmd/kube-controller-manager\n",
		helm:                  "program of helm.sh/helm/v4/cmd/helm\n",
	} {
		content, err := os.ReadFile(path)
		if err != nil || string(content) != want || filepath.Dir(path) != folder {
			t.Errorf("%s: %q, error %v; want %q", path, content, err, want)
		}
	}
}

// A user's own program is good for the demo, but the tests compare what the programs say.
func TestUsersPrograms(t *testing.T) {
	emptyCache(t)
	stubGo(t, stubBuild)
	own := filepath.Join(t.TempDir(), Kubectl)
	script := "#!/bin/sh\necho '{\"clientVersion\": {\"gitVersion\": \"" + KubernetesVersion() + "\"}}'"
	if err := os.WriteFile(own, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Dir(own)+":"+os.Getenv("PATH"))
	for _, users := range []bool{true, false} {
		paths, err := resolve(t.Context(), nil, []program{kubectlProgram}, users)
		if err != nil || (paths[Kubectl] == own) != users {
			t.Errorf("resolve() if that is said to be %t = %s, %v", users, paths[Kubectl], err)
		}
	}
}

func TestOldAPIServerIsBuiltApart(t *testing.T) {
	cache := emptyCache(t)
	stubGo(t, stubBuild)
	if path, err := OldAPIServer(t.Context(), nil, false); path != "" || err != nil {
		t.Errorf("OldAPIServer() that may not build = %q, %v", path, err)
	}
	path, err := OldAPIServer(t.Context(), nil, true)
	if want := filepath.Join(cache, "sallyport", "control-plane", old.key(), APIServer); path != want || err != nil {
		t.Errorf("OldAPIServer() = %q, %v; want %q", path, err, want)
	}
	mod, err := os.ReadFile(filepath.Join(filepath.Dir(path), "src", "go.mod"))
	if err != nil || string(mod) != oldMod {
		t.Errorf("it is built in another module, error %v", err)
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
