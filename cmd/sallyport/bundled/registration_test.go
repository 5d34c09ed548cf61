package bundled

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/shipped"
	"sallyport.dev/sallyport/webhooks/catalog"
)

// What is shipped can be asked.
func TestShippedPoliciesCanBeRegistered(t *testing.T) {
	all := shipped.Policies(t)
	for i := range all {
		for _, why := range Check(&all[i]) {
			t.Errorf("%s: %s", all[i].Name, why)
		}
	}
}

// A policy with patch rules and no others cannot be registered for connections and deletions, which are never patched. Patch rules beside
// others are remarked on where they have no effect, and so is a background audit that finds no objects.
func TestWhatHasNoEffect(t *testing.T) {
	const patches, denies = "patch contains {\"merge\": {}} if false\n", "deny contains {} if false\n"
	for name, tc := range map[string]struct {
		rules, operation string
		audit            v1alpha1.BackgroundAudit
		refused, remarks string
	}{
		"connections are patched": {patches, "CONNECT", "", "spec.match.resources[0].operations: no rule of the policy is asked about CONNECT: it has only patch rules", "spec.match.resources[0].operations: patch rules are not evaluated for CONNECT; only deny and warn rules are"},
		"and refused":             {patches + denies, "CONNECT", "", "spec.match.resources: the policy has patch rules, which are asked about CREATE and UPDATE, and no resource has one", "spec.match.resources[0].operations: patch rules are not evaluated for CONNECT; only deny and warn rules are"},
		"only refused":            {denies, "CONNECT", "", "", ""},
		"deletions are patched":   {patches, "DELETE", "", "spec.match.resources[0].operations: no rule of the policy is asked about DELETE: it has only patch rules", ""},
		"audited":                 {denies, "CONNECT", v1alpha1.AuditEnabled, "", "spec.backgroundAudit: must be Disabled, because spec.match selects no resource with CREATE and the audit would evaluate no object"},
		"audited with reason":     {denies, "CREATE", v1alpha1.AuditEnabled, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			resource := "pods"
			if tc.operation == "CONNECT" {
				resource = "pods/exec"
			}
			p := &v1alpha1.RegoPolicy{Spec: v1alpha1.RegoPolicySpec{
				Package: "example.p", BackgroundAudit: tc.audit,
				Match: &v1alpha1.PolicyMatch{Resources: []v1alpha1.PolicyResources{{
					APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{resource}, Operations: []v1alpha1.MatchOperation{v1alpha1.MatchOperation(tc.operation)},
				}}},
				Modules: []v1alpha1.PolicyModule{{Name: "p.rego", Source: fmt.Sprintf("package example.p\n\n%s", tc.rules)}},
			}}
			p.Name = "p"
			if got := strings.Join(Check(p), "; "); !strings.HasPrefix(got, tc.refused) || (got == "") != (tc.refused == "") {
				t.Errorf("refused is %q, want %q", got, tc.refused)
			}
			if got := strings.Join(Remarks(p), "; "); got != tc.remarks {
				t.Errorf("remarks are %q, want %q", got, tc.remarks)
			}
		})
	}
}

// Which rules the API server never has evaluated is known from the text of the policy, before anything is compiled.
func TestRulesAreHeldAgainstTheMatch(t *testing.T) {
	const (
		patches  = "patch contains {\"op\": \"remove\", \"path\": \"/x\"} if true\n"
		denies   = "deny contains {\"reason\": \"R\", \"message\": \"m\"} if true\n"
		outcomes = "outcome.supersedes contains \"x\" if true\n"
		deleted  = "spec.match.resources[0].operations: no rule of the policy is asked about DELETE: it has only patch rules"
		unheard  = "spec.match.resources: the policy has outcome rules, which are evaluated only for CREATE of virtualmachineoperations.sallyport.dev and virtualmachines.sallyport.dev"
	)
	for name, tc := range map[string]struct{ rules, resource, operations, want string }{
		"patches of what is deleted":   {patches, "apps deployments", "DELETE", deleted},
		"and of what is made":          {patches, "apps deployments", "CREATE DELETE", deleted},
		"patches of what is made":      {patches, "apps deployments", "CREATE", ""},
		"denials of what is deleted":   {denies, "apps deployments", "DELETE", ""},
		"patches beside denials":       {denies + patches, "apps deployments", "DELETE", "spec.match.resources: the policy has patch rules, which are asked about CREATE and UPDATE, and no resource"},
		"what does not parse":          {"patch contains {", "apps deployments", "DELETE", ""},
		"outcomes of a Deployment":     {outcomes, "apps deployments", "CREATE", unheard},
		"outcomes beside denials":      {outcomes + denies, "apps deployments", "CREATE", unheard},
		"outcomes of operations":       {outcomes, "sallyport.dev virtualmachineoperations", "CREATE", ""},
		"outcomes of machines":         {outcomes, "sallyport.dev virtualmachines", "CREATE", ""},
		"outcomes of ended operations": {outcomes, "sallyport.dev virtualmachineoperations", "DELETE", unheard},
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

// The Rego that the leader applies is that of the source: catalog.Manifest compares what both parse to.
func TestShippedRegoIsTheSource(t *testing.T) {
	source := shipped.Policies(t)
	shipped, err := Shipped()
	if err != nil {
		t.Fatal(err)
	}
	for i := range source {
		text, err := catalog.Manifest(&source[i])
		want := v1alpha1.RegoPolicy{}
		if err == nil {
			err = yaml.Unmarshal(text, &want)
		}
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.Spec, shipped[i].Spec); diff != "" {
			t.Errorf("%s (-manifest +shipped):\n%s", want.Name, diff)
		}
	}
}
