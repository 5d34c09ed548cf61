package plugin

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sallyport.dev/sallyport/commands"
)

// shownNames is how many objects of a sort are named.
const shownNames = 20

// printPlan prints the plan.
func (j *releasing) printPlan() {
	p := newPage(j.Out, j.now())
	i := &j.installed
	switch {
	case i.deployment == nil:
		p.row("Manager:", "no Deployment found")
	case i.replicas == 0:
		p.row("Manager:", fmt.Sprintf("Deployment %s in namespace %s already has 0 replicas", i.deployment.Name, i.deployment.Namespace))
	default:
		p.row("Manager:", fmt.Sprintf("scale Deployment %s in namespace %s from %d to 0", i.deployment.Name, i.deployment.Namespace, i.replicas))
	}
	if names := j.registeredPolicies(); names != "" {
		p.row("Policies:", "unregister on other kinds: "+names)
	}
	p.row("Finalizers:", cmp.Or(j.counted(func(k *releasable) int { return k.held }, "remove from "), "none to remove"))
	p.flush()
}

// counted lists the number of objects by kind: "1 virtualmachineoperation, 14 virtualmachines".
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

// printBusy lists the machines with an operation or a deletion in progress.
func (j *releasing) printBusy() {
	p := newPage(j.ErrOut, j.now())
	p.line("In progress:")
	for _, b := range j.busy[:min(len(j.busy), shownNames)] {
		p.row("  "+b.machine, b.text)
	}
	if more := len(j.busy) - shownNames; more > 0 {
		p.line("  and %d more", more)
	}
	p.flush()
}

// printEnd prints the result and the next commands.
func (j *releasing) printEnd() {
	done := j.counted(func(k *releasable) int { return len(k.released) }, "")
	fmt.Fprintf(j.Out, "Finalizers removed: %s%s\n", cmp.Or(done, "none"), dryRuns[j.dryRun])
	if n := len(j.orphans); n > 0 {
		slices.Sort(j.orphans)
		text := "virtualmachines %s; their machines stay on their runtimes"
		if n == 1 {
			text = "virtualmachine %s; its machine stays on its runtime"
		}
		fmt.Fprintf(j.Out, "Deleted: "+text+"%s\n", someOf(j.orphans, shownNames), dryRuns[j.dryRun])
	}
	if j.dryRun != dryRunNone {
		return
	}
	p := newPage(j.Out, j.now())
	p.line("")
	left := j.counted(func(k *releasable) int { return k.total }, "")
	p.row("Unchanged:", "machines on their runtimes")
	p.row("", left)
	if len(j.kinds) > 0 {
		p.row("", "the CustomResourceDefinitions of Sallyport, which Helm keeps")
	}
	if j.installed.hasWebhooks {
		p.row("Until then:", "the API server denies changes to Sallyport's objects because the webhooks do not run")
	}
	j.next(p)
	p.flush()
}

// next prints the next commands.
func (j *releasing) next(p *page) {
	i := &j.installed
	switch {
	case i.helmName != "":
		p.row("Uninstall:", commands.Line("helm", "uninstall", i.helmName, "-n", i.helmNamespace))
	case i.deployment != nil:
		p.row("Uninstall:", fmt.Sprintf("use the tool that installed Deployment %s in namespace %s (not Helm)", i.deployment.Name, i.deployment.Namespace))
	case i.hasWebhooks:
		p.row("Uninstall:", commands.Line("kubectl", "delete", "mutatingwebhookconfiguration,validatingwebhookconfiguration", product))
	}
	if i.deployment != nil {
		p.row("Or restart:", j.goOn())
	}
}

// goOn is the command that starts the manager again.
func (j *releasing) goOn() string {
	i := &j.installed
	note := ""
	if i.replicas == 0 {
		note = "  (the default of the chart; the Deployment already had 0)"
	}
	return commands.Line("kubectl", "scale", "deployment/"+i.deployment.Name, "-n", i.deployment.Namespace,
		fmt.Sprint("--replicas=", cmp.Or(i.replicas, chartReplicas))) + note
}

// unfinished adds the state after an error.
func (j *releasing) unfinished(err error) error {
	if j.dryRun != dryRunNone {
		return err
	}
	state := "Completed steps are kept; to continue, run the command again."
	if done := j.counted(func(k *releasable) int { return len(k.released) }, ""); done != "" {
		state = "Finalizers removed so far: " + done + ". " + state
	}
	if j.installed.deployment != nil {
		state += "\nTo restart Sallyport: " + j.goOn()
	}
	return errors.Join(err, errors.New(state))
}

// flush writes the page. Write errors show elsewhere.
func (p *page) flush() { _ = p.table.Flush() }
