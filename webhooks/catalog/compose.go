package catalog

import (
	"strings"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/engine"
)

// Compose puts RegoPolicies into the engine's terms, by name, as Build compiles them: each with those libraries that it reaches
// and may have, and its tests.
func Compose(objects []v1alpha1.RegoPolicy) map[string]Source {
	c := &Catalog{}
	libraries := c.shelve(objects)
	sources := make(map[string]Source, len(objects))
	for i := range objects {
		b := libraries.imports(&objects[i], c.sketches(&objects[i]))
		var modules []engine.Module
		for j := range b.libraries {
			modules = append(modules, modulesOf(&b.libraries[j])...)
		}
		sources[objects[i].Name] = sourceOf(&objects[i], modules)
	}
	return sources
}

// Imports tells whether a composed source has something of a library.
func (s *Source) Imports(library string) bool {
	for _, m := range s.Libraries {
		if strings.HasPrefix(m.Name, library+"/") { // as modulesOf names them
			return true
		}
	}
	return false
}
