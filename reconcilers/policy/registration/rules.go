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

// The webhook API in short.
type (
	rule      = admissionregistrationv1.RuleWithOperations
	operation = admissionregistrationv1.OperationType
)

// all is the wildcard of rules.
const all = "*"

// Policy is what of a policy that decides concerns the API server.
type Policy struct {
	// Name and Generation are those of the RegoPolicy.
	Name       string
	Generation int64
	// Matches are what a request must meet, each of them; the first has every resource that can be met. Their selectors can be
	// used: what of one cannot is left out.
	Matches []v1alpha1.PolicyMatch
	// Validates and Mutates tell where it has anything to say.
	Validates, Mutates bool
	// Refuses means that a request is denied if the policy cannot be evaluated.
	Refuses bool
	// Broken tells that nothing of it can be asked, so that what it matches follows its onError.
	Broken bool
	// Timeout is how long it may take.
	Timeout time.Duration
	// Unheard says what else of it is never asked for, a line each that begins with a field.
	Unheard []string
	// MayNotPatch says why the policy may not patch a resource of a group, "" if it may; nil lets it patch all.
	MayNotPatch func(group, resource string) string
}

// target is what one rule of a policy asks about: resources of groups, with the operations.
type target struct {
	groups, versions, resources []string
	operations                  []operation
}

// targets gives what a policy matches beyond what is covered, and in words what of it is never registered.
func (p *Policy) targets(covered []rule, possible []operation) (found []target, refused []string) {
	return p.targetsBut(covered, possible, nil)
}

// targetsBut leaves out, if barred is not nil, also the resources of which that says why.
func (p *Policy) targetsBut(
	covered []rule, possible []operation, barred func(group, resource string) string,
) (found []target, refused []string) {
	if len(p.Matches) == 0 {
		return nil, nil
	}
	marked := p.marked()
	for i := range p.Matches[0].Resources {
		r := &p.Matches[0].Resources[i]
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
			if slices.Contains(t.versions, all) { // beside which the API server takes no other
				t.versions = []string{all}
			}
			found = append(found, t)
		}
	}
	return found, unique(refused)
}

// joined adds a resource to the target of its group with the same operations.
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

// merged puts groups together that have the same resources.
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

// coveredBy reports whether rules have all of that, in whichever version: the API server converts what it asks about.
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

// String names what is asked about, as kubectl does.
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

// wild reports whether it is about resources that nobody has named.
func (t target) wild() bool {
	return slices.Contains(t.groups, all) || slices.ContainsFunc(t.resources, func(r string) bool { return strings.Contains(r, all) })
}

// split gives the targets as far as they are about Namespaces, and tells whether they are about anything else.
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

// marked tells that the policy is asked only about objects with a label that is Sallyport's, and that somebody has put there.
func (p *Policy) marked() bool {
	return slices.ContainsFunc(p.Matches, func(m v1alpha1.PolicyMatch) bool {
		return slices.ContainsFunc(requirementsOf(m.ObjectSelector), func(r metav1.LabelSelectorRequirement) bool {
			prefix, _, _ := strings.Cut(r.Key, "/")
			return prefix == v1alpha1.GroupName && (r.Operator == metav1.LabelSelectorOpExists || r.Operator == metav1.LabelSelectorOpIn)
		})
	})
}

// called names a resource as kubectl does: the group goes before the subresource.
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

// exclusion is what no policy is asked about.
type exclusion struct {
	group string
	// resources are by name, each with its subresources; nil means all of the group.
	resources  []string
	operations []operation // nil means all
	why        string
}

// never are the kinds without which a cluster does not run or does not come back, so that a webhook which nobody serves, or a
// policy that refuses too much, would be there for ever; and those about which the API server asks no webhook. Kyverno's
// resourceFilters and the resources that Kubernetes leaves out of its own policies have been the model. What nodes and controllers
// write on their way up and is in no namespace belongs here, because kube-system cannot be left out of it; what the API server writes
// itself (APIServices, its FlowSchemas, the endpoints of its Service) passes as its own.
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

// neverParts are subresources that no policy is asked about, whichever they are of.
var neverParts = map[string]string{
	"status":   "a status reports what has happened, and denying it would not undo that; match the resource itself",
	"finalize": "the deletion of an object must be able to finish",
}

// refusal says why an operation on a resource is not registered, nothing if it is. A wildcard is for what is marked.
func refusal(group, resource string, o operation, marked bool) string {
	name, part, _ := strings.Cut(resource, "/")
	const reach = "a wildcard would match resources that a cluster cannot run without, now or later: name the %s, or require a label below %s/ in spec.match.objectSelector"
	switch {
	case !marked && strings.Contains(resource, all):
		return fmt.Sprintf(reach, "resources", v1alpha1.GroupName)
	case !marked && group == all:
		return fmt.Sprintf(reach, "groups", v1alpha1.GroupName)
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

// unique keeps the order.
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
