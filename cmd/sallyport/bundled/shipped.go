package bundled

import (
	"sync"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/policies"
	"sallyport.dev/sallyport/reconcilers/policy/shipping"
	"sallyport.dev/sallyport/webhooks/catalog"
)

// Shipped returns the shipped policies as the leader applies them with the default values: with Rego that kubectl edit can show.
func Shipped() ([]v1alpha1.RegoPolicy, error) {
	shipped, err := policies.Shipped()
	for i := range shipped {
		spec := &shipped[i].Spec
		for j := range spec.Modules {
			spec.Modules[j].Source = catalog.Spaced(spec.Modules[j].Source)
		}
		for j := range spec.Tests {
			spec.Tests[j].Source = catalog.Spaced(spec.Tests[j].Source)
		}
	}
	return shipped, err
}

// Sources returns the Rego files of the shipped policies, to which the ConfigMap of the chart refers.
var Sources = sync.OnceValues(func() (shipping.Sources, error) {
	shipped, err := Shipped()
	return shipping.NewSources(shipped), err
})
