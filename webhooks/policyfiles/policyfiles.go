// Package policyfiles reads the policies that a command works with: from folders of Rego, from files of RegoPolicies, or those shipped.
package policyfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/grants"
	"sallyport.dev/sallyport/webhooks/offline"
)

// Release is the content of a Sallyport release, for commands.
type Release struct {
	// Shipped returns its policies.
	Shipped func() ([]v1alpha1.RegoPolicy, error)
	// OptIn is the annotation of those that the chart only ships on demand: a review has them only if it names them.
	OptIn string
	// Folder returns the policies in a folder, libraries first, and the path of the manifest of each, by its name.
	Folder func(folder string) (policies []v1alpha1.RegoPolicy, manifests map[string]string, err error)
	// Manifest is the name of a policy's manifest in such a folder.
	Manifest string
	// Kinds returns its kinds.
	Kinds func() (*offline.Kinds, error)
	// Check returns what in a policy's spec.match keeps the API server from calling it, Unserved what no cluster serves, and
	// Remarks what has no effect: a line each.
	Check, Unserved, Remarks func(*v1alpha1.RegoPolicy) []string

	// sets caches compiled policies: collections that are compared differ in few of them.
	sets catalog.Sets
}

// Collection is a list of policies with the places that they were read from.
type Collection struct {
	// Objects are the policies in the order in which they were read; in a folder, libraries come first.
	Objects []v1alpha1.RegoPolicy
	// Deliberation is the time in milliseconds that each policy of [Collection.Set] has for a decision; 0 means the policy's own.
	// Outside a cluster a slow machine must not change a result.
	Deliberation int32
	// Patchable is what policies may patch in the target cluster.
	Patchable grants.Kinds

	release *Release
	origins map[string]origin // by policy name; shipped policies have none
	shipped []v1alpha1.RegoPolicy
}

// origin is where a policy was read from.
type origin struct {
	file   string // the RegoPolicy's
	line   int    // at which its document begins; 0 for a manifest beside its Rego
	folder string // of the Rego; "" if the RegoPolicy contains it
}

// place returns the file, and the line if it is known.
func (o origin) place() string {
	if o.line == 0 {
		return o.file
	}
	return fmt.Sprintf("%s:%d", o.file, o.line)
}

// Read returns the policies of paths, or the shipped ones without paths. A path is a folder of policies, each a policy.yaml with
// its Rego beside it; a file or folder of RegoPolicies that contain their Rego; or - for standard input. The error joins all
// errors.
func (r *Release) Read(files *offline.Files, paths ...string) (*Collection, error) {
	shipped, err := r.Shipped()
	if err != nil {
		return nil, err
	}
	c := &Collection{release: r, origins: map[string]origin{}, shipped: shipped}
	if len(paths) == 0 {
		c.Objects = slices.DeleteFunc(slices.Clone(shipped), func(p v1alpha1.RegoPolicy) bool { return p.Annotations[r.OptIn] == "true" })
	}
	var errs []error
	for _, path := range paths {
		errs = append(errs, c.read(files, path))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("reading policies:\n%w", err)
	}
	return c, nil
}

func (c *Collection) read(files *offline.Files, path string) error {
	info, err := os.Stat(path)
	isFolder := err == nil && info.IsDir()
	switch {
	case err != nil && path != offline.Stdin:
		return err
	case filepath.Ext(path) == ".rego":
		return fmt.Errorf("%s: a policy is read together with its %s; name the folder %s", path, c.release.Manifest, filepath.Dir(path))
	case !isFolder:
		return c.readObjects(files, path)
	}
	written, err := c.holdsRego(path)
	if err != nil {
		return err
	}
	if !written {
		return c.readObjects(files, path)
	}
	objects, manifests, err := c.release.Folder(path)
	if err != nil {
		if lines := c.misshapen(path); len(lines) > 0 { // with lines of the file
			return errors.New(strings.Join(lines, "\n"))
		}
	}
	for i := range objects {
		file := manifests[objects[i].Name]
		err = errors.Join(err, c.add(&objects[i], origin{file: file, folder: filepath.Dir(file)}))
	}
	return err
}

// misshapen returns the fields of the manifests in a folder that are unknown or have the wrong type.
func (c *Collection) misshapen(folder string) (lines []string) {
	_ = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || entry.Name() != c.release.Manifest {
			return nil
		}
		documents, _ := new(offline.Files).Read(path) // syntax errors are reported already
		for i := range documents {
			lines = append(lines, c.misshapenIn(&documents[i])...)
		}
		return nil
	})
	return lines
}

// misshapenIn is misshapen for one document.
func (c *Collection) misshapenIn(d *offline.Document) []string {
	known, err := c.release.Kinds()
	if err != nil {
		return nil
	}
	return known.Misshapen(d)
}

// holdsRego reports whether a folder has policies as Rego files rather than RegoPolicies.
func (c *Collection) holdsRego(folder string) (found bool, err error) {
	err = filepath.WalkDir(folder, func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && (entry.Name() == c.release.Manifest || filepath.Ext(entry.Name()) == ".rego") {
			found = true
			return fs.SkipAll
		}
		return err
	})
	return found, err
}

