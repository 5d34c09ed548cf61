// Package policies embeds the policies that Sallyport ships, and loads policies from directories.
//
// A policy is a directory with a policy.yaml, which is a RegoPolicy without its modules, and the Rego files of the policy. The
// directory corresponds to the package: operations/supersede contains package sallyport.operations.supersede, and the
// RegoPolicy has the name operations-supersede.
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
	"sync"

	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// ManifestFile is the name of the file in the directory of a policy that contains everything except its Rego.
const ManifestFile = "policy.yaml"

// OptIn is the annotation of a policy that the chart ships only if policies.NAME.enabled is true, because it matches or reads kinds that a
// cluster need not have.
const OptIn = "sallyport.dev/opt-in"

//go:embed */policy.yaml */*.rego */*/policy.yaml */*/*.rego
var shipped embed.FS

var loadShipped = sync.OnceValues(func() ([]v1alpha1.RegoPolicy, error) {
	loaded, _, err := load(shipped, "", checkShipped)
	return loaded, err
})

// Shipped returns the policies of this release, sorted by name, libraries first. The caller may change them.
func Shipped() ([]v1alpha1.RegoPolicy, error) {
	loaded, err := loadShipped()
	copies := make([]v1alpha1.RegoPolicy, len(loaded))
	for i := range loaded {
		loaded[i].DeepCopyInto(&copies[i])
	}
	return copies, err
}

// LoadFolder returns the policies in a folder on disk, sorted by name, libraries first, and the path of each policy.yaml by the name
// of the policy. Paths begin with the folder. The package of a policy must end with the path of its directory; the beginning of the
// package and the name of the policy are free. The error joins the errors of all files.
func LoadFolder(folder string) ([]v1alpha1.RegoPolicy, map[string]string, error) {
	return load(os.DirFS(folder), folder, checkPackage)
}

// rule checks that a policy matches its directory.
type rule func(dir string, policy *v1alpha1.RegoPolicy) error

// load also returns the paths of the manifests, with the prefix root.
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
			err = fmt.Errorf("metadata.name %s is already used in %s", policy.Name, files[policy.Name])
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

// scan returns the names of the Rego files by directory, for every directory with a policy. It skips hidden directories, in which
// linters keep their own Rego.
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
			errs = append(errs, fmt.Errorf("%s: no %s in the same directory", path.Join(root, dir, name), ManifestFile))
		}
	}
	return dirs, errors.Join(errs...)
}

// assemble reads the policy of a directory and adds its Rego files.
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
		return nil, errors.New("spec.modules and spec.tests must not be set: they are read from the .rego files in the same directory")
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
		return nil, errors.New("no Rego module in the same directory; files whose names end in _test.rego are tests")
	}
	return policy, nil
}

// checkPackage checks that the package of a policy ends with the path of its directory.
func checkPackage(dir string, policy *v1alpha1.RegoPolicy) error {
	if end := dotted(dir); dir != "." && !strings.HasSuffix("."+policy.Spec.Package, "."+end) {
		return fmt.Errorf("spec.package is %s, but must end in %s like the directory", policy.Spec.Package, end)
	}
	return nil
}

// checkShipped checks that the name and the package of a shipped policy match its directory. A package has no dashes.
func checkShipped(dir string, policy *v1alpha1.RegoPolicy) error {
	if pkg := "sallyport." + dotted(dir); policy.Spec.Package != pkg {
		return fmt.Errorf("spec.package is %s, but must be %s", policy.Spec.Package, pkg)
	}
	name := strings.ReplaceAll(dir, "/", "-")
	if joined := strings.ReplaceAll(policy.Name, "-", ""); joined != strings.ReplaceAll(name, "-", "") {
		return fmt.Errorf("metadata.name is %s, but must be %s", policy.Name, name)
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
