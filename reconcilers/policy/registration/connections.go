package registration

import (
	"fmt"
	"slices"
	"strings"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// connections are the subresources by which somebody connects to something. Whichever verb of HTTP that is done with, API servers ask
// webhooks about it as CONNECT, and about nothing else so. Discovery does not tell it.
var connections = []string{"nodes/proxy", "pods/attach", "pods/exec", "pods/portforward", "pods/proxy", "services/proxy"}

// operationsOf are those that API servers can ask about, as far as that is known of a resource without a cluster: aggregated API
// servers may have connections of their own.
func operationsOf(group, resource string) []v1alpha1.MatchOperation {
	changes := []v1alpha1.MatchOperation{v1alpha1.MatchCreate, v1alpha1.MatchUpdate, v1alpha1.MatchDelete}
	_, part, _ := strings.Cut(resource, "/")
	switch {
	case group == "" && slices.Contains(connections, resource):
		return []v1alpha1.MatchOperation{v1alpha1.MatchConnect}
	case strings.Contains(resource, all) && resource != all:
	case part == "", group == "", part == "scale", part == "status":
		return changes
	}
	return append(changes, v1alpha1.MatchConnect)
}

func askable(group, resource string, o v1alpha1.MatchOperation) bool {
	return slices.Contains(operationsOf(group, resource), o)
}

// unasked says why API servers ask about none of the operations on a resource, nothing if they may.
func unasked(group, resource string, operations []v1alpha1.MatchOperation) string {
	can := operationsOf(group, resource)
	if slices.ContainsFunc(operations, func(o v1alpha1.MatchOperation) bool { return slices.Contains(can, o) }) {
		return ""
	}
	if slices.Equal(can, []v1alpha1.MatchOperation{v1alpha1.MatchConnect}) {
		return fmt.Sprintf("it has only the operation CONNECT, not %s", strings.Join(texts(operations), ", "))
	}
	name, _, _ := strings.Cut(resource, "/")
	own := slices.DeleteFunc(slices.Clone(connections), func(c string) bool { return group != "" || !strings.HasPrefix(c, name+"/") })
	if len(own) == 0 {
		own = connections
	}
	return fmt.Sprintf("it has no operation CONNECT; only these have it: %s", strings.Join(own, ", "))
}

// unselectable says why the API server would never ask the policy about a connection. It carries what was asked for, such as a
// command, which is no object with labels, and to API servers that is no match of any selector.
func (p *Policy) unselectable() string {
	if !slices.ContainsFunc(p.Matches, func(m v1alpha1.PolicyMatch) bool { return len(requirementsOf(m.ObjectSelector)) > 0 }) {
		return ""
	}
	return "a CONNECT request has no labels, so spec.match.objectSelector never matches: " +
		"use spec.match.namespaceSelector, or check the labels of facts.parent in a rule"
}
