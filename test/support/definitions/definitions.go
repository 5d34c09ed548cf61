// Package definitions has the definitions of kinds of other projects, in the version whose Go types the program is built with.
package definitions

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// Reports are the definitions of Report and ClusterReport, as their makers publish them beside the Go types.
func Reports(t testing.TB) (crds []*apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	return published(t, "github.com/openreports/reports-api", "openreports.io_reports.yaml", "openreports.io_clusterreports.yaml")
}

// Snapshots are the definitions of VolumeSnapshots, their contents and classes, as their makers publish them beside the Go types.
func Snapshots(t testing.TB) (crds []*apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	return published(t, "github.com/kubernetes-csi/external-snapshotter/client/v8", "snapshot.storage.k8s.io_volumesnapshots.yaml",
		"snapshot.storage.k8s.io_volumesnapshotcontents.yaml", "snapshot.storage.k8s.io_volumesnapshotclasses.yaml")
}

// DataVolumes is the definition of DataVolumes, generated from the Go types: their module has none.
func DataVolumes(t testing.TB) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	folder := t.TempDir()
	tools := filepath.Join(module(t, "sallyport.dev/sallyport"), "hack", "tools", "go.mod")
	// #nosec G204 -- a tool of the repository
	command := exec.CommandContext(t.Context(), "go", "tool", "-modfile="+tools, "controller-gen",
		"crd", "paths=kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1", "output:crd:dir="+folder)
	if said, err := command.CombinedOutput(); err != nil {
		t.Fatalf("generating the definitions of CDI: %v\n%s", err, said)
	}
	return read(t, filepath.Join(folder, "cdi.kubevirt.io_datavolumes.yaml"))
}

// published are definitions in the folder config/crd of a module.
func published(t testing.TB, of string, files ...string) (crds []*apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	folder := module(t, of)
	for _, file := range files {
		crds = append(crds, read(t, filepath.Join(folder, "config", "crd", file)))
	}
	return crds
}

// module is the folder of a module.
func module(t testing.TB, path string) string {
	t.Helper()
	// #nosec G204 -- the paths are in this file
	folder, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", path).Output()
	if err != nil {
		t.Fatalf("finding the module %s: %v", path, err)
	}
	return strings.TrimSpace(string(folder))
}

func read(t testing.TB, file string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	text, err := os.ReadFile(file)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err == nil {
		err = yaml.Unmarshal(text, crd)
	}
	if err != nil {
		t.Fatal(err)
	}
	return crd
}
