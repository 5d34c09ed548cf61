package plugin

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/duration"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/commands"
)

func (r *objectReport) text(p *page) {
	o := r.Object
	where := ""
	if o.Namespace != "" {
		where = " in namespace " + o.Namespace
	}
	p.line("%s %s%s\n", o.Kind, o.Name, where)
	p.row("Age:", p.ago(o.CreationTimestamp.Time))
	if r.Replicas != nil {
		p.row("Replicas:", fmt.Sprint(*r.Replicas))
	}
	if r.Template != nil {
		r.Template.text(p)
	}
	if r.Image != nil {
		r.Image.text(p)
	}
	if r.Server != nil {
		r.Server.text(p)
	}
	if r.Pool != nil {
		r.Pool.text(p)
	}
	if o.GroupVersionKind().GroupKind() == v1alpha1.GroupVersion.WithKind(policyKind).GroupKind() {
		p.row("Policy status:", policiesCommand(o.Name))
	}
	var owners []string
	for i := range r.Owners {
		owners = append(owners, r.Owners[i].text(o.Namespace)...)
	}
	p.row("Owner:", strings.Join(owners, "\n"))
	p.row("Guards:", r.guards())
	p.row("Override:", r.override(p))
	var conditions []string
	for i := range r.Conditions {
		if r.Image != nil {
			break // its own rows have them
		}
		conditions = append(conditions, r.Conditions[i].Type+" "+p.condition(&r.Conditions[i]))
	}
	deleted := o.ObjectMeta.DeepCopy()
	deleted.Finalizers = r.Finalizers
	p.deletion(deleted, conditions...)
	var events []string
	for _, e := range r.Events {
		times := ""
		if e.Count > 1 {
			times = fmt.Sprintf(", %d times", e.Count)
		}
		events = append(events, fmt.Sprintf("%s %s ago%s: %s", e.Reason, p.ago(e.At), times, inShort(e.Note)))
	}
	p.row("Events:", strings.Join(events, "\n"))
	p.row("Unknown:", strings.Join(r.Unknown, "\n"))
	p.answers(r.Requests, objection.whole)
	p.diagnose(strings.ToLower(o.Kind), r.Requests)
}

// guards lists the labels and annotations that protect an object.
func (r *objectReport) guards() string {
	var guards []string
	switch value, is := r.Object.Labels[v1alpha1.LabelDeletionProtection]; {
	case is && value == v1alpha1.DeletionProtectionEnabled:
		guards = append(guards, "label "+v1alpha1.LabelDeletionProtection+"="+value)
	case is:
		guards = append(guards, fmt.Sprintf("label %s=%s (no effect: the value must be %s)",
			v1alpha1.LabelDeletionProtection, value, v1alpha1.DeletionProtectionEnabled))
	}
	for _, key := range []string{v1alpha1.AnnotationScaleDown, v1alpha1.AnnotationMinReplicas, v1alpha1.AnnotationMaxScaleDown} {
		if value, is := r.Object.Annotations[key]; is {
			guards = append(guards, "annotation "+key+"="+value)
		}
	}
	return strings.Join(guards, "\n")
}

// override describes the override annotation if it can still be valid. The API server decides whose requests it applies to.
func (r *objectReport) override(p *page) string {
	o := r.Override
	if o == nil || o.UID != r.Object.UID || !o.Until.After(p.now) {
		return ""
	}
	return fmt.Sprintf("policy %s, by %s, for another %s: %s", o.Policy, o.By, duration.HumanDuration(o.Until.Sub(p.now)), o.Reason)
}

// text names an owner and the owners above it, and the controller to change instead of the object.
func (o *owner) text(namespace string) []string {
	text, top := o.called(), o
	for above := o.Owner; above != nil; above = above.Owner {
		text, top = text+" of "+above.called(), above
	}
	switch {
	case o.Controller != nil && *o.Controller && o.stays() && top.stays():
		look := commands.Line(append([]string{"kubectl", "sallyport", "why"}, commands.Object(top.Resource, namespace, top.Name)...)...)
		return []string{text, "its controller can recreate or rescale the object; see: " + look}
	case o.State == "":
		text += " (the object is deleted with its owner)"
	}
	return []string{text}
}

// stays reports whether an owner exists and is not being deleted, as far as known.
func (o *owner) stays() bool {
	return o.Resource != "" && o.State != ownerGone && o.State != ownerGoing
}

func (o *owner) called() string {
	text := o.Kind + " " + o.Name
	if o.State != "" {
		text += " (" + o.State + ")"
	}
	return text
}
