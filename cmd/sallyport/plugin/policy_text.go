package plugin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/policy/shipping"
)

// policyReport is what is known of one policy.
type policyReport struct {
	policy *v1alpha1.RegoPolicy
	// unserved is why no replica decides; "" if nothing says so.
	unserved string
}

func (r *policyReport) text(p *page) {
	o := r.policy
	spec := &o.Spec
	p.line("RegoPolicy %s, package %s\n", o.Name, spec.Package)
	if spec.Library {
		p.row("Library:", "it decides nothing itself: others import it")
	} else {
		p.row("Mode:", r.modes())
		p.row("Override:", overriders[spec.Override])
		r.match(p)
	}
	var reads []string
	for _, read := range spec.Reads {
		text := read.Kind + " (" + read.APIVersion + ")"
		if read.Freshness == v1alpha1.ReadLive {
			text += ", asked for each time"
		}
		reads = append(reads, text)
	}
	p.row("Reads:", strings.Join(reads, "\n"))
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
		p.row("Shipped:", "it is being reset to what is shipped")
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
	p.row("Namespaces:", selected(m.NamespaceSelector))
	p.row("Objects:", selected(m.ObjectSelector))
	var conditions []string
	for _, c := range m.Conditions {
		conditions = append(conditions, c.Name+": "+inShort(c.Expression))
	}
	p.row("Only if:", strings.Join(conditions, "\n"))
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

// selected says which labels something must have; nothing if it needs none.
func selected(s *metav1.LabelSelector) string {
	if s == nil || len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		return ""
	}
	return metav1.FormatLabelSelector(s)
}

// overriders says who may have a request pass in spite of a denial.
var overriders = map[v1alpha1.PolicyOverride]string{
	v1alpha1.OverrideUsers:     "by who holds the verb override on it, service accounts excepted",
	v1alpha1.OverrideEverybody: "by who holds the verb override on it, service accounts too",
	v1alpha1.OverrideNobody:    "by nobody",
}

// modes says what a denial does, and where something else. The first that selects a namespace counts.
func (r *policyReport) modes() string {
	spec := &r.policy.Spec
	text := fmt.Sprintf("%s; on error %s; %d ms for a decision", spec.Mode, spec.OnError, spec.TimeoutMilliseconds)
	for i := range spec.NamespaceModes {
		n := &spec.NamespaceModes[i]
		text += fmt.Sprintf("\n%s in namespaces with %s", n.Mode, cmp.Or(selected(&n.NamespaceSelector), "any labels"))
	}
	return text
}

// shownViolations is how many objects are named that a policy would refuse.
const shownViolations = 5

// violations says what was found when the objects that there are were held against the policy.
func (r *policyReport) violations(p *page) string {
	v := r.policy.Status.Violations
	if v == nil {
		return ""
	}
	text := fmt.Sprintf("%d or more, of %d objects that were looked at, %s ago", v.AtLeast, v.Objects, p.ago(v.AuditedAt.Time))
	if v.Count != nil {
		text = fmt.Sprintf("%d of %d objects, %s ago", *v.Count, v.Objects, p.ago(v.AuditedAt.Time))
	}
	if v.Revision != r.policy.Status.ActiveRevision {
		text += ", by revision " + short(v.Revision)
	}
	if v.Undecided > 0 {
		text += fmt.Sprintf("; %d could not be judged", v.Undecided)
	}
	lines := []string{text}
	if v.Incomplete != "" {
		lines = append(lines, "not complete: "+v.Incomplete)
	}
	if v.Unwatched != "" {
		lines = append(lines, v.Unwatched)
	}
	return strings.Join(append(lines, violators(v, shownViolations)...), "\n")
}

// violators names objects that a policy would refuse, a line each, and says how many more there are.
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
