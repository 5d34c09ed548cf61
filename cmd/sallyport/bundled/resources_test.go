package bundled

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestKindOf(t *testing.T) {
	for resource, want := range map[string]string{
		"deployments.apps":                     "v1 Deployment true",
		"horizontalpodautoscalers.autoscaling": "v1 HorizontalPodAutoscaler true",
		"namespaces":                           "v1 Namespace false",
		"virtualmachines.sallyport.dev":        "v1alpha1 VirtualMachine true",
		"regopolicies.sallyport.dev":           "v1alpha1 RegoPolicy false",
		"wolves.example.com":                   "v1 Wolve true",
		"deployments":                          "no such resource; did you mean deployments.apps?",
		"pod":                                  "no such resource; did you mean pods?",
		"nothing.apps":                         "no such resource",
		"machines.sallyport.dev":               "no such resource",
	} {
		kind, err := KindOf(schema.ParseGroupResource(resource))
		got := fmt.Sprintf("%s %s %v", kind.Version, kind.Kind, kind.Namespaced)
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", resource, got, want)
		}
	}
}
