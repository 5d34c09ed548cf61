package registration

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// What the API server asks about as CONNECT is registered so, and what it would never ask about is told.
func TestConnections(t *testing.T) {
	labelled := func(m *v1alpha1.PolicyMatch) {
		m.ObjectSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpDoesNotExist}}}
	}
	for name, tc := range map[string]struct {
		match          v1alpha1.PolicyMatch
		change         func(*v1alpha1.PolicyMatch)
		asked, refused string
	}{
		"connections to Pods": {match: on("X", "pods/exec", "pods/attach", "pods/portforward"), asked: "CONNECT of pods/exec; CONNECT of pods/attach; CONNECT of pods/portforward"},
		"proxies":             {match: on("X", "nodes/proxy", "services/proxy"), asked: "CONNECT of nodes/proxy; CONNECT of services/proxy"},
		"a connection of an aggregated API server": {match: on("X", "machines.example.com/console"), asked: "CONNECT of machines.example.com/console"},
		"together with what is made": {
			match: v1alpha1.PolicyMatch{Resources: []v1alpha1.PolicyResources{{
				APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods", "pods/exec", "pods/attach"},
				Operations: []v1alpha1.MatchOperation{v1alpha1.MatchCreate, v1alpha1.MatchConnect},
			}}},
			asked: "CREATE of pods; CONNECT of pods/exec, pods/attach",
		},
		"exec as a creation": {
			match:   on("C", "pods/exec", "pods"),
			asked:   "CREATE of pods",
			refused: "spec.match.resources[0].resources[0], pods/exec: it has only the operation CONNECT, not CREATE",
		},
		"a connection to a Pod as such": {
			match:   on("X", "pods"),
			refused: "spec.match.resources[0].resources[0], pods: it has no operation CONNECT; only these have it: pods/attach, pods/exec, pods/portforward, pods/proxy",
		},
		"a connection to what has none": {
			match:   on("X", "deployments.apps"),
			refused: "spec.match.resources[0].resources[0], deployments.apps: it has no operation CONNECT; only these have it: nodes/proxy, pods/attach, pods/exec, pods/portforward, pods/proxy, services/proxy",
		},
		"a connection to a Scale": {match: on("X", "deployments.apps/scale"), refused: "spec.match.resources[0].resources[0], deployments.apps/scale: it has no operation CONNECT"},
		"labels, which no connection has": {
			match: on("CX", "pods/exec", "pods"), change: labelled, asked: "CREATE of pods",
			refused: "spec.match.resources[0].resources[0], pods/exec: a CONNECT request has no labels, so spec.match.objectSelector never matches",
		},
		"nodes as such are still left out": {match: on("UX", "nodes", "nodes/proxy"), asked: "CONNECT of nodes/proxy", refused: "spec.match.resources[0].resources[0], nodes: a cluster that restarts"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.change != nil {
				tc.change(&tc.match)
			}
			p := policy("guard", tc.match)
			targets, refused := p.targets(nil, possible)
			var asked []string
			for _, target := range targets {
				asked = append(asked, target.String())
			}
			if got := strings.Join(asked, "; "); got != tc.asked {
				t.Errorf("it is asked about %s, want %s", got, tc.asked)
			}
			if got := strings.Join(refused, "; "); (got == "") != (tc.refused == "") || !strings.HasPrefix(got, tc.refused) {
				t.Errorf("it is refused %s, want %s", got, tc.refused)
			}
			if changes, _ := p.targets(nil, possibleChanges); slices.ContainsFunc(changes, func(one target) bool { return slices.Contains(one.operations, "CONNECT") }) {
				t.Errorf("it changes connections: %v", changes)
			}
		})
	}
}
