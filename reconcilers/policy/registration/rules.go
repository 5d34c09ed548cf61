package registration

import (
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Short names of the webhook API.
type (
	rule      = admissionregistrationv1.RuleWithOperations
	operation = admissionregistrationv1.OperationType
)

// all is the wildcard of rules.
const all = "*"

// Policy is the part of an active policy that determines its entries.
type Policy struct {
	// Name and Generation of the RegoPolicy.
	Name       string
	Generation int64
	// Match has no resources if the policy has no usable spec.match. Unusable selectors are left out.
	Match v1alpha1.PolicyMatch
	// Validates is set if the policy has deny or warn rules, Mutates if it has patch rules.
	Validates, Mutates bool
	// DeniesUnasked means that a request is denied if no replica evaluates the policy.
	DeniesUnasked bool
	// Broken means that the policy cannot be evaluated, so that its requests follow onError.
	Broken bool
	// Timeout limits an evaluation.
	Timeout time.Duration
	// NeverEvaluated are further parts of the policy that are never evaluated, one line each, which begins with a field.
	NeverEvaluated []string
	// MayNotPatch says why the policy may not patch a resource of a group, "" if it may; nil lets it patch all.
	MayNotPatch func(group, resource string) string
}

// target is the content of one webhook rule: resources of groups, with the operations.
type target struct {
	groups, versions, resources []string
	operations                  []operation
}

// targets returns what to register for a policy, without what is covered, and why the rest is never registered.
func (p *Policy) targets(covered []rule, possible []operation) (found []target, refused []string) {
	return p.targetsBut(covered, possible, nil)
}

// targetsBut is targets, and also leaves out the resources for which barred, if not nil, returns a reason.
func (p *Policy) targetsBut(
	covered []rule, possible []operation, barred func(group, resource string) string,
) (found []target, refused []string) {
	marked := p.marked()
	for i := range p.Match.Resources {
		r := &p.Match.Resources[i]
		var own []target
		for _, group := range r.APIGroups {
			for j, resource := range r.Resources {
				refuse := func(why string) {
					refused = append(refused, fmt.Sprintf("spec.match.resources[%d].resources[%d], %s: %s", i, j, called(group, resource), why))
				}
				if why := unasked(group, resource, r.Operations); why != "" {
					refuse(why)
					continue
				}
				var left []operation
				for _, o := range possible {
					if !slices.Contains(r.Operations, v1alpha1.MatchOperation(o)) || !askable(group, resource, v1alpha1.MatchOperation(o)) ||
						coveredBy(covered, group, resource, o) {
						continue
					}
					why := refusal(group, resource, o, marked)
					if why == "" && o == admissionregistrationv1.Connect {
						why = p.unselectable()
					}
					if why == "" && barred != nil {
						why = barred(group, resource)
					}
					if why != "" {
						refuse(why)
						continue
					}
					left = append(left, o)
				}
				own = joined(own, group, resource, left)
			}
		}
		for _, t := range merged(own) {
			t.versions = r.APIVersions
			if slices.Contains(t.versions, all) { // the API server accepts no other version beside "*"
				t.versions = []string{all}
			}
			found = append(found, t)
		}
	}
	return found, unique(refused)
}

func joined(targets []target, group, resource string, operations []operation) []target {
	if len(operations) == 0 {
		return targets
	}
	for i := range targets {
		if t := &targets[i]; t.groups[0] == group && slices.Equal(t.operations, operations) {
			t.resources = append(t.resources, resource)
			return targets
		}
	}
	return append(targets, target{groups: []string{group}, resources: []string{resource}, operations: operations})
}

// merged joins the targets whose resources and operations are equal.
func merged(targets []target) (fewer []target) {
	for _, t := range targets {
		i := slices.IndexFunc(fewer, func(f target) bool {
			return slices.Equal(f.resources, t.resources) && slices.Equal(f.operations, t.operations)
		})
		if i < 0 {
			fewer = append(fewer, t)
			continue
		}
		fewer[i].groups = append(fewer[i].groups, t.groups...)
	}
	return fewer
}

// coveredBy reports whether rules include the resource and operation, in any version: the API server converts objects to it.
func coveredBy(rules []rule, group, resource string, o operation) bool {
	return slices.ContainsFunc(rules, func(r rule) bool {
		return has(r.APIGroups, group) && has(r.Resources, resource) && (has(r.Operations, o) || has(r.Operations, all))
	})
}

func has[T ~string](list []T, one T) bool {
	return slices.Contains(list, one) || slices.Contains(list, all)
}

func (t *target) rule() rule {
	scope := admissionregistrationv1.AllScopes
	return rule{Operations: t.operations, Rule: admissionregistrationv1.Rule{
		APIGroups: t.groups, APIVersions: t.versions, Resources: t.resources, Scope: &scope,
	}}
}

// String returns the operations and resources, named as in kubectl.
func (t *target) String() string {
	var names []string
	for _, resource := range t.resources {
		for _, group := range t.groups {
			names = append(names, called(group, resource))
		}
	}
	return fmt.Sprintf("%s of %s", strings.Join(texts(t.operations), ", "), strings.Join(names, ", "))
}

func texts[T ~string](operations []T) []string {
	all := make([]string, len(operations))
	for i, o := range operations {
		all[i] = string(o)
	}
	return all
}

func (t target) wild() bool {
	return slices.Contains(t.groups, all) || slices.ContainsFunc(t.resources, func(r string) bool { return strings.Contains(r, all) })
}

// ofGroup returns the parts of targets with all groups that match a group.
func ofGroup(targets []target, group string) (all []target) {
	for _, t := range targets {
		if slices.Contains(t.groups, "*") {
			t.groups = []string{group}
			all = append(all, t)
		}
	}
	return all
}

// split returns the parts of targets that match Namespaces, and whether they match anything else.
func split(targets []target) (others bool, own []target) {
	for _, t := range targets {
		var resources []string
		for _, resource := range t.resources {
			name, part, is := strings.Cut(resource, "/")
			switch {
			case name != "namespaces" && name != all:
				others = true
				continue
			case resource == "*/*":
				resources = append(resources, "namespaces")
			}
			others = others || name == all
			if is {
				resources = append(resources, "namespaces/"+part)
			} else {
				resources = append(resources, "namespaces")
			}
		}
		inCore := has(t.groups, "")
		others = others || !inCore || len(t.groups) > 1 || slices.Contains(t.groups, all)
		if inCore && len(resources) > 0 {
			own = append(own, target{groups: []string{""}, versions: t.versions, resources: unique(resources), operations: t.operations})
		}
	}
	return others, own
}

// marked reports whether objectSelector requires a sallyport.dev label, so that users opt objects in.
func (p *Policy) marked() bool {
	return slices.ContainsFunc(requirementsOf(p.Match.ObjectSelector), func(r metav1.LabelSelectorRequirement) bool {
		prefix, _, _ := strings.Cut(r.Key, "/")
		return prefix == v1alpha1.GroupName && (r.Operator == metav1.LabelSelectorOpExists || r.Operator == metav1.LabelSelectorOpIn)
	})
}

// called returns the name of a resource as in kubectl, with the group before the subresource.
func called(group, resource string) string {
	if group == all && strings.HasPrefix(resource, all) {
		return "everything"
	}
	name, sub, is := strings.Cut(resource, "/")
	if group != "" {
		name += "." + group
	}
	if is {
		name += "/" + sub
	}
	return name
}

// exclusion are resources that are never registered.
type exclusion struct {
	group string
	// resources are by name, each with its subresources; nil means all of the group.
	resources  []string
	operations []operation // nil means all
	why        string
}

// never has the kinds that a cluster needs to run or to recover, and those for which the API server calls no webhook. If one of the
// former were denied, by a policy or because no replica answers, it might be impossible to repair the webhook. The list follows Kyverno's
// resourceFilters and the resources that Kubernetes excludes from its own policies. It includes cluster-scoped objects that nodes and
// controllers write when they start, because excluding kube-system does not exclude those. Objects that the API server writes itself
// (APIServices, its FlowSchemas, the endpoints of its Service) are excluded by a matchCondition instead.
var never = []exclusion{
	{
		group: "admissionregistration.k8s.io",
		why:   "the API server calls no webhook for objects that configure admission",
	},
	{
		group: "authentication.k8s.io",
		why:   "the API server authenticates requests with it, and no request would succeed without it",
	},
	{
		group: "authorization.k8s.io",
		why:   "all components authorize requests with it, Sallyport included",
	},
	{
		group: "coordination.k8s.io",
		why:   "nodes and leaders renew Leases to show that they are alive, and count as dead if they cannot",
	},
	{
		group: "", resources: []string{"events"},
		why: "an event reports what has happened, and denying it would not undo that",
	},
	{
		group: "events.k8s.io",
		why:   "an event reports what has happened, and denying it would not undo that",
	},
	{
		group: "", resources: []string{"nodes"}, operations: []operation{admissionregistrationv1.Create, admissionregistrationv1.Update},
		why: "a cluster that restarts needs its nodes before any webhook can answer; only DELETE, and CONNECT of nodes/proxy, can be matched",
	},
	{
		group: "storage.k8s.io", resources: []string{"csinodes"}, operations: []operation{admissionregistrationv1.Create, admissionregistrationv1.Update},
		why: "a node needs it to report which volumes it supports before it is ready; only DELETE can be matched",
	},
	{
		group: "storage.k8s.io", resources: []string{"volumeattachments"},
		why: "volumes are attached and detached with it, also those of cluster components, whose namespaces cannot be excluded there",
	},
	{
		group: "resource.k8s.io", resources: []string{"resourceslices"},
		why: "nodes report their devices with it, and no Pod that needs a device could start without it",
	},
	{
		group: "certificates.k8s.io",
		why:   "nodes get their certificates with it, and without nodes no webhook can answer",
	},
	{
		group: v1alpha1.GroupName, resources: []string{"regopolicies"},
		why: "it must always be possible to repair a policy, so only the chart's webhooks evaluate RegoPolicies",
	},
}

// neverParts are subresources that are never registered, for any resource.
var neverParts = map[string]string{
	"status":   "a status reports what has happened, and denying it would not undo that; match the resource itself",
	"finalize": "the deletion of an object must be able to finish",
}

// A requestField is a field of a status with which the kind's own API server asks its controller to carry out requests of users. There
// they can be denied, and the API server shows the denial to the user.
type requestField struct{ group, resource, field string }

// requestFields has start, stop and restart of KubeVirt's machines (pkg/virt-api/rest/lifecycle.go of kubevirt/kubevirt, version 1.7).
var requestFields = []requestField{{"kubevirt.io", "virtualmachines", "stateChangeRequests"}}

func (f *requestField) is(group, resource string) bool {
	return group == f.group && resource == f.resource+"/status"
}

// condition returns the CEL expression that a request changes the field.
func (f *requestField) condition() string {
	return fmt.Sprintf(`request.resource.group == %q && request.resource.resource == %q && request.?subResource.orValue("") == "status"`+
		` && object.?status.?%[3]s != oldObject.?status.?%[3]s`, f.group, f.resource, f.field)
}

// has reports whether the resources of the target include the status with the field.
func (t target) has(f requestField) bool {
	return slices.ContainsFunc(t.groups, func(group string) bool {
		return slices.ContainsFunc(t.resources, func(resource string) bool { return f.is(group, resource) })
	})
}

// refusal returns why an operation on a resource is never registered, "" if it can be. A wildcard is accepted only if marked.
func refusal(group, resource string, o operation, marked bool) string {
	name, part, _ := strings.Cut(resource, "/")
	const reach = "a wildcard would match resources that a cluster cannot run without, now or later: name the %s, or require a label below %s/ in spec.match.objectSelector"
	switch {
	case !marked && strings.Contains(resource, all):
		return fmt.Sprintf(reach, "resources", v1alpha1.GroupName)
	case !marked && group == all:
		return fmt.Sprintf(reach, "groups", v1alpha1.GroupName)
	case slices.ContainsFunc(requestFields, func(f requestField) bool { return f.is(group, resource) }):
	case neverParts[part] != "":
		return neverParts[part]
	}
	for _, e := range never {
		if group == e.group && (e.resources == nil || slices.Contains(e.resources, name)) &&
			(e.operations == nil || slices.Contains(e.operations, o)) {
			return e.why
		}
	}
	return ""
}

// unique removes duplicates and preserves the order.
func unique(texts []string) (fewer []string) {
	seen := make(map[string]bool, len(texts))
	for _, t := range texts {
		if !seen[t] {
			seen[t] = true
			fewer = append(fewer, t)
		}
	}
	return fewer
}
