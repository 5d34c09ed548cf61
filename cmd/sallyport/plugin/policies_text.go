package plugin

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// shortHash is how much of a revision a person can compare.
const shortHash = 10

// shownFields is how many edited fields a column has room for.
const shownFields = 2

// policiesReport is what is known of several policies.
type policiesReport struct {
	policies []v1alpha1.RegoPolicy
	wide     bool
	headless bool
	// serving is which policies each replica has reported.
	serving map[string]string
	// unserved is that no replica decides.
	unserved bool
}

func (r *policiesReport) text(p *page) {
	if !r.headless {
		r.header(p)
	}
	for i := range r.policies {
		r.row(p, &r.policies[i])
	}
	if r.headless {
		return // for programs: rows and nothing else
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

func (r *policiesReport) header(p *page) {
	header := []string{"NAME", "MODE", "ACTIVE", "REVISION", "VIOLATIONS", "EDITED"}
	if r.wide {
		header = append(header, "PACKAGE", "ON-ERROR", "OVERRIDE", "TESTS", "REPORTED", "AGE")
	}
	p.row(header...)
}

func (r *policiesReport) row(p *page, policy *v1alpha1.RegoPolicy) {
	override := cmp.Or(string(policy.Spec.Override), "-")
	if policy.Spec.Library {
		override = "-"
	}
	cells := []string{policy.Name, mode(policy), r.active(policy), cmp.Or(short(policy.Status.ActiveRevision), "-"), violations(policy), editedShort(policy)}
	if r.wide {
		cells = append(cells, policy.Spec.Package, string(policy.Spec.OnError), override, tests(policy), p.reported(policy), p.ago(policy.CreationTimestamp.Time))
	}
	p.row(cells...)
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

// mode is what a denial does, and whether it does something else in some namespaces; a library has none.
func mode(policy *v1alpha1.RegoPolicy) string {
	switch {
	case policy.Spec.Library:
		return "library"
	case len(policy.Spec.NamespaceModes) > 0:
		return string(policy.Spec.Mode) + ", others"
	}
	return string(policy.Spec.Mode)
}

// violations is how many objects a policy would refuse, if it is held against those that there are; not a number as long as not all
// were looked at.
func violations(policy *v1alpha1.RegoPolicy) string {
	v := policy.Status.Violations
	switch {
	case v != nil && v.Count != nil:
		return fmt.Sprint(*v.Count)
	case v != nil && v.AtLeast > 0:
		return fmt.Sprintf("%d+", v.AtLeast)
	}
	return "-"
}

// active says in a word or two what decides, if a replica does.
func (r *policiesReport) active(policy *v1alpha1.RegoPolicy) string {
	if r.unserved {
		return "none"
	}
	return active(policy)
}

// reported is how long ago Sallyport has last said that the status is true.
func (p *page) reported(policy *v1alpha1.RegoPolicy) string {
	if at := policy.Status.ReportedAt; at != nil {
		return p.ago(at.Time)
	}
	return "-"
}

// active says in a word or two what decides, as the status has it.
func active(policy *v1alpha1.RegoPolicy) string {
	c := v1alpha1.ConditionActive.In(policy.Status.Conditions)
	if c == nil && policy.Spec.Library {
		c = v1alpha1.ConditionCompiled.In(policy.Status.Conditions) // all that there is to say of a library
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

// edited lists the fields that differ from what is shipped: none if none does, or if the policy is not shipped.
func edited(policy *v1alpha1.RegoPolicy) []string {
	c := v1alpha1.ConditionEdited.In(policy.Status.Conditions)
	if c == nil || c.Status != metav1.ConditionTrue {
		return nil
	}
	if len(policy.Status.EditedFields) == 0 { // of a manager that does not list them
		return []string{"yes"}
	}
	return policy.Status.EditedFields
}

// editedShort is for a column.
func editedShort(policy *v1alpha1.RegoPolicy) string {
	return cmp.Or(someOf(edited(policy), shownFields), "-")
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
	if c.Reason == string(v1alpha1.ReasonNobodyDecides) {
		return false // it is said once, of all
	}
	return c.Status == metav1.ConditionFalse || c.Status == metav1.ConditionUnknown && c.Type != string(v1alpha1.ConditionTestsPassed)
}