func (c *Collection) readObjects(files *offline.Files, path string) error {
	documents, err := files.Read(path)
	if err != nil {
		return err
	}
	if len(documents) == 0 {
		return fmt.Errorf("%s: no RegoPolicy found", offline.FileOf(path))
	}
	var errs []error
	for _, d := range documents {
		object, err := c.decode(&d)
		if err == nil {
			err = c.add(object, origin{file: d.File, line: d.Line})
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (c *Collection) decode(d *offline.Document) (*v1alpha1.RegoPolicy, error) {
	if d.Object["apiVersion"] != v1alpha1.GroupVersion.String() || d.Object["kind"] != "RegoPolicy" {
		return nil, fmt.Errorf("%s: %v of %v is not a RegoPolicy of %s", d.Place(), d.Object["kind"], d.Object["apiVersion"], v1alpha1.GroupVersion)
	}
	object := &v1alpha1.RegoPolicy{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(d.Object, object, true); err != nil {
		if lines := c.misshapenIn(d); len(lines) > 0 {
			return nil, errors.New(strings.Join(lines, "\n"))
		}
		return nil, fmt.Errorf("%s: %w", d.Place(), err)
	}
	switch {
	case object.Name == "":
		return nil, fmt.Errorf("%s: metadata.name is missing", d.Place())
	case len(object.Spec.Modules) == 0 && filepath.Base(d.File) == c.release.Manifest:
		return nil, fmt.Errorf("%s: spec.modules is missing; if the Rego is beside it, name the folder %s", d.Place(), filepath.Dir(d.File))
	}
	return object, nil
}

func (c *Collection) add(object *v1alpha1.RegoPolicy, from origin) error {
	if _, twice := c.origins[object.Name]; twice {
		return fmt.Errorf("%s: RegoPolicy %s is also in %s", from.place(), object.Name, c.origins[object.Name].place())
	}
	c.origins[object.Name] = from
	c.Objects = append(c.Objects, *object)
	return nil
}

// Put adds policies, and replaces those of the same names.
func (c *Collection) Put(others *Collection) {
	for _, o := range others.Objects {
		at := slices.IndexFunc(c.Objects, func(mine v1alpha1.RegoPolicy) bool { return mine.Name == o.Name })
		if at < 0 {
			c.Objects = append(c.Objects, o)
		} else {
			c.Objects[at] = o
		}
		delete(c.origins, o.Name)
		if from, known := others.origins[o.Name]; known {
			c.origins[o.Name] = from
		}
	}
}

// HasShipped reports whether a policy has the name of a shipped one. Libraries do not count.
func (c *Collection) HasShipped() bool {
	return slices.ContainsFunc(c.Objects, func(mine v1alpha1.RegoPolicy) bool {
		return slices.ContainsFunc(c.shipped, func(theirs v1alpha1.RegoPolicy) bool {
			return mine.Name == theirs.Name && !theirs.Spec.Library
		})
	})
}

// withLibraries returns the policies and the shipped libraries, which policies may import as in a cluster. A library that the collection
// has itself, by name or by package, is left out.
func (c *Collection) withLibraries() []v1alpha1.RegoPolicy {
	all := slices.Clone(c.Objects)
	for _, library := range c.shipped {
		own := slices.ContainsFunc(c.Objects, func(o v1alpha1.RegoPolicy) bool {
			return o.Name == library.Name || o.Spec.Package == library.Spec.Package
		})
		if library.Spec.Library && !own {
			all = append(all, library)
		}
	}
	return all
}

// Place returns where a policy was read from, as a path that can be opened; for a shipped policy its name.
func (c *Collection) Place(policy string) string {
	if from, known := c.origins[policy]; known {
		return from.place()
	}
	return policy
}

// Module returns the path of a module of a policy; "" if it has no file of its own.
func (c *Collection) Module(policy, module string) string {
	from := c.origins[policy]
	if from.folder == "" {
		return ""
	}
	return filepath.Join(from.folder, module)
}

// Sources converts the policies as [catalog.Sources] does. Modules are named by their paths, for messages; if a RegoPolicy contains
// its Rego, the RegoPolicy's path comes first.
func (c *Collection) Sources() []catalog.Source {
	sources := catalog.Sources(c.withLibraries())[:len(c.Objects)]
	for i := range sources {
		for _, modules := range [][]engine.Module{sources[i].Modules, sources[i].Libraries, sources[i].Tests} {
			for j := range modules {
				modules[j].Name = c.path(modules[j].Name)
			}
		}
	}
	return sources
}

// path returns the path of a module that is named <policy>/<file>.
func (c *Collection) path(module string) string {
	policy, file, _ := strings.Cut(module, "/")
	from, known := c.origins[policy]
	switch {
	case !known:
		return module
	case from.folder == "":
		return from.place() + ": " + module
	}
	return filepath.Join(from.folder, file)
}
