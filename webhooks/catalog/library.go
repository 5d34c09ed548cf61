package catalog

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/engine"
)

// libraryRoot is the root package of all libraries.
const libraryRoot = "sallyport.lib"

// library is a RegoPolicy with library modules, and their outlines.
type library struct {
	object   *v1alpha1.RegoPolicy
	outlines []*engine.Outline // nil if the module does not parse
	unusable error             // why no policy can import it
}

// libraries is the libraries of a build, by name.
type libraries []*library

// collectLibraries collects the libraries. One that defines a name of an older one is left out.
func (c *Catalog) collectLibraries(objects []v1alpha1.RegoPolicy) libraries {
	var all libraries
	for i := range objects {
		if objects[i].Spec.Library {
			all = append(all, &library{object: &objects[i], outlines: c.outlinesOf(&objects[i])})
		}
	}
	byAge := slices.SortedStableFunc(slices.Values(all), func(a, b *library) int { // by name if their ages are equal
		return a.object.CreationTimestamp.Compare(b.object.CreationTimestamp.Time)
	})
	for i, l := range byAge {
		l.unusable = l.misplaced()
		for _, older := range byAge[:i] {
			if l.unusable == nil && older.unusable == nil {
				l.unusable = l.conflict(older)
			}
		}
	}
	return all
}

// misplaced returns an error if the library has modules outside its own package, which could become part of others.
func (l *library) misplaced() error {
	for i, o := range l.outlines {
		if o != nil && !o.Below(l.object.Spec.Package) {
			return fmt.Errorf("library %s: %s is not in or below spec.package %s",
				l.object.Name, l.object.Spec.Modules[i].Name, l.object.Spec.Package)
		}
	}
	return nil
}

// conflictError is the error of the younger of two libraries that define the same name.
type conflictError struct{ library, name, older string }

func (e *conflictError) Error() string {
	return fmt.Sprintf("library %s: %s is also in library %s, which is older and takes precedence: rename one of them, or delete one of the libraries",
		e.library, e.name, e.older)
}

func (l *library) conflict(older *library) error {
	for _, mine := range l.outlines {
		for _, theirs := range older.outlines {
			if mine == nil || theirs == nil {
				continue
			}
			if name := mine.Clash(theirs); name != "" {
				return &conflictError{library: l.object.Name, name: name, older: older.object.Name}
			}
		}
	}
	return nil
}

// imports is what a RegoPolicy imports.
type imports struct {
	libraries []v1alpha1.RegoPolicy // by name, with the modules that are reached
	missing   []string              // references to libraries that do not exist
}

// imports returns what an object's modules reach, directly or through other libraries. If a reference is unresolved, modules that
// do not parse are included, because it may be in them: the compiler then reports their syntax errors.
func (s libraries) imports(object *v1alpha1.RegoPolicy, outlines []*engine.Outline) imports {
	own := slices.DeleteFunc(slices.Clone(outlines), func(o *engine.Outline) bool { return o == nil })
	reached := map[*engine.Outline]bool{}
	for queue := slices.Clone(own); len(queue) > 0; queue = queue[1:] {
		for _, l := range s.others(object) {
			for _, o := range l.outlines {
				if o != nil && !reached[o] && queue[0].Reaches(o) {
					reached[o] = true
					queue = append(queue, o)
				}
			}
		}
	}
	present := slices.Clone(own)
	for o := range reached {
		present = append(present, o)
	}
	lacking := func(pkg string) (all []string) {
		for _, o := range present {
			all = append(all, o.Unresolved(pkg, present)...)
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	var b imports
	if len(own) == len(outlines) {
		b.missing = lacking(libraryRoot)
	}
	for _, l := range s.others(object) {
		wanted := len(lacking(l.object.Spec.Package)) > 0
		var modules []v1alpha1.PolicyModule
		for i, o := range l.outlines {
			if o == nil && wanted || o != nil && reached[o] {
				modules = append(modules, l.object.Spec.Modules[i])
				if o == nil {
					b.missing = nil
				}
			}
		}
		if len(modules) > 0 {
			trimmed := bare(l.object)
			trimmed.Spec.Modules = modules
			b.libraries = append(b.libraries, trimmed)
		}
	}
	return b
}

// others returns the libraries that the object may import.
func (s libraries) others(object *v1alpha1.RegoPolicy) libraries {
	return slices.DeleteFunc(slices.Clone(s), func(l *library) bool {
		return l.unusable != nil || l.object.Name == object.Name
	})
}

// outlinesOf returns the outlines of an object's modules, nil for one that does not parse.
func (c *Catalog) outlinesOf(object *v1alpha1.RegoPolicy) []*engine.Outline {
	outlines := make([]*engine.Outline, len(object.Spec.Modules))
	for i, m := range modulesOf(object) {
		outline, known := c.outlines.get(m)
		if !known {
			outline = sketch(m)
			c.outlines.put(m, outline)
		}
		outlines[i] = outline
	}
	return outlines
}

// sketch returns nil if the module does not parse or the parser panics: the compiler reports why.
func sketch(m engine.Module) (outline *engine.Outline) {
	defer func() {
		if recover() != nil {
			outline = nil
		}
	}()
	outline, err := engine.ParseOutline(m)
	if err != nil {
		return nil
	}
	return outline
}

func byObjectName(a, b v1alpha1.RegoPolicy) int { return strings.Compare(a.Name, b.Name) }

// Compose converts RegoPolicies as Build compiles them: each with the libraries that it reaches and may import, and its tests; by
// name.
func Compose(objects []v1alpha1.RegoPolicy) map[string]Source { return new(Composer).Compose(objects) }

// Composer composes RegoPolicies many times, and does not parse again what it composed in the last call. It is safe for concurrent use.
type Composer struct {
	mu      sync.Mutex
	catalog Catalog
}

// Compose is [Compose].
func (c *Composer) Compose(objects []v1alpha1.RegoPolicy) map[string]Source {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.catalog.outlines.turn()
	libraries := c.catalog.collectLibraries(objects)
	sources := make(map[string]Source, len(objects))
	for i := range objects {
		b := libraries.imports(&objects[i], c.catalog.outlinesOf(&objects[i]))
		var modules []engine.Module
		for j := range b.libraries {
			modules = append(modules, modulesOf(&b.libraries[j])...)
		}
		sources[objects[i].Name] = sourceOf(&objects[i], modules)
	}
	return sources
}

// Imports reports whether a composed source has a module of a library.
func (s *Source) Imports(library string) bool {
	for _, m := range s.Libraries {
		if strings.HasPrefix(m.Name, library+"/") { // the prefix that modulesOf adds
			return true
		}
	}
	return false
}
