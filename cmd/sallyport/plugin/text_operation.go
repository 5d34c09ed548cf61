package plugin

import (
	"fmt"
	"strings"
	"time"

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
	p.row("In place of:", strings.Join(taken, ", "))
	asked := p.ago(o.CreationTimestamp.Time) + " ago"
	if o.Spec.RequestedBy != nil {
		asked += " by " + o.Spec.RequestedBy.Username
	}
	p.row("Asked for:", asked)
	p.row("Runtime told:", p.condition(v1alpha1.ConditionSignalSent.In(o.Status.Conditions)))
	if o.Finished() {
		p.row("Is kept:", r.expiry(p))
	} else {
		p.row("Deadline:", p.ahead(o.CreationTimestamp.Add(o.ActiveDeadline())))
	}
	p.deletion(&o.ObjectMeta)
	if !o.Finished() {
		r.machine(p)
	}
}

// since is when the operation came to the state that it is in.
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

// machine shows who holds the machine that the operation waits for or works on.
func (r *operationReport) machine(p *page) {
	if r.Machine == nil {
		p.row("Its machine:", r.MachineError)
		return
	}
	p.line("\nVirtualMachine %s, which is %s:\n", r.Machine.Name, r.Machine.Status.Phase)
	p.claim(&r.Machine.Status, map[string]string{string(r.Operation.UID): "which is this one"})
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
		return "no longer: it will be deleted"
	}
	return "for another " + duration.HumanDuration(left)
}

// ahead is how far off a time is.
func (p *page) ahead(at time.Time) string {
	if !at.After(p.now) {
		return p.ago(at) + " ago"
	}
	return "in " + duration.HumanDuration(at.Sub(p.now))
}
