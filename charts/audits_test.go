package charts_test

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// Who wants no reports grants nothing for them.
func TestReportsAreAChoice(t *testing.T) {
	for values, want := range map[string]bool{"": false, "audits: {reports: true}": true} {
		objects := render(t, values)
		args := rendered[appsv1.Deployment](t, objects, "Deployment", "sallyport").Spec.Template.Spec.Containers[0].Args
		rules := rendered[rbacv1.ClusterRole](t, objects, "ClusterRole", "sallyport").Rules
		granted := slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.APIGroups, "openreports.io") })
		if asked := slices.Contains(args, "--audit-reports=true"); asked != want || granted != want {
			t.Errorf("%q: asked for %t, granted %t", values, asked, granted)
		}
	}
}
