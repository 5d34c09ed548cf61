package engine

import (
	"maps"
	"slices"
	"strings"
)

// cached reports whether the query is answered from a cache.
func (q *Query) cached() bool { return !q.Live && !q.Parent && !q.TestRun && q.Access == nil }

// String describes the query.
func (q *Query) String() string {
	switch {
	case q.Parent:
		return "the object that the subresource belongs to"
	case q.TestRun:
		return "the result of testing the policy"
	case q.Access != nil:
		resource := strings.TrimSuffix(q.Access.Resource+"."+q.Access.Group, ".")
		return strings.TrimSuffix("may the requester "+q.Access.Verb+" "+resource+" "+q.Access.Name, " ") + inNamespace(q.Access.Namespace)
	case q.Name != "":
		return q.Kind + " " + q.Name + inNamespace(q.Namespace)
	}
	var terms []string
	for _, field := range slices.Sorted(maps.Keys(q.Fields)) {
		terms = append(terms, field+"="+q.Fields[field])
	}
	for _, key := range slices.Sorted(maps.Keys(q.Labels)) {
		terms = append(terms, "label "+key+"="+q.Labels[key])
	}
	for _, field := range slices.Sorted(maps.Keys(q.Except)) {
		terms = append(terms, field+" not "+strings.Join(q.Except[field], " or "))
	}
	text := "every " + q.Kind + inNamespace(q.Namespace)
	if q.Namespaces != nil {
		text += " in namespaces " + strings.Join(q.Namespaces, ", ")
	}
	if len(terms) > 0 {
		text += " with " + strings.Join(terms, ", ")
	}
	return text
}

// Places returns the namespaces that a list covers, each once; nil for all.
func (q *Query) Places() []string {
	switch {
	case q.Namespaces == nil && q.Namespace == "":
		return nil
	case q.Namespaces == nil:
		return []string{q.Namespace}
	}
	places := append([]string{}, q.Namespaces...) // not nil, which would mean all
	slices.Sort(places)
	return slices.DeleteFunc(slices.Compact(places), func(name string) bool { return name == "" || q.Namespace != "" && name != q.Namespace })
}

func inNamespace(name string) string {
	if name == "" {
		return ""
	}
	return " in namespace " + name
}
