package plugin

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"sallyport.dev/sallyport/api/v1alpha1"
)

func (r *operationReport) text(p *page) {
	o := r.Operation
	p.line("VirtualMachineOperation %s in namespace %s: %s of VirtualMachine %s\n",
		o.Name, o.Namespace, called(o.Spec.Type, o.Spec.Force), o.Spec.VirtualMachineName)
	p.row("State:", state(o)+r.since(p))
	if s := o.Status.SupersededBy; s != nil && !strings.Contains(state(o), s.Name) {
		p.row("Superseded by:", by(s))
	}
	var taken []string
	for _, s := range o.Status.Supersedes {
		taken = append(taken, s.Name)
	}
	p.row("Supersedes:", strings.Join(taken, ", "))
	asked := p.ago(o.CreationTimestamp.Time) + " ago"
	if o.Spec.RequestedBy != nil {
		asked += " by " + o.Spec.RequestedBy.Username
	}
	p.row("Requested:", asked)
	p.row("Signal:", p.signal(v1alpha1.ConditionSignalSent.In(o.Status.Conditions)))
	if o.Finished() {
		p.row("Expires:", r.expiry(p))
	} else {
		p.row("Deadline:", p.ahead(o.CreationTimestamp.Add(o.ActiveDeadline())))
	}
	p.deletion(&o.ObjectMeta)
	if !o.Finished() {
		r.machine(p)
	}
}

// signal formats condition SignalSent: "sent 2s ago: power-off sent".
func (p *page) signal(c *metav1.Condition) string {
	switch {
	case c == nil:
		return ""
	case c.Status != metav1.ConditionTrue:
		return p.condition(c)
	}
	text := "sent"
	if at := c.LastTransitionTime.Time; !at.IsZero() {
		text += " " + p.ago(at) + " ago"
	}
	if c.Message != "" {
		text += ": " + c.Message
	}
	return text
}

// since is the time since the operation entered its state.
func (r *operationReport) since(p *page) string {
	status := &r.Operation.Status
	if r.Operation.Finished() && status.CompletionTime != nil {
		return fmt.Sprintf(" (%s ago)", p.ago(status.CompletionTime.Time))
	}
	if c := v1alpha1.ConditionCompleted.In(status.Conditions); c != nil && !r.Operation.Finished() {
		return fmt.Sprintf(" (for %s)", p.ago(c.LastTransitionTime.Time))
	}
	return ""
}

// machine prints the claim on the machine of the operation.
func (r *operationReport) machine(p *page) {
	if r.Machine == nil {
		p.row("Machine:", r.MachineError)
		return
	}
	p.line("\nVirtualMachine %s (%s):\n", r.Machine.Name, r.Machine.Status.Phase)
	p.claim(&r.Machine.Status, map[string]string{string(r.Operation.UID): "this operation"})
	ready := v1alpha1.ConditionReady.In(r.Machine.Status.Conditions)
	p.row("Ready:", p.condition(ready))
}

func (r *operationReport) expiry(p *page) string {
	ttl, end := r.Operation.Spec.TTLSecondsAfterFinished, r.Operation.Status.CompletionTime
	if ttl == nil || end == nil {
		return ""
	}
	left := end.Add(time.Duration(*ttl) * time.Second).Sub(p.now)
	if left <= 0 {
		return "now"
	}
	return "in " + duration.HumanDuration(left)
}

// ahead is the time until at, or since at.
func (p *page) ahead(at time.Time) string {
	if !at.After(p.now) {
		return p.ago(at) + " ago"
	}
	return "in " + duration.HumanDuration(at.Sub(p.now))
}
