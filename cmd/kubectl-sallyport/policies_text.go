package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/policy/shipping"
)

// shortHash is how much of a revision a person can compare.
const shortHash = 10

// shownFields is how many edited fields a column has room for.
const shownFields = 2

// policiesReport is what is known of several policies.
type policiesReport struct {
	policies []v1alpha1.RegoPolicy
	wide     bool
	// serving is which policies each replica has reported.
	serving map[string]string
}

func (r *policiesReport) text(p *page) {
	header := []string{"NAME", "MODE", "ACTIVE", "REVISION", "EDITED"}
	if r.wide {
		header = append(header, "PACKAGE", "ON-ERROR", "TESTS", "AGE")
	}
	p.row(header...)
	for i := range r.policies {
		policy := &r.policies[i]
		cells := []string{policy.Name, mode(policy), active(policy), cmp.Or(short(policy.Status.ActiveRevision), "-"), editedShort(policy)}
		if r.wide {
			cells = append(cells, policy.Spec.Package, string(policy.Spec.OnError), tests(policy), p.ago(policy.CreationTimestamp.Time))
		}
		p.row(cells...)
	}
	for i := range r.policies {
		policy := &r.policies[i]
		if wrong := p.problems(policy); len(wrong) > 0 {
			p.line("\n%s:", policy.Name)
			for _, text := range wrong {
				p.row("  " + text)
			}
		}
	}
	r.replicas(p)
}

// replicas tells which policies each replica has, if not all have the same.
func (r *policiesReport) replicas(p *page) {
	different := map[string]bool{}
	for _, hash := range r.serving {
		different[hash] = true
	}
	if len(different) < 2 {
		return
	}
	p.line("\nThe replicas do not have the same policies, which is so for a second after an edit:")
	for _, name := range slices.Sorted(maps.Keys(r.serving)) {
		p.row("  "+name, cmp.Or(short(r.serving[name]), "none yet"))
	}
}

// mode is what a denial does; a library has none.
func mode(policy *v1alpha1.RegoPolicy) string {
	if policy.Spec.Library {
		return "library"
	}
	return string(policy.Spec.Mode)
}

// active says in a word or two what decides.
func active(policy *v1alpha1.RegoPolicy) string {
	c := conditionOf(policy, v1alpha1.ConditionActive)
	if c == nil && policy.Spec.Library {
		c = conditionOf(policy, v1alpha1.ConditionCompiled) // all that there is to say of a library
	}
	switch {
	case c == nil || c.Status == metav1.ConditionUnknown:
		return "unknown"
	case c.Status == metav1.ConditionFalse:
		return "none"
	case c.Reason == string(v1alpha1.ReasonLastGoodRevision):
		return "last good"
	}
	return "current"
}

// edited lists the fields that differ from what is shipped: none if none does, or if the policy is not shipped. The condition has
// them in a sentence: "Not as shipped: spec.mode, spec.onError. To give them back: ...".
func edited(policy *v1alpha1.RegoPolicy) []string {
	c := conditionOf(policy, v1alpha1.ConditionEdited)
	if c == nil || c.Status != metav1.ConditionTrue {
		return nil
	}
	_, list, _ := strings.Cut(c.Message, ": ")
	list, _, _ = strings.Cut(list, ". To ")
	return strings.Split(cmp.Or(list, c.Message, "yes"), ", ")
}

// editedShort is for a column.
func editedShort(policy *v1alpha1.RegoPolicy) string {
	fields := edited(policy)
	if more := len(fields) - shownFields; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(fields[:shownFields], ", "), more)
	}
	return cmp.Or(strings.Join(fields, ", "), "-")
}

func tests(policy *v1alpha1.RegoPolicy) string {
	t := policy.Status.Tests
	switch {
	case t == nil:
		return "not run"
	case t.Failed > 0:
		return fmt.Sprintf("%d failed", t.Failed)
	}
	return fmt.Sprintf("%d passed", t.Passed)
}

func short(hash string) string { return hash[:min(len(hash), shortHash)] }

