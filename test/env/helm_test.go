package env

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestHelmIsBuiltApart(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	stubGo(t, stubBuild)
	path, err := Helm(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(cache, "sallyport", "helm", helmWrapper().key(), "helm"); path != want {
		t.Errorf("Helm() = %s, want %s", path, want)
	}
	if !strings.HasPrefix(helmWrapper().key(), HelmVersion()+"-") {
		t.Errorf("the folder %s does not say the version %s", helmWrapper().key(), HelmVersion())
	}
	content, err := os.ReadFile(path)
	if err != nil || string(content) != "program of helm.sh/helm/v4/cmd/helm\n" {
		t.Errorf("%s: %q, error %v", path, content, err)
	}
	mod, err := os.ReadFile(filepath.Join(filepath.Dir(path), "src", "go.mod"))
	if err != nil || string(mod) != helmMod {
		t.Errorf("it is built in another module, error %v", err)
	}
}

// What the user has set up for Helm is not ours to use.
func TestHelmOnControlPlane(t *testing.T) {
	cp := Shared(t)
	t.Setenv("HELM_NAMESPACE", "elsewhere")
	t.Setenv("HELM_DRIVER", "nonsense")
	stdout, stderr, code := cp.Helm(t.Context(), "version", "--template", "{{.Version}}")
	if code != 0 || stdout != HelmVersion() {
		t.Errorf("helm version: exit code %d, %s, want %s\n%s", code, stdout, HelmVersion(), stderr)
	}
	if stdout, stderr, code = cp.Helm(t.Context(), "list"); code != 0 {
		t.Errorf("helm list: exit code %d\n%s%s", code, stdout, stderr)
	}
	if stdout, _, _ = cp.Helm(t.Context(), "env"); !strings.Contains(stdout, `HELM_NAMESPACE="default"`) || !strings.Contains(stdout, `HELM_CACHE_HOME="`+cp.dir.path("helm-cache")) {
		t.Errorf("helm env:\n%s", stdout)
	}
	if _, stderr, code = cp.Helm(t.Context(), "status", "nothing"); code != 1 || !strings.Contains(stderr, "not found") {
		t.Errorf("helm status of no release: exit code %d\n%s", code, stderr)
	}
}
