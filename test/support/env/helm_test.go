package env

import (
	"strings"
	"testing"
)

// What the user has set up for Helm is not ours to use.
func TestHelmOnControlPlane(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
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
