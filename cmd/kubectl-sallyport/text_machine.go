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

// requests shows what is accepted, then what is accepted with a warning, and then what is refused, together where the reasons
// are the same.
func (r *machineReport) requests(p *page) {
	var groups []string
	of, ranks := map[string][]string{}, map[string]int{}
	var blame []string
	for i := range r.Requests {
		a := &r.Requests[i]
		why := a.why()
		if of[why] == nil {
			groups = append(groups, why)
		}
		of[why], ranks[why] = append(of[why], a.command()), a.rank()
		for _, o := range a.Reasons {
			if o.undecided() && !slices.Contains(blame, o.Policy) {
				blame = append(blame, o.Policy)
			}
		}
	}
	slices.SortStableFunc(groups, func(a, b string) int { return cmp.Compare(ranks[a], ranks[b]) })
	for _, why := range groups {
		said, reasons, some := strings.Cut(why, "\n")
		if some {
			reasons = ":\n" + reasons
		}
		p.row("  "+said, strings.Join(of[why], ", ")+reasons)
	}
	if len(blame) > 0 {
		p.line("\nThe machine is not to blame where a policy could not decide. What is wrong with it:\n")
	}
	for _, policy := range blame {
		p.row("  kubectl sallyport policies " + policy)
	}
}

// rank is where people look first.
func (a *answer) rank() int {
	switch {
	case a.Verdict == accepted && len(a.Warnings) == 0:
		return 0
	case a.Verdict == accepted:
		return 1
	}
	return 2
}

// command is how a request is asked for.
func (a *answer) command() string {
	text := strings.ToLower(string(a.Type))
	if a.Force {
		text += " --force"
	}
	return text
}

// why is the verdict and, a line each, the reasons in short. What a policy adds after a semicolon is advice, which the other
// requests are; and a message that ends with the request is the same for each.
func (a *answer) why() string {
	text, reasons := string(a.Verdict), a.Reasons
	switch {
	case a.Verdict == undecided:
		text = "refused, undecided"
	case a.Verdict == accepted && len(a.Warnings) > 0:
		text, reasons = "accepted, with a warning", a.Warnings
	}
	for _, o := range reasons {
		message := strings.ReplaceAll(o.Message, "\n", " ")
		if o.Policy != "" && !o.undecided() {
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
