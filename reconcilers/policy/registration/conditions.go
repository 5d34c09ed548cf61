package registration

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// What keeps a request from being asked about. An expression that errs refuses the request under Fail, without anybody having
// been asked: whatever may be missing, be it that an object has no metadata, is guarded.
const (
	isNotTerminating = `oldObject == null || !has(oldObject.metadata) || !has(oldObject.metadata.deletionTimestamp)`
	// The API server itself makes roles, Services and configuration of its own when it starts.
	isNotTheAPIServers = `request.userInfo.?username.orValue("") != "system:apiserver"`
	isNoNamespace      = `request.resource.group != "" || request.resource.resource != "namespaces"`
	// Controllers keep books about objects in their status and their finalizers, also about those that a policy would not let be
	// made now.
	changesMore = `request.operation != "UPDATE" || oldObject == null || object == null` +
		` || object.exists(k, !(k in ["apiVersion", "kind", "metadata", "status"]) && object[k] != oldObject[?k].orValue(null))` +
		` || oldObject.exists(k, !(k in ["apiVersion", "kind", "metadata", "status"]) && !(k in object))` +
		` || object.?metadata.orValue({}).exists(k, !(k in ` + bookkeeping + `) && object.metadata[k] != oldObject.?metadata[?k].orValue(null))` +
		` || oldObject.?metadata.orValue({}).exists(k, !(k in ` + bookkeeping + `) && !object.?metadata[?k].hasValue())`
	bookkeeping = `["finalizers", "generation", "managedFields", "resourceVersion"]`
)

// Names of those that are made of a field of spec.match.
const (
	notByUser   = "is-not-by-an-excluded-user"
	notByGroup  = "is-not-by-an-excluded-group"
	notExcluded = "is-not-an-excluded-namespace"
)

// conditionsOf leave out what must pass in any case, and whose requests a policy does not judge.
func conditionsOf(matches []v1alpha1.PolicyMatch, targets []target) []admissionregistrationv1.MatchCondition {
	all := []admissionregistrationv1.MatchCondition{{Name: "is-not-the-api-servers-own", Expression: isNotTheAPIServers}}
	add := func(name, expression string) {
		all = append(all, admissionregistrationv1.MatchCondition{Name: name, Expression: expression})
	}
	asks := func(o operation) bool {
		return slices.ContainsFunc(targets, func(t target) bool { return slices.Contains(t.operations, o) })
	}
	if asks(admissionregistrationv1.Update) || asks(admissionregistrationv1.Delete) {
		add("is-not-terminating", isNotTerminating)
	}
	if asks(admissionregistrationv1.Update) {
		add("changes-more-than-status-or-finalizers", changesMore)
	}
	var users, groups []string
	for i := range matches {
		users, groups = append(users, matches[i].ExcludeUsers...), append(groups, matches[i].ExcludeGroups...)
	}
	if len(users) > 0 {
		add(notByUser, `!(request.userInfo.?username.orValue("") in `+listed(users)+`)`)
	}
	if len(groups) > 0 {
		add(notByGroup, `!request.userInfo.?groups.orValue([]).exists(g, g in `+listed(groups)+`)`)
	}
	if slices.ContainsFunc(targets, target.wild) {
		add("is-not-about-what-a-cluster-does-not-run-without", isNotNeeded())
	}
	return append(all, ownConditions(matches)...)
}

// ownConditions are those of the policy itself.
func ownConditions(matches []v1alpha1.PolicyMatch) (all []admissionregistrationv1.MatchCondition) {
	for i := range matches {
		for _, c := range matches[i].Conditions {
			one := admissionregistrationv1.MatchCondition{Name: fmt.Sprintf("match-%d.%s/%s", i, v1alpha1.GroupName, c.Name), Expression: c.Expression}
			if !slices.ContainsFunc(all, func(a admissionregistrationv1.MatchCondition) bool { return a.Expression == one.Expression }) {
				all = append(all, one)
			}
		}
	}
	return all
}

// saying has the conditions of the policy itself end with a comment that says whose they are: of one that cannot be evaluated the API
// server tells who is refused nothing but the expression.
func saying(policy string, conditions []admissionregistrationv1.MatchCondition) []admissionregistrationv1.MatchCondition {
	for i := range conditions {
		if own, name, found := strings.Cut(conditions[i].Name, "."+v1alpha1.GroupName+"/"); found && strings.HasPrefix(own, "match-") {
			conditions[i].Expression += fmt.Sprintf(" // RegoPolicy %s, spec.match.conditions: %s", policy, name)
		}
	}
	return conditions
}

// isNotNeeded leaves out of a wildcard what no policy is asked about by name.
func isNotNeeded() string {
	var needed []string
	for _, e := range never {
		terms := []string{"request.resource.group == " + strconv.QuoteToASCII(e.group)}
		if e.resources != nil {
			terms = append(terms, "request.resource.resource in "+listed(e.resources))
		}
		if e.operations != nil {
			terms = append(terms, "request.operation in "+listed(texts(e.operations)))
		}
		needed = append(needed, strings.Join(terms, " && "))
	}
	return "!(" + strings.Join(needed, " || ") + ")"
}

// listed is a list of texts in CEL, whose literals have the escapes of Go's.
func listed(texts []string) string {
	quoted := sorted(texts)
	for i, t := range quoted {
		quoted[i] = strconv.QuoteToASCII(t)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
