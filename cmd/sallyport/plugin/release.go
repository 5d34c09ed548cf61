package plugin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

// stopPatience is how long a manager has to stop: what it serves is finished, and a lease that nobody releases runs out.
const stopPatience = 2 * time.Minute

// release is the command that takes Sallyport's finalizers off everything, so that nothing waits for a manager that is gone.
type release struct {
	*plugin
	all, force bool
	dryRun     string
	timeout    time.Duration
}

func (p *plugin) releaseCommand() *cobra.Command {
	r := &release{plugin: p}
	command := &cobra.Command{
		Use:   "release --all",
		Short: "Stop Sallyport and take its finalizers off everything, before it is uninstalled",
		Long: "Stops Sallyport's manager, because it would put its finalizers back, and takes every finalizer below sallyport.dev/\n" +
			"off the objects of its kinds, in all namespaces: what is deleted afterwards does not wait for somebody who is gone.\n" +
			"Policies are not asked any more about other kinds, whose requests would be refused because nobody answers, and their\n" +
			"status says that nobody decides.\n" +
			"Machines on their runtimes are left as they are, and no object is deleted but those whose deletion only waited for\n" +
			"this. It says first what it will do, does not ask, and can be repeated. The manager is looked for in the namespace of\n" +
			"-n, else in all.\n\n" +
			"It refuses while an operation holds a machine or is being undone, or a VirtualMachine is being deleted: nobody would\n" +
			"finish it. With --force they are left as they are. The claim on a machine stays in its status, so a manager that is\n" +
			"started again goes on; but a VirtualMachine that was being deleted is gone, while its machine stays on its runtime.",
		Example: `  # What would it do?
  kubectl sallyport release --all --dry-run=client

  # Before an uninstall
  kubectl sallyport release --all
  helm uninstall sallyport -n sallyport-system

  # If there are several Deployments of Sallyport: stop the one in this namespace
  kubectl sallyport release --all -n sallyport-system`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := r.check(); err != nil {
				return usage(command, err)
			}
			return r.run(command.Context())
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := command.Flags()
	f.BoolVar(&r.all, "all", false, "required: it concerns every object of Sallyport in the cluster")
	f.BoolVar(&r.force, "force", false, "go on even if machines are in the middle of something")
	f.DurationVar(&r.timeout, "timeout", stopPatience, "how long to wait for the manager to stop")
	addDryRun(command, &r.dryRun, "all patches are judged")
	return command
}

func (r *release) check() error {
	switch {
	case !r.all:
		return errors.New("release stops Sallyport and takes its finalizers off every object in the cluster, not off some: say so with --all")
	case r.timeout <= 0:
		return errors.New("--timeout must be longer than 0")
	}
	return nil
}

// run looks first, and changes nothing before it has said what and knows that it may.
func (r *release) run(ctx context.Context) error {
	c, err := r.connect()
	if err != nil {
		return err
	}
	j := &releasing{release: r, cluster: c, from: *r.flags.Namespace}
	if err := j.look(ctx); err != nil {
		return err
	}
	j.tellPlan()
	if err := j.object(); err != nil {
		return err
	}
	if err := j.mayI(ctx); err != nil {
		return err
	}
	if r.dryRun == dryRunClient {
		fmt.Fprintln(r.Out, "Nothing was changed (dry run)")
		return nil
	}
	for _, do := range []func(context.Context) error{j.stop, j.lookAgain, j.unregister, j.mark, j.strip, j.stayed} {
		if err := do(ctx); err != nil {
			return j.unfinished(err)
		}
	}
	j.tellEnd()
	return nil
}

// releasing is one run of the command: what it found, and what it has done.
type releasing struct {
	*release
	*cluster
	// from is the namespace that was named, to choose between several installations.
	from string
	// installed is what there is of Sallyport itself.
	installed installation
	// registrations are where policies are asked about kinds that are not Sallyport's.
	registrations []registration
	// kinds are those of our group that can have finalizers.
	kinds []releasable
	// busy are machines that nobody would finish with.
	busy []unsettled
	// orphans are VirtualMachines that went because only our finalizer was left: their machines stay.
	orphans []string
}

// look finds out everything that matters before the first change.
func (j *releasing) look(ctx context.Context) (err error) {
	if j.installed, err = j.findInstallation(ctx, j.from); err != nil {
		return err
	}
	if j.registrations, err = j.findRegistrations(ctx); err != nil {
		return err
	}
	if j.kinds, err = j.discover(); err != nil {
		return err
	}
	for i := range j.kinds {
		if err := j.survey(ctx, &j.kinds[i]); err != nil {
			return err
		}
	}
	j.busy, err = j.unsettled(ctx)
	return err
}

// lookAgain is for what began between the first look and the manager's end.
func (j *releasing) lookAgain(ctx context.Context) (err error) {
	if j.force || j.dryRun != dryRunNone {
		return nil
	}
	if j.busy, err = j.unsettled(ctx); err != nil || len(j.busy) == 0 {
		return err
	}
	if was := j.installed.replicas; was > 0 {
		if err := j.scale(ctx, was); err != nil {
			return fmt.Errorf("starting the manager again: %w", err)
		}
		fmt.Fprintf(j.Out, "%s scaled back to %d: machines had got busy meanwhile\n", j.installed.called(), was)
	}
	return j.object()
}

// object refuses if somebody would be left in the middle of something.
func (j *releasing) object() error {
	if len(j.busy) == 0 {
		return nil
	}
	j.tellBusy()
	if j.force {
		return nil
	}
	if j.installed.replicas == 0 {
		return errors.New("nobody finishes that while the manager is not running: start it again, or leave it as it is with --force")
	}
	return errors.New("nobody would finish that: wait until they are done (kubectl get svm -A --watch), or leave it as it is with --force")
}
