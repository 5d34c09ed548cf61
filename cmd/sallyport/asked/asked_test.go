package asked

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/policies"
)

// What is shipped can be asked.
func TestShippedPoliciesCanBeRegistered(t *testing.T) {
	all, err := policies.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		for _, why := range Check(&all[i]) {
			t.Errorf("%s: %s", all[i].Name, why)
		}
	}
}

// Rules that nobody asks are told by the text of the policy, before anything of it is compiled.
func TestRulesAreHeldAgainstTheMatch(t *testing.T) {
	const (
		patches  = "patch contains {\"op\": \"remove\", \"path\": \"/x\"} if true\n"
		denies   = "deny contains {\"reason\": \"R\", \"message\": \"m\"} if true\n"
		outcomes = "outcome.supersedes contains \"x\" if true\n"
		deleted  = "spec.match.resources[0].operations: no rule of the policy is asked about DELETE: it has only patch rules"
		nobody   = "spec.match.resources: the policy has outcome rules, which are asked about CREATE of virtualmachineoperations.sallyport.dev and nothing else"
	)
	for name, tc := range map[string]struct{ rules, resource, operations, want string }{
		"patches of what is deleted":   {patches, "apps deployments", "DELETE", deleted},
		"and of what is made":          {patches, "apps deployments", "CREATE DELETE", deleted},
		"patches of what is made":      {patches, "apps deployments", "CREATE", ""},
		"denials of what is deleted":   {denies, "apps deployments", "DELETE", ""},
		"patches beside denials":       {denies + patches, "apps deployments", "DELETE", "spec.match.resources: the policy has patch rules, which are asked about CREATE and UPDATE, and no resource"},
		"what does not parse":          {"patch contains {", "apps deployments", "DELETE", ""},
		"outcomes of a Deployment":     {outcomes, "apps deployments", "CREATE", nobody},
		"outcomes beside denials":      {outcomes + denies, "apps deployments", "CREATE", nobody},
		"outcomes of operations":       {outcomes, "sallyport.dev virtualmachineoperations", "CREATE", ""},
		"outcomes of ended operations": {outcomes, "sallyport.dev virtualmachineoperations", "DELETE", nobody},
	} {
		t.Run(name, func(t *testing.T) {
			group, resource, _ := strings.Cut(tc.resource, " ")
			of := v1alpha1.PolicyResources{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{resource}}
			for o := range strings.FieldsSeq(tc.operations) {
				of.Operations = append(of.Operations, v1alpha1.MatchOperation(o))
			}
			got := strings.Join(Check(&v1alpha1.RegoPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.RegoPolicySpec{
				Package: "toy.p", Match: &v1alpha1.PolicyMatch{Resources: []v1alpha1.PolicyResources{of}},
				Modules: []v1alpha1.PolicyModule{{Name: "p.rego", Source: "package toy.p\n\n" + tc.rules}},
			}}), "\n")
			if !strings.HasPrefix(got, tc.want) || (got == "") != (tc.want == "") {
				t.Errorf("it says %q, want %q", got, tc.want)
			}
		})
	}
}
