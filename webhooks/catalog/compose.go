package catalog

import (
	"strings"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/engine"
)

// Compose converts RegoPolicies as Build compiles them: each with the libraries that it reaches and may import, and its tests; by
// name.
func Compose(objects []v1alpha1.RegoPolicy) map[string]Source {
	c := &Catalog{}
	libraries := c.collectLibraries(objects)
	sources := make(map[string]Source, len(objects))
	for i := range objects {
		b := libraries.imports(&objects[i], c.outlinesOf(&objects[i]))
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
