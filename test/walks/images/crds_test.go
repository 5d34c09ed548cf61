package images

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// dataVolumes returns the definition of DataVolumes, generated from the Go types that the program is built with: their module has none.
func dataVolumes(t testing.TB) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	folder := t.TempDir()
	// #nosec G204 -- a tool of the repository
	command := exec.CommandContext(t.Context(), "go", "tool", "-modfile="+filepath.Join("..", "..", "..", "hack", "tools", "go.mod"), "controller-gen",
		"crd", "paths=kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1", "output:crd:dir="+folder)
	if said, err := command.CombinedOutput(); err != nil {
		t.Fatalf("generating the definitions of CDI: %v\n%s", err, said)
	}
	return read(t, filepath.Join(folder, "cdi.kubevirt.io_datavolumes.yaml"))
}

// snapshots returns the definitions of VolumeSnapshots, their contents and classes, as their module has them.
func snapshots(t testing.TB) (crds []*apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	folder, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/kubernetes-csi/external-snapshotter/client/v8").Output()
	if err != nil {
		t.Fatalf("finding the module of snapshots: %v", err)
	}
	for _, plural := range []string{"volumesnapshots", "volumesnapshotcontents", "volumesnapshotclasses"} {
		file := fmt.Sprintf("snapshot.storage.k8s.io_%s.yaml", plural)
		crds = append(crds, read(t, filepath.Join(strings.TrimSpace(string(folder)), "config", "crd", file)))
	}
	return crds
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
