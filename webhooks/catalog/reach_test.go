package catalog

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// What API servers select requests by is what this process selects them by, in their terms.
func TestMatchesForAPIServers(t *testing.T) {
	resources := []v1alpha1.PolicyResources{{
		APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments"}, Operations: []v1alpha1.MatchOperation{"CREATE"},
	}}
	p := &Policy{}
	for _, spec := range []*v1alpha1.PolicyMatch{
		{Resources: resources, ExcludeUsers: []string{"bob"}, NamespaceSelector: &metav1.LabelSelector{
			MatchLabels: map[string]string{"stage": "test", "not valid!": "x"},
			MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "team", Operator: "Exists"}, {Key: "old", Operator: "DoesNotExist"}, {Key: "zone", Operator: "In", Values: []string{"b", "a"}},
				{Key: "color", Operator: "NotIn", Values: []string{"red"}}, {Key: "odd", Operator: "Gt", Values: []string{"1"}},
			},
		}},
		{Resources: resources},
		nil,
	} {
		m, _ := newMatcher(spec)
		p.match = append(p.match, m)
	}
	want := []v1alpha1.PolicyMatch{
		{Resources: resources, ExcludeUsers: []string{"bob"}, NamespaceSelector: &metav1.LabelSelector{
			MatchLabels: map[string]string{"stage": "test"},
			MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "team", Operator: "Exists"}, {Key: "old", Operator: "DoesNotExist"}, {Key: "zone", Operator: "In", Values: []string{"b", "a"}},
				{Key: "color", Operator: "NotIn", Values: []string{"red"}},
			},
		}},
		{Resources: resources},
	}
	if diff := cmp.Diff(want, p.Matches()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A request that nobody could ask the policy about is refused if there is any that the policy would refuse.
func TestRefusesUnasked(t *testing.T) {
	modes := func(all ...v1alpha1.PolicyMode) (namespaces []v1alpha1.NamespaceMode) {
		for _, m := range all {
			namespaces = append(namespaces, v1alpha1.NamespaceMode{Mode: m})
		}
		return namespaces
	}
	for name, test := range map[string]struct {
		spec, instead v1alpha1.RegoPolicySpec
		want          bool
	}{
		"by default":                     {want: true},
		"onError Allow":                  {spec: v1alpha1.RegoPolicySpec{OnError: v1alpha1.OnErrorAllow}},
		"mode Warn":                      {spec: v1alpha1.RegoPolicySpec{Mode: v1alpha1.ModeWarn}},
		"mode Audit, strict somewhere":   {spec: v1alpha1.RegoPolicySpec{Mode: v1alpha1.ModeAudit, NamespaceModes: modes("Warn", "Enforce")}, want: true},
		"mode Enforce, lenient anywhere": {spec: v1alpha1.RegoPolicySpec{NamespaceModes: modes("Audit")}, want: true},
		"lenient in a broken object":     {instead: v1alpha1.RegoPolicySpec{Mode: v1alpha1.ModeAudit}},
		"Allow in a broken object":       {instead: v1alpha1.RegoPolicySpec{OnError: v1alpha1.OnErrorAllow}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &Policy{}
			if err := p.enforce(&test.spec); err != nil {
				t.Fatal(err)
			}
			p.loosen(&test.instead)
			if got := p.RefusesUnasked(); got != test.want {
				t.Errorf("got %t", got)
			}
		})
	}
}
