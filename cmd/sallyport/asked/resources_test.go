package asked

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
		"deployments":                          "there is no such resource; is it deployments.apps?",
		"pod":                                  "there is no such resource; is it pods?",
		"nothing.apps":                         "there is no such resource",
		"machines.sallyport.dev":               "there is no such resource",
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
