package asked

import (
	"fmt"
	"strings"
	"testing"

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

// Patch rules are asked about no connection and no deletion: a policy with nothing else cannot be registered for them, one with other
// rules can. An audit that looks at nothing is told.
func TestWhatHasNoEffect(t *testing.T) {
	const patches, denies = "patch contains {\"merge\": {}} if false\n", "deny contains {} if false\n"
	for name, tc := range map[string]struct {
		rules, operation string
		audit            v1alpha1.BackgroundAudit
		refused, remarks string
	}{
		"connections are patched": {patches, "CONNECT", "", "spec.match.resources[0].operations, CONNECT: patch rules are not asked about it, and the policy has no other rules", "spec.match.resources[0].operations: patch rules are not asked about CONNECT, only deny and warn rules are"},
		"and refused":             {patches + denies, "CONNECT", "", "", "spec.match.resources[0].operations: patch rules are not asked about CONNECT, only deny and warn rules are"},
		"only refused":            {denies, "CONNECT", "", "", ""},
		"deletions are patched":   {patches, "DELETE", "", "spec.match.resources[0].operations, DELETE: patch rules are not asked about it, and the policy has no other rules", ""},
		"audited":                 {denies, "CONNECT", v1alpha1.AuditEnabled, "", "spec.backgroundAudit: no object is held against the policy, because spec.match names no resource with CREATE; set it to Disabled"},
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
			if got := strings.Join(Check(p), "; "); got != tc.refused {
				t.Errorf("refused is %q, want %q", got, tc.refused)
			}
			if got := strings.Join(Remarks(p), "; "); got != tc.remarks {
				t.Errorf("remarks are %q, want %q", got, tc.remarks)
			}
		})
	}
}
