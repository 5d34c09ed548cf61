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

// policiesReport describes several policies.
type policiesReport struct {
	policies []v1alpha1.RegoPolicy
	// serving is the hash of the policies of each replica.
	serving map[string]string
	// unserved reports that no replica is serving.
	unserved bool
}

func (r *policiesReport) text(p *page) {
	p.row("NAME", "MODE", "ACTIVE", "REVISION", "VIOLATIONS", "EDITED")
	for i := range r.policies {
		policy := &r.policies[i]
		p.row(policy.Name, mode(policy), r.active(policy), cmp.Or(short(policy.Status.ActiveRevision), "-"), violations(policy), editedShort(policy))
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

// replicas prints the hash of each replica, if they differ.
func (r *policiesReport) replicas(p *page) {
	different := map[string]bool{}
	for _, hash := range r.serving {
		different[hash] = true
	}
	if len(different) < 2 {
		return
	}
	p.line("\nThe replicas have different policies (expected for about a second after an edit):")
	for _, name := range slices.Sorted(maps.Keys(r.serving)) {
		p.row("  "+name, cmp.Or(short(r.serving[name]), "none yet"))
	}
}

// mode is the mode of a policy, with a note if it differs in some namespaces.
func mode(policy *v1alpha1.RegoPolicy) string {
	switch {
	case policy.Spec.Library:
		return "library"
	case len(policy.Spec.NamespaceModes) > 0:
		return string(policy.Spec.Mode) + ", others"
	}
	return string(policy.Spec.Mode)
}

// violations is the number of existing objects that violate a policy, or "-" if the audit has no result.
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

// active is the active revision in a word or two, or "none" if no replica is serving.
func (r *policiesReport) active(policy *v1alpha1.RegoPolicy) string {
	if r.unserved {
		return "none"
	}
	return active(policy)
}

// reported is how long ago Sallyport last confirmed the status.
func (p *page) reported(policy *v1alpha1.RegoPolicy) string {
	if at := policy.Status.ReportedAt; at != nil {
		return p.ago(at.Time)
	}
	return "-"
}

// active is the active revision in a word or two, according to the status.
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

// edited lists the fields that differ from the shipped policy.
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

func short(hash string) string { return hash[:min(len(hash), shortHash)] }

// problems lists the problems of a policy from its conditions.
func (p *page) problems(policy *v1alpha1.RegoPolicy) []string {
	var found []string
	if seen := policy.Status.ObservedGeneration; seen < policy.Generation {
		found = append(found, fmt.Sprintf("waiting to be reconciled (generation %d, observed %d); if this persists, Sallyport is not running", policy.Generation, seen))
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

// troubles reports whether a condition is a problem. Edits and tests that did not run are not problems. Ready only repeats the other
// conditions, except that it has the time since when the last good revision is active.
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
