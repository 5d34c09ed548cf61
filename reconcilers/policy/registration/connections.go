package registration

import (
	"fmt"
	"slices"
	"strings"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// connections are the subresources whose requests have the operation CONNECT, whatever their HTTP method. Discovery does not say so.
var connections = []string{"nodes/proxy", "pods/attach", "pods/exec", "pods/portforward", "pods/proxy", "services/proxy"}

// operationsOf returns the operations that a resource may have, as far as that is known without a cluster: aggregated API servers may
// have CONNECT for subresources of their own.
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

// unasked returns why a resource has none of the operations, "" if it may have one.
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

// unselectable returns why the policy never matches a CONNECT request, "" if it can. The object of such a request is an options object
// without labels, and API servers match no objectSelector with requirements for it.
func (p *Policy) unselectable() string {
	if len(requirementsOf(p.Match.ObjectSelector)) == 0 {
		return ""
	}
	return "a CONNECT request has no labels, so spec.match.objectSelector never matches: " +
		"use spec.match.namespaceSelector, or check the labels of facts.parent in a rule"
}
