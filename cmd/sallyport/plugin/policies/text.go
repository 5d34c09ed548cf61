package policies

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
	"sallyport.dev/sallyport/commands"
	pages "sallyport.dev/sallyport/policies/describe"
	"sallyport.dev/sallyport/reconcilers/policy/shipping"
	"sallyport.dev/sallyport/webhooks/record"
)

// shortHash is how much of a revision a person can compare.
const shortHash = 10

// shownFields is how many edited fields a column has room for.
const shownFields = 2

type policiesReport struct {
	policies []v1alpha1.RegoPolicy
	// serving is the hash of the policies of each replica.
	serving map[string]string
	// denials are those of all replicas, by policy; nil if they are unknown.
	denials map[string]record.Denials
	// unserved reports that no replica is serving.
	unserved bool
}

func (r *policiesReport) Text(p *cli.Page) {
	p.Row("NAME", "MODE", "ACTIVE", "REVISION", "DENIED", "WOULD DENY", "VIOLATIONS", "EDITED")
	for i := range r.policies {
		policy := &r.policies[i]
		denied, would := r.denied(policy)
		p.Row(policy.Name, mode(policy), r.active(policy), cmp.Or(short(policy.Status.ActiveRevision), "-"), denied, would, violations(policy), cmp.Or(cli.SomeOf(edited(policy), shownFields), "-"))
	}
	for i := range r.policies {
		policy := &r.policies[i]
		if wrong := problems(p, policy); len(wrong) > 0 {
			p.Line("\n%s:", policy.Name)
			for _, text := range wrong {
				p.Row("  " + text)
			}
		}
	}
	r.replicas(p)
}

// replicas prints the hash of each replica, if they differ.
func (r *policiesReport) replicas(p *cli.Page) {
	different := map[string]bool{}
	for _, hash := range r.serving {
		different[hash] = true
	}
	if len(different) < 2 {
		return
	}
	p.Line("\nThe replicas have different policies (expected for about a second after an edit):")
	for _, name := range slices.Sorted(maps.Keys(r.serving)) {
		p.Row("  "+name, cmp.Or(short(r.serving[name]), "none yet"))
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

// denied is how often a policy denied a request, and how often only its mode admitted one.
func (r *policiesReport) denied(policy *v1alpha1.RegoPolicy) (denied, would string) {
	if r.denials == nil || policy.Spec.Library {
		return "-", "-"
	}
	n := r.denials[policy.Name]
	return fmt.Sprint(n.Denied), fmt.Sprint(n.WouldDeny)
}

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

func short(hash string) string { return hash[:min(len(hash), shortHash)] }

func problems(p *cli.Page, policy *v1alpha1.RegoPolicy) []string {
	var found []string
	if seen := policy.Status.ObservedGeneration; seen < policy.Generation {
		found = append(found, fmt.Sprintf("waiting to be reconciled (generation %d, observed %d); if this persists, Sallyport is not running", policy.Generation, seen))
	}
	for i := range policy.Status.Conditions {
		c := &policy.Status.Conditions[i]
		if !troubles(c) {
			continue
		}
		text := fmt.Sprintf("%s%s: %s", c.Reason, p.Since(c.LastTransitionTime.Time), c.Message)
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

type policyReport struct {
	policy *v1alpha1.RegoPolicy
	// denials are those of all replicas; nil if they are unknown.
	denials *record.Denials
	// unserved is why no policy is evaluated, or "".
	unserved string
}

func (r *policyReport) Text(p *cli.Page) {
	o := r.policy
	spec := &o.Spec
	p.Line("RegoPolicy %s, package %s\n", o.Name, spec.Package)
	for _, fact := range pages.Facts(spec, func(name string) string { return name }) {
		p.Row(strings.ToUpper(fact[0][:1])+fact[0][1:]+":", fact[1])
	}
	if m := spec.Match; m != nil {
		for _, c := range m.Conditions {
			p.Row("Condition:", c.Name+": "+cli.Shorten(c.Expression))
		}
	}
	if r.unserved != "" {
		p.Row("Active:", "none: "+r.unserved)
	} else {
		p.Row("Active:", active(o))
	}
	p.Row("Revision:", o.Status.ActiveRevision)
	p.Row("Tests:", r.tests())
	if n := r.denials; n != nil {
		p.Row("Requests:", fmt.Sprintf("%d denied, %d would be denied in mode Enforce, since the replicas started", n.Denied, n.WouldDeny))
	}
	p.Row("Violations:", r.violations(p))
	switch release := o.Annotations[shipping.ReleaseAnnotation]; release {
	case "":
	case shipping.ResetAsked:
		p.Row("Shipped:", "reset to the shipped policy in progress")
	default:
		p.Row("Shipped by:", "release "+release)
	}
	p.Row("Edited:", strings.Join(edited(o), "\n"))
	if at := o.Status.ReportedAt; at != nil {
		p.Row("Reported:", p.Ago(at.Time)+" ago")
	}
	p.Row("Age:", p.Ago(o.CreationTimestamp.Time))
	p.Deletion(&o.ObjectMeta)
	p.Row("Problems:", strings.Join(problems(p, o), "\n"))
	p.Line("")
	p.Row("View:", commands.Line("kubectl", "get", "rego", o.Name, "-o", "yaml"))
	p.Row("Edit:", commands.Line("kubectl", "edit", "rego", o.Name))
	if len(edited(o)) > 0 {
		p.Row("Reset:", commands.Line("kubectl", "sallyport", "policies", "reset", o.Name))
	}
}

// shownViolations is how many violating objects are listed.
const shownViolations = 5

func (r *policyReport) violations(p *cli.Page) string {
	v := r.policy.Status.Violations
	if v == nil {
		return ""
	}
	text := fmt.Sprintf("at least %d of %d audited objects, %s ago", v.AtLeast, v.Objects, p.Ago(v.AuditedAt.Time))
	if v.Count != nil {
		text = fmt.Sprintf("%d of %d objects, %s ago", *v.Count, v.Objects, p.Ago(v.AuditedAt.Time))
	}
	if v.Revision != r.policy.Status.ActiveRevision {
		text += ", by revision " + short(v.Revision)
	}
	if v.Undecided > 0 {
		text += fmt.Sprintf("; %d undecided", v.Undecided)
	}
	lines := []string{text}
	if v.Incomplete != "" {
		lines = append(lines, "incomplete: "+v.Incomplete)
	}
	return strings.Join(append(lines, violators(v, shownViolations)...), "\n")
}

// violators lists violating objects, one on each line, and the number of further ones.
func violators(v *v1alpha1.PolicyViolations, most int) (lines []string) {
	shown := v.First[:min(len(v.First), most)]
	for _, o := range shown {
		name := strings.TrimPrefix(o.Namespace+"/"+o.Name, "/")
		lines = append(lines, fmt.Sprintf("%s %s: %s: %s", o.Kind, name, o.Reason, cli.OneLine(o.Message)))
	}
	if more := int(ptr.Deref(v.Count, v.AtLeast)) - len(shown); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return lines
}

func (r *policyReport) tests() string {
	t := r.policy.Status.Tests
	if t == nil {
		return ""
	}
	return fmt.Sprintf("%d passed, %d failed", t.Passed, t.Failed)
}
