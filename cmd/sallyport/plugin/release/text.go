package release

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
	"sallyport.dev/sallyport/commands"
)

// chartReplicas is the chart's default number of replicas.
const chartReplicas = 2

// shownNames is how many objects of a sort are named.
const shownNames = 20

func (j *releasing) printPlan() {
	p := cli.NewPage(j.Out, j.Now())
	i := &j.installed
	if n := len(j.given); n > 0 {
		p.Row("Adopted:", j.plannedFor(n))
	}
	switch {
	case i.Deployment == nil:
		p.Row("Manager:", "no Deployment found")
	case i.Replicas == 0:
		p.Row("Manager:", fmt.Sprintf("Deployment %s in namespace %s already has 0 replicas", i.Deployment.Name, i.Deployment.Namespace))
	default:
		p.Row("Manager:", fmt.Sprintf("scale Deployment %s in namespace %s from %d to 0", i.Deployment.Name, i.Deployment.Namespace, i.Replicas))
	}
	if names := j.registeredPolicies(); names != "" {
		p.Row("Policies:", "unregister on other kinds: "+names)
	}
	p.Row("Finalizers:", cmp.Or(j.counted(func(k *releasable) int { return k.held }, "remove from "), "none to remove"))
	p.Flush()
}

// plannedFor says what happens to the adopted machines.
func (j *releasing) plannedFor(adopted int) string {
	machines := fmt.Sprintf("%d adopted machines", adopted)
	if adopted == 1 {
		machines = "1 adopted machine"
	}
	switch {
	case !j.leaves():
		return "release " + machines + ": remove marks, restore run strategies of KubeVirt, and set spec.runPolicy to Observe"
	case j.keep:
		return "leave " + machines + " marked (--keep-adopted)"
	}
	return "leave " + machines + " marked, because no manager runs that could release them"
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
	p := cli.NewPage(j.ErrOut, j.Now())
	p.Line("In progress:")
	for _, b := range j.busy[:min(len(j.busy), shownNames)] {
		p.Row("  "+b.machine, b.text)
	}
	if more := len(j.busy) - shownNames; more > 0 {
		p.Line("  and %d more", more)
	}
	p.Flush()
}

func (j *releasing) printEnd() {
	done := j.counted(func(k *releasable) int { return len(k.released) }, "")
	fmt.Fprintf(j.Out, "Finalizers removed: %s%s\n", cmp.Or(done, "none"), cli.DryRunSuffix[j.dryRun])
	if n := len(j.orphans); n > 0 {
		slices.Sort(j.orphans)
		text := "virtualmachines %s; their machines stay on their runtimes"
		if n == 1 {
			text = "virtualmachine %s; its machine stays on its runtime"
		}
		fmt.Fprintf(j.Out, "Deleted: "+text+"%s\n", cli.SomeOf(j.orphans, shownNames), cli.DryRunSuffix[j.dryRun])
	}
	if j.dryRun != cli.DryRunNone {
		return
	}
	p := cli.NewPage(j.Out, j.Now())
	p.Line("")
	left := j.counted(func(k *releasable) int { return k.total }, "")
	p.Row("Unchanged:", "the power of machines on their runtimes")
	p.Row("", left)
	if len(j.kinds) > 0 {
		p.Row("", "the CustomResourceDefinitions of Sallyport, which Helm keeps")
	}
	if j.installed.HasWebhooks {
		p.Row("Until then:", "the API server denies changes to Sallyport's objects because the webhooks do not run")
	}
	j.next(p)
	p.Flush()
}

func (j *releasing) next(p *cli.Page) {
	i := &j.installed
	switch {
	case i.HelmName != "":
		p.Row("Uninstall:", commands.Line("helm", "uninstall", i.HelmName, "-n", i.HelmNamespace))
	case i.Deployment != nil:
		p.Row("Uninstall:", fmt.Sprintf("use the tool that installed Deployment %s in namespace %s (not Helm)", i.Deployment.Name, i.Deployment.Namespace))
	case i.HasWebhooks:
		p.Row("Uninstall:", commands.Line("kubectl", "delete", "mutatingwebhookconfiguration,validatingwebhookconfiguration", cli.Product))
	}
	if i.Deployment != nil {
		p.Row("Or restart:", j.goOn())
	}
}

// goOn is the command that starts the manager again.
func (j *releasing) goOn() string {
	i := &j.installed
	note := ""
	if i.Replicas == 0 {
		note = "  (the default of the chart; the Deployment already had 0)"
	}
	return commands.Line("kubectl", "scale", "deployment/"+i.Deployment.Name, "-n", i.Deployment.Namespace,
		fmt.Sprint("--replicas=", cmp.Or(i.Replicas, chartReplicas))) + note
}

// unfinished adds the state after an error.
func (j *releasing) unfinished(err error) error {
	if j.dryRun != cli.DryRunNone {
		return err
	}
	state := "Completed steps are kept; to continue, run the command again."
	if done := j.counted(func(k *releasable) int { return len(k.released) }, ""); done != "" {
		state = "Finalizers removed so far: " + done + ". " + state
	}
	if j.installed.Deployment != nil {
		state += "\nTo restart Sallyport: " + j.goOn()
	}
	return errors.Join(err, errors.New(state))
}
