package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"sallyport.dev/sallyport/api/v1alpha1"
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
	ready := meta.FindStatusCondition(status.Conditions, string(v1alpha1.ConditionReady))
	p.row("Ready:", cmp.Or(p.condition(ready), "not known: Sallyport has not looked at it yet"))
	if c := meta.FindStatusCondition(status.Conditions, string(v1alpha1.ConditionPlacementSettled)); c != nil && c.Status != "True" {
		p.row("Placement:", p.condition(c))
	}
	states := map[string]string{}
	for i := range r.Unfinished {
		states[string(r.Unfinished[i].UID)] = state(&r.Unfinished[i])
	}
	p.claim(status, states)
	p.row("Waiting:", r.waiting(p))
	p.row("Run policy:", string(m.Spec.RunPolicy))
	p.row("Power intent:", r.intent(p))
	p.deletion(&m.ObjectMeta)
	p.line("\nAsked now, the API server would say:\n")
	r.requests(p)
}

// waiting are the unfinished operations that neither hold the machine nor have lost it.
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

// requests shows what is accepted, and then what is refused, together where the reasons are the same.
func (r *machineReport) requests(p *page) {
	var groups []string
	of := map[string][]string{}
	for i := range r.Requests {
		a := &r.Requests[i]
		why := a.why()
		if of[why] == nil {
			groups = append(groups, why)
		}
		of[why] = append(of[why], a.command())
	}
	slices.SortStableFunc(groups, func(a, b string) int { return cmp.Compare(min(len(a), 1), min(len(b), 1)) })
	for _, why := range groups {
		if why == "" {
			p.row("  accepted", strings.Join(of[why], ", "))
			continue
		}
		said, reasons, _ := strings.Cut(why, "\n")
		p.row("  "+said, strings.Join(of[why], ", ")+":\n"+reasons)
	}
}

// command is how a request is asked for.
func (a *answer) command() string {
	text := strings.ToLower(string(a.Type))
	if a.Force {
		text += " --force"
	}
	return text
}

// why is empty if the request is accepted, else the verdict and the reasons in short, one a line. What a policy adds after a
// semicolon is advice, which the other requests are; and a message that ends with the request is the same for each.
func (a *answer) why() string {
	if a.Verdict == accepted {
		return ""
	}
	text := string(a.Verdict)
	for _, o := range a.Reasons {
		message := strings.ReplaceAll(o.Message, "\n", " ")
		if o.Policy != "" {
			message, _, _ = strings.Cut(message, "; ")
		}
		if rest, same := strings.CutSuffix(message, " "+called(a.Type, a.Force)); same {
			message = rest + " this"
		}
		if o.Reason != "" {
			message = o.Reason + ": " + message
		}
		text += "\n" + message
	}
	return text
}
