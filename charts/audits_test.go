package charts_test

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Who wants no reports grants nothing for them.
func TestReportsAreAChoice(t *testing.T) {
	for values, want := range map[string]bool{"": false, "audits: {reports: true}": true} {
		objects := render(t, values)
		args := managerArgs(t, objects)
		rules := rendered[rbacv1.ClusterRole](t, objects, "ClusterRole", "sallyport").Rules
		granted := slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.APIGroups, "openreports.io") })
		if asked := slices.Contains(args, "--audit-reports=true"); asked != want || granted != want {
			t.Errorf("%q: asked for %t, granted %t", values, asked, granted)
		}
	}
}

// Whom a group lets read policies, the status names no objects to.
func TestPolicyReadersReadNoNames(t *testing.T) {
	const role = "sallyport-policy-viewer"
	for values, want := range map[string]bool{"": false, "rbac: {policyReaders: [system:authenticated]}": true} {
		objects := render(t, values)
		args := managerArgs(t, objects)
		bound := slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool {
			return o.GetKind() == "ClusterRoleBinding" && o.GetName() == role
		})
		if nameless := slices.Contains(args, "--audit-names=false"); nameless != want || bound != want {
			t.Errorf("%q: nameless %t, bound %t", values, nameless, bound)
		}
		if want {
			b := rendered[rbacv1.ClusterRoleBinding](t, objects, "ClusterRoleBinding", role)
			if b.RoleRef.Name != role || len(b.Subjects) != 1 || b.Subjects[0].Kind != "Group" || b.Subjects[0].Name != "system:authenticated" {
				t.Errorf("bound is %+v", b)
			}
		}
	}
}
