package plugin

import (
	"fmt"
	"strings"

	"k8s.io/utils/ptr"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/commands"
	pages "sallyport.dev/sallyport/policies/describe"
	"sallyport.dev/sallyport/reconcilers/policy/shipping"
)

// policyReport describes one policy.
type policyReport struct {
	policy *v1alpha1.RegoPolicy
	// unserved is why no policy is evaluated, or "".
	unserved string
}

func (r *policyReport) text(p *page) {
	o := r.policy
	spec := &o.Spec
	p.line("RegoPolicy %s, package %s\n", o.Name, spec.Package)
	for _, fact := range pages.Facts(spec, func(name string) string { return name }) {
		p.row(strings.ToUpper(fact[0][:1])+fact[0][1:]+":", fact[1])
	}
	if m := spec.Match; m != nil {
		for _, c := range m.Conditions {
			p.row("Condition:", c.Name+": "+inShort(c.Expression))
		}
	}
	if r.unserved != "" {
		p.row("Active:", "none: "+r.unserved)
	} else {
		p.row("Active:", active(o))
	}
	p.row("Revision:", o.Status.ActiveRevision)
	p.row("Tests:", r.tests())
	p.row("Violations:", r.violations(p))
	switch release := o.Annotations[releaseAnnotation]; release {
	case "":
	case shipping.ResetAsked:
		p.row("Shipped:", "reset to the shipped policy in progress")
	default:
		p.row("Shipped by:", "release "+release)
	}
	p.row("Edited:", strings.Join(edited(o), "\n"))
	if o.Status.ReportedAt != nil {
		p.row("Reported:", p.reported(o)+" ago")
	}
	p.row("Age:", p.ago(o.CreationTimestamp.Time))
	p.deletion(&o.ObjectMeta)
	p.row("Problems:", strings.Join(p.problems(o), "\n"))
	p.line("")
	p.row("View:", commands.Line("kubectl", "get", "rego", o.Name, "-o", "yaml"))
	p.row("Edit:", commands.Line("kubectl", "edit", "rego", o.Name))
	if len(edited(o)) > 0 {
		p.row("Reset:", commands.Line("kubectl", "sallyport", "policies", "reset", o.Name))
	}
}

// shownViolations is how many violating objects are listed.
const shownViolations = 5

// violations is the result of the audit of existing objects.
func (r *policyReport) violations(p *page) string {
	v := r.policy.Status.Violations
	if v == nil {
		return ""
	}
	text := fmt.Sprintf("at least %d of %d audited objects, %s ago", v.AtLeast, v.Objects, p.ago(v.AuditedAt.Time))
	if v.Count != nil {
		text = fmt.Sprintf("%d of %d objects, %s ago", *v.Count, v.Objects, p.ago(v.AuditedAt.Time))
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
		lines = append(lines, fmt.Sprintf("%s %s: %s: %s", o.Kind, name, o.Reason, inShort(o.Message)))
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

// policiesCommand is the command that shows a policy.
func policiesCommand(name string) string {
	return commands.Line("kubectl", "sallyport", "policies", name)
}
