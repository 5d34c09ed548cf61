package registration

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// matchConditions of all entries. If an expression fails and failurePolicy is Fail, the API server denies the request without calling the
// webhook. So every field that may be missing is guarded, even metadata.
const (
	isNotTerminating = `oldObject == null || !has(oldObject.metadata) || !has(oldObject.metadata.deletionTimestamp)`
	// The API server writes its own roles, Services and configuration when it starts.
	isNotTheAPIServers = `request.userInfo.?username.orValue("") != "system:apiserver"`
	isNoNamespace      = `request.resource.group != "" || request.resource.resource != "namespaces"`
	isNotOwn           = `request.resource.group != "` + v1alpha1.GroupName + `"`
	// Controllers must be able to write the status and finalizers of existing objects, even those that a policy would deny today.
	changesMore = `request.operation != "UPDATE" || oldObject == null || object == null` +
		` || object.exists(k, !(k in ["apiVersion", "kind", "metadata", "status"]) && object[k] != oldObject[?k].orValue(null))` +
		` || oldObject.exists(k, !(k in ["apiVersion", "kind", "metadata", "status"]) && !(k in object))` +
		` || object.?metadata.orValue({}).exists(k, !(k in ` + bookkeeping + `) && object.metadata[k] != oldObject.?metadata[?k].orValue(null))` +
		` || oldObject.?metadata.orValue({}).exists(k, !(k in ` + bookkeeping + `) && !object.?metadata[?k].hasValue())`
	bookkeeping = `["finalizers", "generation", "managedFields", "resourceVersion"]`
)

// Names of matchConditions that come from a field of spec.match.
const (
	notByUser   = "is-not-by-an-excluded-user"
	notByGroup  = "is-not-by-an-excluded-group"
	notExcluded = "is-not-an-excluded-namespace"
)

// conditionsOf returns the matchConditions: they exclude requests that must always pass, and the users and groups that spec.match excludes.
func conditionsOf(match *v1alpha1.PolicyMatch, targets []target) []admissionregistrationv1.MatchCondition {
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
		add("changes-more-than-status-or-finalizers", changesMore+changesRequests(targets))
	}
	if len(match.ExcludeUsers) > 0 {
		add(notByUser, `!(request.userInfo.?username.orValue("") in `+listed(match.ExcludeUsers)+`)`)
	}
	if len(match.ExcludeGroups) > 0 {
		add(notByGroup, `!request.userInfo.?groups.orValue([]).exists(g, g in `+listed(match.ExcludeGroups)+`)`)
	}
	if slices.ContainsFunc(targets, target.wild) {
		add("is-not-about-what-a-cluster-does-not-run-without", isNotNeeded())
	}
	for _, c := range match.Conditions {
		add(ownPrefix+c.Name, c.Expression)
	}
	return all
}

// changesRequests returns the alternatives to changesMore for the requestFields among the targets.
func changesRequests(targets []target) (text string) {
	for _, f := range requestFields {
		if slices.ContainsFunc(targets, func(t target) bool { return t.has(f) }) {
			text += " || " + f.condition()
		}
	}
	return text
}

// ownPrefix begins the names of the matchConditions from spec.match.conditions.
const ownPrefix = "match-0." + v1alpha1.GroupName + "/"

// annotated appends a CEL comment with the policy's name to its own conditions: if one cannot be evaluated, the API server's denial contains
// only the expression.
func annotated(policy string, conditions []admissionregistrationv1.MatchCondition) []admissionregistrationv1.MatchCondition {
	for i := range conditions {
		if name, own := strings.CutPrefix(conditions[i].Name, ownPrefix); own {
			conditions[i].Expression += fmt.Sprintf(" // RegoPolicy %s, spec.match.conditions: %s", policy, name)
		}
	}
	return conditions
}

// isNotNeeded returns the condition that excludes the resources in never from a wildcard.
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

// listed returns a CEL list of strings. CEL's string literals have the same escapes as Go's.
func listed(texts []string) string {
	quoted := sorted(texts)
	for i, t := range quoted {
		quoted[i] = strconv.QuoteToASCII(t)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
