package env

import (
	"context"
	_ "embed" // for the module graphs below
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The module graphs of CDI, with the dependencies that it was released with, and of the controllers of CSI, with those of Sallyport.
var (
	//go:embed cdi.mod
	cdiMod string
	//go:embed cdi.sum
	cdiSum string
	//go:embed csi.mod
	csiMod string
	//go:embed csi.sum
	csiSum string
	// The module graph of a server and a client of S3.
	//go:embed s3.mod
	s3Mod string
	//go:embed s3.sum
	s3Sum string
	// s3Source is the source of both.
	//go:embed testdata/cdi/s3.go
	s3Source string
	// cdiManifests is a program that prints what CDI's operator would install.
	//go:embed testdata/cdi/manifests.go
	cdiManifests string
)

const (
	cdiModule         = "kubevirt.io/containerized-data-importer"
	snapshotterModule = "github.com/kubernetes-csi/external-snapshotter/v8"
	provisionerModule = "github.com/kubernetes-csi/external-provisioner/v6"
)

var (
	cdiPrograms = []program{
		// Both listen on port 8443 of all addresses, and read keys from fixed places: this makes them settings.
		{name: "cdi-apiserver", pkg: cdiModule + "/cmd/cdi-apiserver", module: cdiModule, seconds: 120, edits: []string{
			"NewCdiAPIServer(defaultHost,", `NewCdiAPIServer(os.Getenv("CDI_HOST"),`,
		}},
		{name: "cdi-controller", pkg: cdiModule + "/cmd/cdi-controller", module: cdiModule, seconds: 30, edits: []string{
			`BindAddress:   ":8443"`, `BindAddress:   "0"`,
			"controller.TokenPublicKeyPath", `os.Getenv("CDI_TOKEN_PUBLIC_KEY")`,
			"controller.TokenPrivateKeyPath", `os.Getenv("CDI_TOKEN_PRIVATE_KEY")`,
			"const (\n\treadyFile = \"/tmp/ready\"\n)", `var readyFile = os.Getenv("CDI_READY_FILE")`,
		}},
		{name: "cdi-manifests", module: cdiModule, seconds: 20, source: cdiManifests},
	}
	s3Programs  = []program{{name: "s3", module: "github.com/rclone/gofakes3", seconds: 30, source: s3Source}}
	csiPrograms = []program{
		{name: "snapshot-controller", pkg: snapshotterModule + "/cmd/snapshot-controller", module: snapshotterModule, seconds: 60},
		{name: "csi-snapshotter", pkg: snapshotterModule + "/cmd/csi-snapshotter", module: snapshotterModule, seconds: 10},
		{name: "csi-provisioner", pkg: provisionerModule + "/cmd/csi-provisioner", module: provisionerModule, seconds: 30, edits: []string{
			// What is only for a Kubernetes that is older than 1.24 does not compile any more.
			"cInformer = capacity.NewV1beta1InformerBridge(factoryForNamespace.Storage().V1beta1().CSIStorageCapacities())",
			`klog.Fatal("the cluster does not serve CSIStorageCapacities of v1")`,
		}},
	}
)

// CDI returns the paths of the programs of CDI, of the controllers of CSI, and of a server and client of S3, by their names: cdi-apiserver,
// cdi-controller, cdi-manifests, snapshot-controller, csi-snapshotter, csi-provisioner, s3. If one is missing and build is false, there are none.
func CDI(ctx context.Context, logf func(format string, args ...any), build bool) (map[string]string, error) {
	paths := map[string]string{}
	for _, of := range []struct {
		graph    graph
		programs []program
	}{
		{graph{mod: cdiMod, sum: cdiSum, also: fmt.Sprint(cdiPrograms)}, cdiPrograms},
		{graph{mod: csiMod, sum: csiSum, also: fmt.Sprint(csiPrograms)}, csiPrograms},
		{graph{mod: s3Mod, sum: s3Sum, also: fmt.Sprint(s3Programs)}, s3Programs},
	} {
		b, err := newBuilder(of.graph, logf)
		if err != nil {
			return nil, err
		}
		found, err := b.paths(ctx, of.programs, build)
		if found == nil || err != nil {
			return nil, err
		}
		maps.Copy(paths, found)
	}
	return paths, nil
}

// paths returns the paths of programs by their names, none if one is missing. If build is set, it builds those.
func (b *builder) paths(ctx context.Context, programs []program, build bool) (map[string]string, error) {
	if build {
		if err := b.ensure(ctx, programs); err != nil {
			return nil, err
		}
	}
	paths := map[string]string{}
	for _, p := range programs {
		if paths[p.name] = b.cached(p); paths[p.name] == "" {
			return nil, nil
		}
	}
	return paths, nil
}

// mainPackage returns what go build is to build for a program. One that has a source of ours, or a changed one, gets a package in the module
// at src.
func (p program) mainPackage(ctx context.Context, src string, goTool func(ctx context.Context, args ...string) *exec.Cmd) (string, error) {
	sources := map[string]string{"main.go": p.source}
	switch {
	case len(p.edits) > 0:
		var err error
		if sources, err = p.edited(ctx, goTool); err != nil {
			return "", fmt.Errorf("changing the source of %s: %w", p.name, err)
		}
	case p.source == "":
		return p.pkg, nil
	}
	dir := filepath.Join(src, p.name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("folder of the source of %s: %w", p.name, err)
	}
	for name, text := range sources {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return "", fmt.Errorf("writing the source of %s: %w", p.name, err)
		}
	}
	return "./" + p.name, nil
}

// edited returns the files of the program's package with its edits.
func (p program) edited(ctx context.Context, goTool func(ctx context.Context, args ...string) *exec.Cmd) (map[string]string, error) {
	files, err := goTool(ctx, "list", "-tags="+Tags, "-f", "{{range .GoFiles}}{{$.Dir}}/{{.}}\n{{end}}", p.pkg).Output()
	if err != nil {
		return nil, fmt.Errorf("finding it: %w", err)
	}
	sources, all := map[string]string{}, ""
	for _, file := range strings.Fields(string(files)) {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		all += string(text)
		sources[filepath.Base(file)] = strings.NewReplacer(p.edits...).Replace(string(text))
	}
	for i := 0; i < len(p.edits); i += 2 {
		if strings.Count(all, p.edits[i]) != 1 {
			return nil, fmt.Errorf("it does not have %q exactly once", p.edits[i])
		}
	}
	return sources, nil
}