// problems are what is wrong with a policy, as its conditions say it.
func (p *page) problems(policy *v1alpha1.RegoPolicy) []string {
	var found []string
	if seen := policy.Status.ObservedGeneration; seen < policy.Generation {
		found = append(found, fmt.Sprintf("Sallyport has not looked at it as it is now (generation %d, seen %d); if that lasts, it does not run", policy.Generation, seen))
	}
	for i := range policy.Status.Conditions {
		c := &policy.Status.Conditions[i]
		if !troubles(c) {
			continue
		}
		text := fmt.Sprintf("%s%s: %s", c.Reason, p.since(c.LastTransitionTime.Time), c.Message)
		found = append(found, strings.Split(strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  "), "\n")...)
	}
	return found
}

// troubles tells whether a condition says that something is wrong. An edited policy is none the worse for it, and tests that were
// not run are no failure. Ready has nothing that the others do not have, but since when the last good revision decides: Active is
// true then as it was before.
func troubles(c *metav1.Condition) bool {
	switch v1alpha1.ConditionType(c.Type) {
	case v1alpha1.ConditionEdited:
		return false
	case v1alpha1.ConditionReady:
		return c.Reason == string(v1alpha1.ReasonLastGoodRevision)
	}
	return c.Status == metav1.ConditionFalse || c.Status == metav1.ConditionUnknown && c.Type != string(v1alpha1.ConditionTestsPassed)
}

// policyReport is what is known of one policy.
type policyReport struct {
	policy *v1alpha1.RegoPolicy
}

func (r *policyReport) text(p *page) {
	o := r.policy
	spec := &o.Spec
	p.line("RegoPolicy %s, package %s\n", o.Name, spec.Package)
	if spec.Library {
		p.row("Library:", "it decides nothing itself: others import it")
	} else {
		p.row("Mode:", fmt.Sprintf("%s; on error %s; %d ms for a decision", spec.Mode, spec.OnError, spec.TimeoutMilliseconds))
		r.match(p)
	}
	var reads []string
	for _, read := range spec.Reads {
		reads = append(reads, read.Kind+" ("+read.APIVersion+")")
	}
	p.row("Reads:", strings.Join(reads, "\n"))
	p.row("Active:", active(o))
	p.row("Revision:", o.Status.ActiveRevision)
	p.row("Tests:", r.tests())
	switch release := o.Annotations[releaseAnnotation]; release {
	case "":
	case shipping.ResetAsked:
		p.row("Shipped:", "it is being reset to what is shipped")
	default:
		p.row("Shipped by:", "release "+release)
	}
	p.row("Edited:", strings.Join(edited(o), "\n"))
	p.row("Age:", p.ago(o.CreationTimestamp.Time))
	p.deletion(&o.ObjectMeta)
	p.row("Problems:", strings.Join(p.problems(o), "\n"))
	p.line("")
	p.row("See it:", "kubectl get rego "+o.Name+" -o yaml")
	p.row("Change it:", "kubectl edit rego "+o.Name)
	if len(edited(o)) > 0 {
		p.row("As shipped:", "kubectl sallyport policies reset "+o.Name)
	}
}

// match says which requests the policy is asked about, and which it is not.
func (r *policyReport) match(p *page) {
	m := r.policy.Spec.Match
	if m == nil {
		return
	}
	var what []string
	for _, entry := range m.Resources {
		operations := make([]string, len(entry.Operations))
		for i, o := range entry.Operations {
			operations[i] = string(o)
		}
		groups := slices.Clone(entry.APIGroups)
		for i, g := range groups {
			groups[i] = cmp.Or(g, "the core group")
		}
		what = append(what, fmt.Sprintf("%s of %s in %s",
			strings.Join(operations, ", "), strings.Join(entry.Resources, ", "), strings.Join(groups, ", ")))
	}
	p.row("Is asked at:", strings.Join(what, "\n"))
	if s := m.NamespaceSelector; s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0 {
		p.row("Namespaces:", metav1.FormatLabelSelector(s))
	}
	var not []string
	for _, excluded := range []struct {
		what  string
		names []string
	}{{"namespaces", m.ExcludeNamespaces}, {"users", m.ExcludeUsers}, {"groups", m.ExcludeGroups}} {
		if len(excluded.names) > 0 {
			not = append(not, excluded.what+" "+strings.Join(excluded.names, ", "))
		}
	}
	p.row("Leaves out:", strings.Join(not, "\n"))
}

func (r *policyReport) tests() string {
	t := r.policy.Status.Tests
	if t == nil {
		return ""
	}
	return fmt.Sprintf("%d passed, %d failed", t.Passed, t.Failed)
}
