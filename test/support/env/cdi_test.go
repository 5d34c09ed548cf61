package env

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What is changed in a program is there, or else it is not built. The rest of its package stays as it is.
func TestEditedPrograms(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"main.go": "package main\nvar port = 8443\n", "util.go": "package main\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list := func(ctx context.Context, _ ...string) *exec.Cmd {
		return exec.CommandContext(ctx, "echo", filepath.Join(dir, "main.go"), filepath.Join(dir, "util.go"))
	}
	src := t.TempDir()
	p := program{name: "server", pkg: "example.org/server", edits: []string{"8443", "9443"}}
	if pkg, err := p.mainPackage(t.Context(), src, list); err != nil || pkg != "./server" {
		t.Errorf("the package is %q, %v", pkg, err)
	}
	got := map[string]string{}
	for _, name := range []string{"main.go", "util.go"} {
		text, _ := os.ReadFile(filepath.Join(src, "server", name))
		got[name] = string(text)
	}
	if diff := cmp.Diff(map[string]string{"main.go": "package main\nvar port = 9443\n", "util.go": "package main\n"}, got); diff != "" {
		t.Errorf("the source (-want +got):\n%s", diff)
	}
	for _, missing := range []string{"80", "package main"} { // none, two
		p.edits = []string{missing + "\n", "x"}
		if _, err := p.mainPackage(t.Context(), src, list); err == nil || !strings.Contains(err.Error(), "exactly once") {
			t.Errorf("%q is replaced: %v", missing, err)
		}
	}
}

// The programs of CDI and CSI have a folder of their own, which changes with what is changed in them.
func TestCDIIsBuiltApart(t *testing.T) {
	g := graph{mod: cdiMod, sum: cdiSum}
	if !strings.HasPrefix(g.key(), "cdi-") || g.version(cdiModule) == "" {
		t.Errorf("the folder is %s, the version %q", g.key(), g.version(cdiModule))
	}
	if changed := (graph{mod: cdiMod, sum: cdiSum, also: "x"}); changed.key() == g.key() {
		t.Error("what is changed in a program does not count")
	}
	g = graph{mod: csiMod, sum: csiSum}
	for _, module := range []string{"k8s.io/client-go", "k8s.io/api", "k8s.io/apimachinery"} {
		if g.version(module) != current.version(module) {
			t.Errorf("the controllers of CSI have %s %s, Sallyport has %s", module, g.version(module), current.version(module))
		}
	}
}
