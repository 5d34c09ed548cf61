package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
	"sallyport.dev/sallyport/commands"
)

func (r *machineReport) Text(p *cli.Page) {
	m := r.Machine
	status := &m.Status
	p.Line("VirtualMachine %s in namespace %s\n", m.Name, m.Namespace)
	phase := string(cmp.Or(status.Phase, v1alpha1.VirtualMachinePending))
	if status.NodeName != "" {
		phase += " on node " + status.NodeName
	}
	p.Row("Phase:", phase)
	p.Row("Guest:", guest(status))
	ready := v1alpha1.ConditionReady.In(status.Conditions)
	p.Row("Ready:", cmp.Or(p.Condition(ready), "Unknown: waiting to be reconciled"))
	if c := v1alpha1.ConditionReadOnly.In(status.Conditions); c != nil {
		p.Row("Read-only:", c.Message)
	}
	if c := v1alpha1.ConditionPlacementSettled.In(status.Conditions); c != nil && c.Status != "True" {
		p.Row("Placement:", p.Condition(c))
	}
	if c := v1alpha1.ConditionDisksAttached.In(status.Conditions); c != nil && c.Status != "True" {
		p.Row("Disks:", p.Condition(c))
	}
	states := map[string]string{}
	for i := range r.Unfinished {
		states[string(r.Unfinished[i].UID)] = cli.State(&r.Unfinished[i])
	}
	printClaim(p, status, states)
	p.Row("Waiting:", r.waiting(p))
	p.Row("Run policy:", string(m.Spec.RunPolicy))
	p.Row("Power intent:", r.intent(p))
	p.Deletion(&m.ObjectMeta, abandon(m)...)
	printAnswers(p, r.Requests, shortText)
	printDiagnosis(p, "machine", r.Requests)
}

// abandon returns how to delete a machine without its instance, if its runtime blocks the deletion.
func abandon(m *v1alpha1.VirtualMachine) []string {
	ready := v1alpha1.ConditionReady.In(m.Status.Conditions)
	if ready == nil || !slices.Contains(m.Finalizers, v1alpha1.VirtualMachineFinalizer) {
		return nil
	}
	switch v1alpha1.ConditionReason(ready.Reason) {
	case v1alpha1.ReasonTerminating, v1alpha1.ReasonTakingOver:
		return nil
	}
	return []string{
		"if its runtime will not let the machine go, abandon the instance, which then stays there (needs the verb override on policy machines-abandon):",
		"  " + commands.Line("kubectl", "annotate", "svm", m.Name, "-n", m.Namespace, v1alpha1.AnnotationAbandonInstance+"="+string(m.UID)),
	}
}

func guest(status *v1alpha1.VirtualMachineStatus) string {
	var texts []string
	if g := status.Guest; g != nil {
		texts = append(texts, g.Hostname)
		if g.ToolsState != "" {
			texts = append(texts, "tools "+string(g.ToolsState))
		}
	}
	texts = append(texts, status.Addresses...)
	return strings.Join(slices.DeleteFunc(texts, func(text string) bool { return text == "" }), ", ")
}

// waiting lists unfinished operations that have not claimed the machine and are not being undone.
func (r *machineReport) waiting(p *cli.Page) string {
	status := &r.Machine.Status
	passed := map[string]bool{}
	if status.ActiveOperation != nil {
		passed[status.ActiveOperation.ID] = true
	}
	for i := range status.Undoing {
		passed[status.Undoing[i].ID] = true
	}
	var texts []string
	for i := range r.Unfinished {
		o := &r.Unfinished[i]
		if !passed[string(o.UID)] {
			texts = append(texts, fmt.Sprintf("%s %s%s, %s",
				cli.OperationText(o.Spec.Type, o.Spec.Force), o.Name, p.Since(o.CreationTimestamp.Time), cli.State(o)))
		}
	}
	return strings.Join(texts, "\n")
}

func (r *machineReport) intent(p *cli.Page) string {
	intent := r.Machine.Status.PowerIntent
	if intent == nil {
		return ""
	}
	text := string(intent.State) + p.Since(intent.At.Time)
	if intent.By != "" {
		text += ", by " + intent.By
	}
	return text
}

