package charts_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/shipped"
)

// floors are the names of the ValidatingAdmissionPolicies, with the policies whose parameters they read.
var floors = map[string]string{
	"sallyport-deletion-protected":       "deletion-protected",
	"sallyport-deletion-protected-label": "deletion-protected",
	"sallyport-scaling-guard":            "scaling-guard",
}

// always are the names of those that are there without the floor.
var always = []string{"sallyport-override-authors", "sallyport-subresources", "sallyport-disabled"}

func namesOf(all []*unstructured.Unstructured, kind string) (names []string) {
	for _, o := range all {
		if o.GetKind() == kind {
			names = append(names, o.GetName())
		}
	}
	slices.Sort(names)
	return names
}

func TestFloorIsWantedAndFollowsWhatIsShipped(t *testing.T) {
	for values, want := range map[string][]string{
		"":                       nil,
		"floor: {enabled: true}": {"sallyport-deletion-protected", "sallyport-deletion-protected-label", "sallyport-scaling-guard"},
		"{floor: {enabled: true}, policies: {scaling-guard: {enabled: false}}}":      {"sallyport-deletion-protected", "sallyport-deletion-protected-label"},
		"{floor: {enabled: true}, policies: {deletion-protected: {enabled: false}}}": {"sallyport-scaling-guard"},
	} {
		all := render(t, values)
		for _, kind := range []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"} {
			got := slices.DeleteFunc(namesOf(all, kind), func(name string) bool { return slices.Contains(always, name) })
			if !slices.Equal(got, want) {
				t.Errorf("%q: each %s: %v, want %v", values, kind, got, want)
			}
		}
	}
}

// What the floor is about is what the policy matches, but for scales, which say nothing of their objects.
func TestFloorMatchesAsThePolicyDoes(t *testing.T) {
	shipped := shipped.Policies(t)
	all := render(t, "floor: {enabled: true}")
	asked := map[string]map[string]bool{}
	for name, policy := range floors {
		floor := rendered[admissionregistrationv1.ValidatingAdmissionPolicy](t, all, "ValidatingAdmissionPolicy", name)
		binding := rendered[admissionregistrationv1.ValidatingAdmissionPolicyBinding](t, all, "ValidatingAdmissionPolicyBinding", name)
		if binding.Spec.PolicyName != name || binding.Spec.ParamRef.Name != policy ||
			*binding.Spec.ParamRef.ParameterNotFoundAction != admissionregistrationv1.AllowAction {
			t.Errorf("%s is bound by %+v", name, binding.Spec)
		}
		i := slices.IndexFunc(shipped, func(p v1alpha1.RegoPolicy) bool { return p.Name == policy })
		match := shipped[i].Spec.Match
		if diff := cmp.Diff(match.ObjectSelector, floor.Spec.MatchConstraints.ObjectSelector); diff != "" {
			t.Errorf("%s selects objects otherwise than the policy:\n%s", name, diff)
		}
		if asked[policy] == nil {
			asked[policy] = map[string]bool{}
		}
		for _, r := range floor.Spec.MatchConstraints.ResourceRules {
			for _, o := range r.Operations {
				for _, resource := range r.Resources {
					asked[policy][strings.Join(r.APIGroups, ",")+" "+resource+" "+string(o)] = true
				}
			}
		}
	}
	want := map[string]map[string]bool{
		"deletion-protected": {"* */* CREATE": true, "* */* UPDATE": true, "* */* DELETE": true},
		"scaling-guard":      {"apps deployments UPDATE": true, "apps statefulsets UPDATE": true, "sallyport.dev virtualmachinepools UPDATE": true},
	}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("what the floor is about (-want +got):\n%s", diff)
	}
}

// Where Sallyport runs, nothing of its own is in its way.
func TestFloorLeavesTheNamespaceOfTheReleaseAlone(t *testing.T) {
	all := render(t, "floor: {enabled: true}")
	for name := range floors {
		floor := rendered[admissionregistrationv1.ValidatingAdmissionPolicy](t, all, "ValidatingAdmissionPolicy", name)
		if got := floor.Spec.MatchConstraints.NamespaceSelector.MatchExpressions[0].Values; !slices.Equal(got, []string{"kube-system", namespace}) {
			t.Errorf("%s leaves out %v", name, got)
		}
	}
}
