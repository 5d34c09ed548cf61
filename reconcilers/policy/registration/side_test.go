package registration

import (
	"strings"
	"testing"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// The API server is not told to have objects changed that policies may not patch. What a policy refuses is another matter.
func TestWhatMayNotBePatchedIsNotAskedAbout(t *testing.T) {
	p := &Policy{Name: "p", Validates: true, Mutates: true, Match: v1alpha1.PolicyMatch{Resources: []v1alpha1.PolicyResources{{
		APIGroups: []string{"rbac.authorization.k8s.io"}, APIVersions: []string{"*"}, Resources: []string{"clusterrolebindings"},
		Operations: []v1alpha1.MatchOperation{"CREATE", "UPDATE"},
	}, {
		APIGroups: []string{"apps"}, APIVersions: []string{"*"}, Resources: []string{"deployments"},
		Operations: []v1alpha1.MatchOperation{"CREATE", "UPDATE"},
	}}}, MayNotPatch: func(group, _ string) string {
		if group == "apps" {
			return ""
		}
		return "no policy may patch it"
	}}
	reg := &pass{Reconciler: &Reconciler{}}
	for _, s := range reg.newSides() {
		targets, refused := reg.targets(s, p)
		var asked []string
		for i := range targets {
			asked = append(asked, targets[i].String())
		}
		want, why := "CREATE, UPDATE of clusterrolebindings.rbac.authorization.k8s.io; CREATE, UPDATE of deployments.apps", ""
		if s.mutating {
			want = "CREATE, UPDATE of deployments.apps"
			why = "spec.match.resources[0].resources[0], clusterrolebindings.rbac.authorization.k8s.io: no policy may patch it"
		}
		if got := strings.Join(asked, "; "); got != want || strings.Join(refused, "; ") != why {
			t.Errorf("mutating %v: %s is asked about, not %s", s.mutating, got, refused)
		}
	}
}
