package rbac

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Compare tells what is granted and not used, and what is used and not granted. Home is the namespace of who is granted it:
// what they only do there needs no right in all namespaces.
func Compare(grants []Grant, uses []Use, home string) (findings []string) {
	for _, u := range uses {
		granted := slices.ContainsFunc(grants, func(g Grant) bool { return g.covers(u.Right) })
		switch {
		case !granted:
			findings = append(findings, fmt.Sprintf("missing: %s was asked for %d times and no role grants it", u.Right, u.Times))
		case u.Forbidden > 0:
			findings = append(findings, fmt.Sprintf("missing: %s was forbidden %d times before a role granted it", u.Right, u.Forbidden))
		}
	}
	for i, g := range grants {
		if why := surplus(g, i, grants, uses, home); why != "" {
			findings = append(findings, fmt.Sprintf("surplus: %s grants %s, %s", g.By, g.Right, why))
		}
	}
	return findings
}

// surplus tells why a grant is too much, if it is.
func surplus(g Grant, index int, all []Grant, uses []Use, home string) string {
	if strings.Contains(g.Group+g.Resource+g.Verb, rbacv1.ResourceAll) {
		return "which nobody can count"
	}
	for i, other := range all {
		// Of two that are the same the second is too much.
		if i != index && other.covers(g.Right) && (!g.covers(other.Right) || i < index) {
			return "which " + other.By + " grants already"
		}
	}
	used, away := false, false
	// Where a resource is dealt with is one question, and not one for each verb: who makes objects anywhere has to be able to
	// change them there too, even if that has happened at home only.
	resource := Right{Group: g.Group, Resource: g.Resource, Verb: rbacv1.VerbAll, Name: g.Name}
	// Whoever lists objects has read them: to get one of them beside that is no more.
	listed := g.Right
	if listed.Verb == "get" {
		listed.Verb = "list"
	}
	for _, u := range uses {
		used = used || g.covers(u.Right) || listed.covers(u.Right)
		away = away || u.Namespace != home && resource.covers(u.Right)
	}
	switch {
	case !used:
		return "which was not used"
	case g.Namespace == "" && !away:
		return "which was used in namespace " + home + " only: a Role would do"
	}
	return ""
}
