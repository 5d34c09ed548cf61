package env

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"sallyport.dev/sallyport/test/support/env/lookup"
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
	content, err := os.ReadFile("../../../go.mod")
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
			t.Errorf("%s: %s in go.mod, %s in programs.mod; run test/support/env/bump.sh %s %s",
				required[1], required[2], theirs, KubernetesVersion(), HelmVersion())
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
		"program":       {mod: mod, sum: "sum", main: "package main"},
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
for pkg; do case $pkg in *.go) echo "program of $pkg" >"$out/${pkg%.go}";; */v[0-9]) echo "program of $pkg" >"$out/server";; *) echo "program of $pkg" >"$out/${pkg##*/}";; esac; done
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

// Its controllers are those of the types that Sallyport has compiled in.
func TestCertManagerIsBuiltApart(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("..", "..", "..", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if ours, theirs := (graph{mod: string(content)}).version(certManagerModule), certManager.version(certManagerModule); ours == "" || ours != theirs {
		t.Errorf("cert-manager is %q in go.mod and %q in certmanager.mod; run test/support/env/bump.sh cert-manager", ours, theirs)
	}
	cache := emptyCache(t)
	stubGo(t, stubBuild)
	if path, err := CertManager(t.Context(), nil, false); path != "" || err != nil {
		t.Errorf("CertManager() that may not build = %q, %v", path, err)
	}
	path, err := CertManager(t.Context(), nil, true)
	if want := filepath.Join(cache, "sallyport", "control-plane", certManager.key(), "cert-manager"); path != want || err != nil {
		t.Errorf("CertManager() = %q, %v; want %q", path, err, want)
	}
	source, err := os.ReadFile(filepath.Join(filepath.Dir(path), "src", "main.go"))
	if err != nil || string(source) != certManagerMain {
		t.Errorf("it is built from another source, error %v", err)
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
