// Package policies holds the policies that Sallyport ships and assembles directories of policies.
//
// A policy is a directory with a policy.yaml, which is a RegoPolicy without its modules, and the Rego beside it. The
// directory is the policy's package: operations/supersede holds package sallyport.operations.supersede, and the
// RegoPolicy is called operations-supersede.
package policies

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// ManifestFile is the file of a policy's directory that holds everything but its Rego.
const ManifestFile = "policy.yaml"

//go:embed */policy.yaml */*.rego */*/policy.yaml */*/*.rego
var shipped embed.FS

// Shipped gives the policies of this release, libraries first, each kind by name.
func Shipped() ([]v1alpha1.RegoPolicy, error) {
	loaded, _, err := load(shipped, "", checkShipped)
	return loaded, err
}

// LoadFolder gives the policies of a folder of the disk, libraries first, each kind by name, and the path of the policy.yaml of
// each, by the policy's name. A policy's package must end in its directory's path; what comes before that, and the policy's name,
// are free. Paths begin with the folder. The error joins all that is wrong and names the files.
func LoadFolder(folder string) ([]v1alpha1.RegoPolicy, map[string]string, error) {
	return load(os.DirFS(folder), folder, checkPackage)
}

// rule says whether a policy may stand in its directory.
type rule func(dir string, policy *v1alpha1.RegoPolicy) error

// load gives also the paths of the manifests, below root.
func load(fsys fs.FS, root string, allowed rule) ([]v1alpha1.RegoPolicy, map[string]string, error) {
	dirs, err := scan(fsys, root)
	if err != nil {
		return nil, nil, err
	}
	if len(dirs) == 0 {
		return nil, nil, fmt.Errorf("no %s found", ManifestFile)
	}
	var loaded []v1alpha1.RegoPolicy
	var errs []error
	files := map[string]string{} // by the name of the policy
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		file := path.Join(root, dir, ManifestFile)
		policy, err := assemble(fsys, dir, dirs[dir])
		if err == nil {
			err = allowed(dir, policy)
		}
		if err == nil && files[policy.Name] != "" {
			err = fmt.Errorf("metadata.name is %s, as in %s", policy.Name, files[policy.Name])
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", file, err))
			continue
		}
		files[policy.Name] = file
		loaded = append(loaded, *policy)
	}
	slices.SortFunc(loaded, librariesFirst)
	return loaded, files, errors.Join(errs...)
}

// scan gives the names of the Rego files by directory, for every directory with a policy. Hidden directories are left
// out: linters keep Rego of their own there.
func scan(fsys fs.FS, root string) (map[string][]string, error) {
	rego := map[string][]string{}
	manifests := map[string]bool{}
	err := fs.WalkDir(fsys, ".", func(file string, entry fs.DirEntry, err error) error {
		dir, name := path.Dir(file), path.Base(file)
		switch {
		case err != nil:
			return fmt.Errorf("reading policies: %w", err)
		case entry.IsDir() && file != "." && strings.HasPrefix(name, "."):
			return fs.SkipDir
		case entry.IsDir():
		case name == ManifestFile:
			manifests[dir] = true
		case path.Ext(name) == ".rego":
			rego[dir] = append(rego[dir], name)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	dirs := map[string][]string{}
	for dir := range manifests {
		dirs[dir] = rego[dir]
		delete(rego, dir)
	}
	var errs []error
	for _, dir := range slices.Sorted(maps.Keys(rego)) {
		for _, name := range rego[dir] {
			errs = append(errs, fmt.Errorf("%s: there is no %s beside it", path.Join(root, dir, name), ManifestFile))
		}
	}
	return dirs, errors.Join(errs...)
}

// assemble reads the policy of a directory and attaches the Rego beside it.
func assemble(fsys fs.FS, dir string, names []string) (*v1alpha1.RegoPolicy, error) {
	text, err := fs.ReadFile(fsys, path.Join(dir, ManifestFile))
	if err != nil {
		return nil, err
	}
	policy := &v1alpha1.RegoPolicy{}
	if err := yaml.UnmarshalStrict(text, policy); err != nil {
		return nil, err
	}
	wanted := v1alpha1.GroupVersion.WithKind("RegoPolicy")
	switch {
	case policy.GroupVersionKind() != wanted:
		return nil, fmt.Errorf("apiVersion and kind must be %s and %s", wanted.GroupVersion(), wanted.Kind)
	case policy.Name == "":
		return nil, errors.New("metadata.name is missing")
	case len(policy.Spec.Modules) > 0 || len(policy.Spec.Tests) > 0:
		return nil, errors.New("spec.modules and spec.tests must not be set: they are the .rego files beside it")
	}
	for _, name := range names {
		source, err := fs.ReadFile(fsys, path.Join(dir, name))
		if err != nil {
			return nil, err
		}
		if strings.HasSuffix(name, "_test.rego") {
			policy.Spec.Tests = append(policy.Spec.Tests, v1alpha1.PolicyTest{Name: name, Source: string(source)})
		} else {
			policy.Spec.Modules = append(policy.Spec.Modules, v1alpha1.PolicyModule{Name: name, Source: string(source)})
		}
	}
	if len(policy.Spec.Modules) == 0 {
		return nil, errors.New("there is no module beside it, only tests or nothing")
	}
	return policy, nil
}

// checkPackage holds the end of a policy's package against its directory.
func checkPackage(dir string, policy *v1alpha1.RegoPolicy) error {
	if end := dotted(dir); dir != "." && !strings.HasSuffix("."+policy.Spec.Package, "."+end) {
		return fmt.Errorf("spec.package is %s, which does not end in %s as the directory does", policy.Spec.Package, end)
	}
	return nil
}

// checkShipped is stricter: nothing about a shipped policy's name and package is free, but that a package has no dashes.
func checkShipped(dir string, policy *v1alpha1.RegoPolicy) error {
	if pkg := "sallyport." + dotted(dir); policy.Spec.Package != pkg {
		return fmt.Errorf("spec.package is %s, not %s", policy.Spec.Package, pkg)
	}
	name := strings.ReplaceAll(dir, "/", "-")
	if joined := strings.ReplaceAll(policy.Name, "-", ""); joined != strings.ReplaceAll(name, "-", "") {
		return fmt.Errorf("metadata.name is %s, not %s", policy.Name, name)
	}
	return nil
}

func dotted(dir string) string { return strings.ReplaceAll(dir, "/", ".") }

func librariesFirst(a, b v1alpha1.RegoPolicy) int {
	if a.Spec.Library != b.Spec.Library {
		if a.Spec.Library {
			return -1
		}
		return 1
	}
	return strings.Compare(a.Name, b.Name)
}
