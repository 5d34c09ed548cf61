package catalog

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// API servers get the spec.match that decides, without selectors that select everything here: empty or invalid ones.
func TestMatchForAPIServers(t *testing.T) {
	resources := []v1alpha1.PolicyResources{{
		APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments"}, Operations: []v1alpha1.MatchOperation{"CREATE"},
	}}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"stage": "test"}}
	invalid := &metav1.LabelSelector{MatchLabels: map[string]string{"stage": "test", "not valid!": "x"}}
	for _, tc := range []struct {
		spec *v1alpha1.PolicyMatch
		want v1alpha1.PolicyMatch
	}{
		{&v1alpha1.PolicyMatch{Resources: resources, ExcludeUsers: []string{"bob"}, NamespaceSelector: selector, ObjectSelector: invalid},
			v1alpha1.PolicyMatch{Resources: resources, ExcludeUsers: []string{"bob"}, NamespaceSelector: selector}},
		{&v1alpha1.PolicyMatch{Resources: resources, NamespaceSelector: invalid, ObjectSelector: &metav1.LabelSelector{}}, v1alpha1.PolicyMatch{Resources: resources}},
		{},
	} {
		p := &Policy{}
		p.match, _ = newMatcher(tc.spec)
		if diff := cmp.Diff(tc.want, p.Match()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
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
		spec v1alpha1.RegoPolicySpec
		want bool
	}{
		"by default":                     {want: true},
		"onError Allow":                  {spec: v1alpha1.RegoPolicySpec{OnError: v1alpha1.OnErrorAllow}},
		"mode Warn":                      {spec: v1alpha1.RegoPolicySpec{Mode: v1alpha1.ModeWarn}},
		"mode Audit, strict somewhere":   {spec: v1alpha1.RegoPolicySpec{Mode: v1alpha1.ModeAudit, NamespaceModes: modes("Warn", "Enforce")}, want: true},
		"mode Enforce, lenient anywhere": {spec: v1alpha1.RegoPolicySpec{NamespaceModes: modes("Audit")}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := &Policy{}
			if err := p.enforce(&test.spec); err != nil {
				t.Fatal(err)
			}
			if got := p.DeniesUnasked(); got != test.want {
				t.Errorf("got %t", got)
			}
		})
	}
}
