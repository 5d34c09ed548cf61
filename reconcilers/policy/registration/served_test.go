package registration

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/env"
)

// What a policy names and the cluster does not have is told, hinders nothing, and is looked for again.
func TestWhatIsNotServed(t *testing.T) {
	f := newFixture(t)
	api, err := discovery.NewDiscoveryClientForConfig(env.Shared(t).Config)
	f.must(err)
	f.Served = func() (*Served, error) { return Discover(api) }
	f.decide("one",
		policy("guard", on("U", "deployments.apps", "deployments.apps/scale", "configmaps/scale", "widgets.example.com")), policy("plain", on("U", "pods")))
	if again := f.reconcile(); again != hopeful {
		t.Errorf("looks again after %v", again)
	}
	f.finds("guard", v1alpha1.ReasonResourceNotServed,
		"spec.match.resources[2].resources[0], configmaps/scale; spec.match.resources[3].resources[0], widgets.example.com: the cluster does not have this",
		"UPDATE of deployments.apps/scale")
	f.finds("plain", v1alpha1.ReasonRegistered)
}

// half is an API server of which one group does not answer.
type half struct {
	discovery.ServerResourcesInterface
}

func (half) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	return nil, []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "pods"}}}},
		&discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{{Group: "metrics.k8s.io", Version: "v1"}: errors.New("away")}}
}

func TestGroupsThatDoNotAnswer(t *testing.T) {
	s, err := Discover(half{})
	if err != nil {
		t.Fatal(err)
	}
	p := policy("p", on("U", "pods", "nodes.metrics.k8s.io", "secrets"))
	if got := strings.Join(s.lacking(&p), "; "); got != "spec.match.resources[2].resources[0], secrets" {
		t.Errorf("lacking is %q", got)
	}
}