// printClaim prints the claim on a machine and the operations that are being undone.
func printClaim(p *cli.Page, status *v1alpha1.VirtualMachineStatus, states map[string]string) {
	holder := "none"
	if a := status.ActiveOperation; a != nil {
		holder = cli.HolderName(a.Type, a.Force, a.Origin, a.Name) + p.Since(a.ClaimedAt.Time)
		if s := states[a.ID]; s != "" {
			holder += ", " + s
		}
	}
	p.Row("Claimed by:", holder)
	var undoing []string
	for i := range status.Undoing {
		u := &status.Undoing[i]
		text := cli.HolderName(u.Type, u.Force, u.Origin, u.Name) + ", " + string(u.End)
		if u.End == v1alpha1.EndSuperseded {
			text += " by " + cli.Superseder(u.By)
		}
		if u.Task != "" {
			text += ", waiting for runtime task " + u.Task
		}
		undoing = append(undoing, text)
	}
	p.Row("Undoing:", strings.Join(undoing, "\n"))
}

func (r *operationReport) Text(p *cli.Page) {
	o := r.Operation
	p.Line("VirtualMachineOperation %s in namespace %s: %s of VirtualMachine %s\n",
		o.Name, o.Namespace, cli.OperationText(o.Spec.Type, o.Spec.Force), o.Spec.VirtualMachineName)
	p.Row("State:", cli.State(o)+r.since(p))
	if s := o.Status.SupersededBy; s != nil && !strings.Contains(cli.State(o), s.Name) {
		p.Row("Superseded by:", cli.Superseder(s))
	}
	var taken []string
	for _, s := range o.Status.Supersedes {
		taken = append(taken, s.Name)
	}
	p.Row("Supersedes:", strings.Join(taken, ", "))
	asked := p.Ago(o.CreationTimestamp.Time) + " ago"
	if o.Spec.RequestedBy != nil {
		asked += " by " + o.Spec.RequestedBy.Username
	}
	p.Row("Requested:", asked)
	p.Row("Signal:", signal(p, v1alpha1.ConditionSignalSent.In(o.Status.Conditions)))
	if o.Finished() {
		p.Row("Expires:", r.expiry(p))
	} else {
		p.Row("Deadline:", p.Ahead(o.CreationTimestamp.Add(o.ActiveDeadline())))
	}
	p.Deletion(&o.ObjectMeta)
	if !o.Finished() {
		r.machine(p)
	}
}

// signal formats condition SignalSent: "sent 2s ago: power-off sent".
func signal(p *cli.Page, c *metav1.Condition) string {
	switch {
	case c == nil:
		return ""
	case c.Status != metav1.ConditionTrue:
		return p.Condition(c)
	}
	text := "sent"
	if at := c.LastTransitionTime.Time; !at.IsZero() {
		text += " " + p.Ago(at) + " ago"
	}
	if c.Message != "" {
		text += ": " + c.Message
	}
	return text
}

// since is the time since the operation entered its state.
func (r *operationReport) since(p *cli.Page) string {
	status := &r.Operation.Status
	if r.Operation.Finished() && status.CompletionTime != nil {
		return fmt.Sprintf(" (%s ago)", p.Ago(status.CompletionTime.Time))
	}
	if c := v1alpha1.ConditionCompleted.In(status.Conditions); c != nil && !r.Operation.Finished() {
		return fmt.Sprintf(" (for %s)", p.Ago(c.LastTransitionTime.Time))
	}
	return ""
}

func (r *operationReport) machine(p *cli.Page) {
	if r.Machine == nil {
		p.Row("Machine:", r.MachineError)
		return
	}
	p.Line("\nVirtualMachine %s (%s):\n", r.Machine.Name, r.Machine.Status.Phase)
	printClaim(p, &r.Machine.Status, map[string]string{string(r.Operation.UID): "this operation"})
	ready := v1alpha1.ConditionReady.In(r.Machine.Status.Conditions)
	p.Row("Ready:", p.Condition(ready))
}

func (r *operationReport) expiry(p *cli.Page) string {
	ttl, end := r.Operation.Spec.TTLSecondsAfterFinished, r.Operation.Status.CompletionTime
	if ttl == nil || end == nil {
		return ""
	}
	left := end.Add(time.Duration(*ttl) * time.Second).Sub(p.Now)
	if left <= 0 {
		return "now"
	}
	return "in " + duration.HumanDuration(left)
}
