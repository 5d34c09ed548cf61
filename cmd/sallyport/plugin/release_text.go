package plugin

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// shownNames is how many objects of a sort are named.
const shownNames = 20

// tellPlan says what is going to be done, before it is.
func (j *releasing) tellPlan() {
	p := newPage(j.Out, j.now())
	i := &j.installed
	switch {
	case i.deployment == nil:
		p.row("Manager:", "there is no Deployment of it")
	case i.replicas == 0:
		p.row("Manager:", fmt.Sprintf("Deployment %s in namespace %s, which has 0 replicas already", i.deployment.Name, i.deployment.Namespace))
	default:
		p.row("Manager:", fmt.Sprintf("Deployment %s in namespace %s, to be scaled from %d to 0", i.deployment.Name, i.deployment.Namespace, i.replicas))
	}
	if names := j.registeredPolicies(); names != "" {
		p.row("Policies:", "not to be asked any more about other kinds: "+names)
	}
	p.row("Finalizers:", cmp.Or(j.counted(func(k *releasable) int { return k.held }, "to be taken off "), "there are none of Sallyport"))
	p.flush()
}

// counted lists the kinds that have some: "1 virtualmachineoperation, 14 virtualmachines".
func (j *releasing) counted(of func(*releasable) int, prefix string) string {
	var texts []string
	for i := range j.kinds {
		switch n := of(&j.kinds[i]); {
		case n == 1:
			texts = append(texts, "1 "+j.kinds[i].singular)
		case n > 1:
			texts = append(texts, fmt.Sprintf("%d %s", n, j.kinds[i].Resource))
		}
	}
	if texts == nil {
		return ""
	}
	return prefix + strings.Join(texts, ", ")
}

// tellBusy names the machines that are in the middle of something.
func (j *releasing) tellBusy() {
	p := newPage(j.ErrOut, j.now())
	p.line("In the middle of something:")
	for _, b := range j.busy[:min(len(j.busy), shownNames)] {
		p.row("  "+b.machine, b.text)
	}
	if more := len(j.busy) - shownNames; more > 0 {
		p.line("  and %d more", more)
	}
	p.flush()
}

// tellEnd says what was done, what stays, and how to go on.
func (j *releasing) tellEnd() {
	done := j.counted(func(k *releasable) int { return len(k.released) }, "")
	fmt.Fprintf(j.Out, "Finalizers taken off: %s%s\n", cmp.Or(done, "none, there were none"), dryRuns[j.dryRun])
	if n := len(j.orphans); n > 0 {
		slices.Sort(j.orphans)
		text := "because their deletion waited for it: virtualmachines %s; their machines stay on their runtimes"
		if n == 1 {
			text = "because its deletion waited for it: virtualmachine %s; its machine stays on its runtime"
		}
		fmt.Fprintf(j.Out, "Gone with that, "+text+"%s\n", someOf(j.orphans, shownNames), dryRuns[j.dryRun])
	}
	if j.dryRun != dryRunNone {
		return
	}
	p := newPage(j.Out, j.now())
	p.line("")
	left := j.counted(func(k *releasable) int { return k.total }, "")
	p.row("What stays:", "machines on their runtimes, as they are")
	p.row("", left)
	if len(j.kinds) > 0 {
		p.row("", "the definitions of Sallyport's kinds, which Helm keeps")
	}
	if j.installed.judged {
		p.row("Meanwhile:", "changes of Sallyport's objects are refused, because nobody judges them")
	}
	j.next(p)
	p.flush()
}

// next says which commands come now.
func (j *releasing) next(p *page) {
	i := &j.installed
	switch {
	case i.helmName != "":
		p.row("Uninstall:", fmt.Sprintf("helm uninstall %s -n %s", i.helmName, i.helmNamespace))
	case i.deployment != nil:
		p.row("Uninstall:", fmt.Sprintf("with what has installed Deployment %s in namespace %s, which was not Helm", i.deployment.Name, i.deployment.Namespace))
	case i.judged:
		p.row("Uninstall:", "kubectl delete mutatingwebhookconfiguration,validatingwebhookconfiguration "+product)
	}
	if i.deployment != nil {
		p.row("Or go on:", j.goOn())
	}
}

// goOn is how the manager is started again.
func (j *releasing) goOn() string {
	i := &j.installed
	note := ""
	if i.replicas == 0 {
		note = "  (as the chart has it; it had 0 already)"
	}
	return fmt.Sprintf("kubectl scale deployment/%s -n %s --replicas=%d%s",
		i.deployment.Name, i.deployment.Namespace, cmp.Or(i.replicas, chartReplicas), note)
}

// unfinished says how things are after an error.
func (j *releasing) unfinished(err error) error {
	if j.dryRun != dryRunNone {
		return err
	}
	state := "What was done stays done: run it again to go on."
	if done := j.counted(func(k *releasable) int { return len(k.released) }, ""); done != "" {
		state = "Finalizers taken off so far: " + done + ". " + state
	}
	if j.installed.deployment != nil {
		state += "\nTo start Sallyport again: " + j.goOn()
	}
	return errors.Join(err, errors.New(state))
}

// flush writes it. That it cannot be written shows elsewhere.
func (p *page) flush() { _ = p.table.Flush() }
