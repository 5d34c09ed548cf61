// Package openreports has the definitions of the kinds of reports, as their makers publish them beside the Go types.
package openreports

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// CRDs are those of Report and ClusterReport, in the version that the program is built with.
func CRDs(t testing.TB) (crds []*apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	folder, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/openreports/reports-api").Output()
	if err != nil {
		t.Fatalf("finding the module of the kinds of reports: %v", err)
	}
	for _, plural := range []string{"reports", "clusterreports"} {
		text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(folder)), "config", "crd", "openreports.io_"+plural+".yaml"))
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err == nil {
			err = yaml.Unmarshal(text, crd)
		}
		if err != nil {
			t.Fatal(err)
		}
		crds = append(crds, crd)
	}
	return crds
}
