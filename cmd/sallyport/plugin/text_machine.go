package plugin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/commands"
)

func (r *machineReport) text(p *page) {
	m := r.Machine
	status := &m.Status
	p.line("VirtualMachine %s in namespace %s\n", m.Name, m.Namespace)
	phase := string(cmp.Or(status.Phase, v1alpha1.VirtualMachinePending))
	if status.NodeName != "" {
		phase += " on node " + status.NodeName
	}
	p.row("Phase:", phase)
	p.row("Guest:", guest(status))
	ready := v1alpha1.ConditionReady.In(status.Conditions)
	p.row("Ready:", cmp.Or(p.condition(ready), "Unknown: waiting to be reconciled"))
	if c := v1alpha1.ConditionReadOnly.In(status.Conditions); c != nil {
		p.row("Read-only:", c.Message)
	}
	if c := v1alpha1.ConditionPlacementSettled.In(status.Conditions); c != nil && c.Status != "True" {
		p.row("Placement:", p.condition(c))
	}
	if c := v1alpha1.ConditionDisksAttached.In(status.Conditions); c != nil && c.Status != "True" {
		p.row("Disks:", p.condition(c))
	}
	states := map[string]string{}
	for i := range r.Unfinished {
		states[string(r.Unfinished[i].UID)] = state(&r.Unfinished[i])
	}
	p.claim(status, states)
	p.row("Waiting:", r.waiting(p))
	p.row("Run policy:", string(m.Spec.RunPolicy))
	p.row("Power intent:", r.intent(p))
	p.deletion(&m.ObjectMeta, abandon(m)...)
	p.answers(r.Requests, objection.short)
	p.diagnose("machine", r.Requests)
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

// guest returns the information from the guest of a machine.
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
func (r *machineReport) waiting(p *page) string {
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
				called(o.Spec.Type, o.Spec.Force), o.Name, p.since(o.CreationTimestamp.Time), state(o)))
		}
	}
	return strings.Join(texts, "\n")
}

func (r *machineReport) intent(p *page) string {
	intent := r.Machine.Status.PowerIntent
	if intent == nil {
		return ""
	}
	text := string(intent.State) + p.since(intent.At.Time)
	if intent.By != "" {
		text += ", by " + intent.By
	}
	return text
}
