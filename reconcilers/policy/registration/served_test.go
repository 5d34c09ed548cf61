package registration

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/env"
)

// What a policy names and there is no is told, hinders nothing, and is looked for again.
func TestWhatIsNotServed(t *testing.T) {
	f := newFixture(t)
	api, err := discovery.NewDiscoveryClientForConfig(env.Shared(t).Config)
	f.Must(err)
	f.Served = func() (*Served, error) { return Discover(api) }
	f.decide("one",
		policy("guard", on("U", "deployments.apps", "deployments.apps/scale", "configmaps/scale", "widgets.example.com")), policy("plain", on("U", "pods")))
	if again := f.reconcile(); again != servedPeriod {
		t.Errorf("looks again after %v", again)
	}
	f.finds("guard", v1alpha1.ReasonResourceNotServed,
		"spec.match.resources[2].resources[0]: there is no configmaps/scale. spec.match.resources[3].resources[0]: there is no widgets.example.com. The policy is registered for it",
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
	match := on("U", "pods", "nodes.metrics.k8s.io", "secrets")
	if got := strings.Join(s.Lacking(&match), "; "); got != "spec.match.resources[2].resources[0]: there is no secrets" {
		t.Errorf("lacking is %q", got)
	}
}

// Whoever misses a resource by a little is told which one it is.
func TestNearMisses(t *testing.T) {
	api, err := discovery.NewDiscoveryClientForConfig(env.Shared(t).Config)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Discover(api)
	if err != nil {
		t.Fatal(err)
	}
	for written, want := range map[string]string{
		"C deployments.apps":               "",
		"C deployment.apps":                "there is no deployment.apps; did you mean deployments.apps?",
		"C Deployment.apps":                "there is no Deployment.apps; did you mean deployments.apps?",
		"C deploy.apps":                    "there is no deploy.apps; did you mean deployments.apps?",
		"C deploymnets.apps":               "there is no deploymnets.apps; did you mean deployments.apps?",
		"C deployments":                    "there is no deployments; did you mean deployments.apps?",
		"C deployments.app":                "there is no deployments.app; did you mean deployments.apps?",
		"C po":                             "there is no po; did you mean pods?",
		"U deployments/scales.apps":        "there is no deployments.apps/scales; did you mean deployments.apps/scale?",
		"U deployment/scale.apps":          "there is no deployment.apps/scale; did you mean deployments.apps/scale?",
		"C virtualmachines.kubevirt.io":    "there is no virtualmachines.kubevirt.io",
		"C widgets.example.com":            "there is no widgets.example.com",
		"C pods/eviction":                  "",
		"X pods/exec":                      "",
		"X nodes/proxy":                    "",
		"CU pods/exec":                     "", // it is refused
		"X pods/eviction":                  "",
		"X pod/exec":                       "there is no pod/exec; did you mean pods/exec?",
		"X pods/port-forward":              "there is no pods/port-forward; did you mean pods/portforward?",
		"UD pods/eviction":                 "operation UPDATE or DELETE is not supported by pods/eviction; supported: CREATE",
		"C deployments/scale.apps":         "operation CREATE is not supported by deployments.apps/scale; supported: UPDATE",
		"CU deployments/scale.apps":        "",
		"C virtualmachine.sallyport.dev":   "there is no virtualmachine.sallyport.dev; did you mean virtualmachines.sallyport.dev?",
		"C persistentvolumeclaim":          "there is no persistentvolumeclaim; did you mean persistentvolumeclaims?",
		"C virtualmachines.sallyport.deve": "there is no virtualmachines.sallyport.deve; did you mean virtualmachines.sallyport.dev?",
	} {
		operations, resource, _ := strings.Cut(written, " ")
		r := someOf(operations, resource)
		if strings.Contains(resource, "/") { // the group is written after the subresource here
			part, group, _ := strings.Cut(resource[strings.Index(resource, "/")+1:], ".")
			name, _, _ := strings.Cut(resource, "/")
			r.APIGroups, r.Resources = []string{group}, []string{name + "/" + part}
		}
		r.APIVersions = []string{"*"}
		if want != "" {
			want = "spec.match.resources[0].resources[0]: " + want
		}
		if got := strings.Join(s.Lacking(&v1alpha1.PolicyMatch{Resources: []v1alpha1.PolicyResources{r}}), "; "); got != want {
			t.Errorf("%s: %q, want %q", written, got, want)
		}
	}
	old := on("C", "deployments.apps")
	old.Resources[0].APIVersions = []string{"v1beta1", "v9"}
	if got := strings.Join(s.Lacking(&old), "; "); got != "spec.match.resources[0].resources[0]: version v1beta1, v9 of deployments.apps is not served; served: v1" {
		t.Error(got)
	}
}
