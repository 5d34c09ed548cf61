package registration

import (
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/fairqueue"
)

// enforced is what the admissions enforcer of AKS adds.
var enforced = []metav1.LabelSelectorRequirement{
	{Key: "control-plane", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"true"}},
	{Key: "kubernetes.azure.com/managedby", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"aks"}},
}

// enforces does what the admissions enforcer of AKS does to both configurations, and reports whether it changed any.
func (f *fixture) enforces() (changed bool) {
	f.Helper()
	complete := func(s *metav1.LabelSelector) *metav1.LabelSelector {
		s = s.DeepCopy()
		for _, r := range enforced {
			if !slices.ContainsFunc(s.MatchExpressions, func(has metav1.LabelSelectorRequirement) bool { return equality.Semantic.DeepEqual(has, r) }) {
				s.MatchExpressions, changed = append(s.MatchExpressions, r), true
			}
		}
		return s
	}
	validating := f.validating("-policies")
	for i := range validating.Webhooks {
		validating.Webhooks[i].NamespaceSelector = complete(validating.Webhooks[i].NamespaceSelector)
	}
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: f.named("-policies")}
	f.Must(f.api.Get(f.Context(), client.ObjectKeyFromObject(mutating), mutating))
	for i := range mutating.Webhooks {
		mutating.Webhooks[i].NamespaceSelector = complete(mutating.Webhooks[i].NamespaceSelector)
	}
	for _, c := range []client.Object{validating, mutating} {
		f.Must(f.api.Update(f.Context(), c))
	}
	return changed
}

// together has both write in turn until neither does, and returns how often Sallyport wrote.
func (f *fixture) together() (writes int) {
	f.Helper()
	for range 10 {
		before := f.versions()
		wait := f.reconcile()
		wrote := f.versions() != before
		if wrote {
			writes++
		}
		if !f.enforces() && !wrote && wait == 0 {
			return writes
		}
		f.now = f.now.Add(maxPeriod)
	}
	f.Error("they write in turn for ever")
	return writes
}

// What AKS adds to the webhooks stays (kyverno#6539, kong-operator#239, keda#4813): a new policy is registered as fast as without, an edit
// is, and a new leader does not begin anew for ever.
func TestExpressionsThatAKSAdds(t *testing.T) {
	f := newFixture(t)
	f.decide("1", policy("a", on("CU", "pods"), mutates))
	if n := f.together(); n > 2 {
		t.Errorf("%d writes register a policy", n)
	}
	f.has("a Fail: CREATE, UPDATE of pods", "mutating a Fail: CREATE, UPDATE of pods")
	f.finds("a", v1alpha1.ReasonRegistered, "Another client excludes namespaces from its webhooks by: control-plane notin (true); kubernetes.azure.com/managedby notin (aks).")

	inProduction := on("CU", "pods")
	inProduction.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"stage": "production"}}
	f.decide("2", policy("a", inProduction, mutates))
	f.together()
	f.decide("3", policy("a", on("CUD", "pods"), mutates))
	f.together()
	f.has("a Fail: CREATE, UPDATE, DELETE of pods", "mutating a Fail: CREATE, UPDATE of pods")
	for _, r := range f.validating("-policies").Webhooks[0].NamespaceSelector.MatchExpressions {
		if r.Key == "stage" {
			t.Error("an expression that the policy had before is taken for the other client's")
		}
	}

	f.lead()
	if n := f.together(); n > 2 { // one to each configuration
		t.Errorf("%d writes by a new leader", n)
	}
	f.lead()
	f.decide("4")
	f.together()
	f.has()
}

// Two that undo each other's changes do not go on for ever, and the condition names the other one.
func TestTwoWritersInTurn(t *testing.T) {
	for what, edit := range map[string]func(*admissionregistrationv1.ValidatingWebhookConfiguration){
		"failurePolicy": func(c *admissionregistrationv1.ValidatingWebhookConfiguration) { c.Webhooks[0].FailurePolicy = &ignore },
		"the entry":     func(c *admissionregistrationv1.ValidatingWebhookConfiguration) { c.Webhooks = nil },
	} {
		t.Run(what, func(t *testing.T) {
			f := newFixture(t)
			f.decide("1", policy("a", on("C", "pods")))
			f.settles()
			undo := func() {
				c := f.validating("-policies")
				edit(c)
				f.Must(f.api.Update(t.Context(), c))
			}
			for range 3 {
				undo()
				f.reconcile()
				f.has("a Fail: CREATE of pods")
			}
			undo()
			before := f.versions()
			if wait := f.reconcile(); wait != fairqueue.ContentionPeriod || f.versions() != before {
				t.Errorf("after three times it is written again, or after %v", wait)
			}
			f.finds("a", v1alpha1.ReasonRegistrationFailed, "another client changes webhook a.policies.sallyport.dev each time Sallyport restores it; ",
				"kubectl get validatingwebhookconfiguration "+f.Configuration+" -o yaml --show-managed-fields")
			f.replicas["behind_1"] = "0" // which the registration waits for
			f.reconcile()
			delete(f.replicas, "behind_1")
			f.now = f.now.Add(fairqueue.ContentionPeriod)
			f.reconcile()
			f.has("a Fail: CREATE of pods")
			f.finds("a", v1alpha1.ReasonRegistered)
			if f, _ := f.Finding("a"); strings.Contains(f.Message, "Another client") {
				t.Errorf("said %q", f.Message)
			}
		})
	}
}
