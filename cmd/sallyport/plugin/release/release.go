// Package release has the command that prepares the uninstallation of Sallyport.
package release

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
)

// stopPatience is how long a manager has to stop: requests in progress end, and an unreleased lease expires.
const stopPatience = 2 * time.Minute

// release is the command that removes Sallyport's finalizers from all objects, so that nothing waits for a removed manager.
type release struct {
	*cli.Plugin
	all, force, keep bool
	dryRun           string
	timeout          time.Duration
}

// Command returns the command `release`.
func Command(p *cli.Plugin) *cobra.Command {
	r := &release{Plugin: p}
	command := &cobra.Command{
		Use:   "release --all",
		Short: "Stop Sallyport and remove its finalizers before an uninstallation",
		Long: "Prepares the uninstallation of Sallyport in all namespaces:\n" +
			"  1. Has the manager release all adopted machines: sets spec.runPolicy of their VirtualMachines to Observe, and waits until marks\n" +
			"     are removed and machines of KubeVirt have their former run strategy. With --keep-adopted, they stay adopted.\n" +
			"  2. Stops the manager, which would otherwise add its finalizers again.\n" +
			"  3. Unregisters policies on kinds that are not Sallyport's, because the API server would deny requests on these kinds.\n" +
			"  4. Marks all RegoPolicies as not evaluated.\n" +
			"  5. Removes all finalizers with the prefix sallyport.dev/ from the objects of Sallyport's kinds.\n\n" +
			"Machines stay on or off as they are. Only objects that are already being deleted and have no other finalizer are\n" +
			"deleted. The command prints a plan first, does not ask for confirmation, and can be repeated. It searches for the manager\n" +
			"in the namespace of -n, or in all namespaces without -n.\n\n" +
			"The command fails if an operation has claimed a machine or is being undone, or if a VirtualMachine is being deleted. With\n" +
			"--force, it continues: claims stay in the status, so a manager that starts later continues the operations. A\n" +
			"VirtualMachine that is being deleted disappears, but its machine stays on the runtime.",
		Example: `  # Show the plan
  kubectl sallyport release --all --dry-run=client

  # Uninstall Sallyport
  kubectl sallyport release --all
  helm uninstall sallyport -n sallyport-system

  # Select one of several Deployments of Sallyport by its namespace
  kubectl sallyport release --all -n sallyport-system`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := r.check(); err != nil {
				return cli.UsageError(command, err)
			}
			return r.run(command.Context())
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := command.Flags()
	f.BoolVar(&r.all, "all", false, "confirm that the command affects all Sallyport objects in the cluster (required)")
	f.BoolVar(&r.force, "force", false, "continue even if operations or deletions of machines are in progress")
	f.BoolVar(&r.keep, "keep-adopted", false, "leave adopted machines marked, for a manager that is installed later")
	f.DurationVar(&r.timeout, "timeout", stopPatience, "how long to wait for adopted machines to be released, and for the manager to stop")
	cli.AddDryRun(command, &r.dryRun)
	return command
}

func (r *release) check() error {
	switch {
	case !r.all:
		return errors.New("--all is required: release stops Sallyport and removes its finalizers from all objects in the cluster")
	case r.timeout <= 0:
		return errors.New("--timeout must be greater than 0")
	}
	return nil
}

// run changes nothing before it has printed the plan and checked the permissions.
func (r *release) run(ctx context.Context) error {
	c, err := r.Connect()
	if err != nil {
		return err
	}
	j := &releasing{release: r, Cluster: c, from: *r.Flags.Namespace}
	if err := j.gather(ctx); err != nil {
		return err
	}
	j.printPlan()
	if err := j.object(); err != nil {
		return err
	}
	if err := j.mayI(ctx); err != nil {
		return err
	}
	if r.dryRun == cli.DryRunClient {
		fmt.Fprintln(r.Out, "Nothing was changed (dry run)")
		return nil
	}
	for _, do := range []func(context.Context) error{j.giveBack, j.stop, j.recheck, j.unregister, j.mark, j.strip, j.stayed} {
		if err := do(ctx); err != nil {
			return j.unfinished(err)
		}
	}
	j.printEnd()
	return nil
}

// releasing is the state of one run of the command.
type releasing struct {
	*release
	*cli.Cluster
	// from is the namespace of -n, which selects one of several installations.
	from string
	// installed is the installation of Sallyport.
	installed cli.Installation
	// registrations are the webhook configurations of policies on kinds that are not Sallyport's.
	registrations []registration
	// kinds are the kinds of group sallyport.dev that can have finalizers.
	kinds []releasable
	// given are the VirtualMachines with adopted machines.
	given []v1alpha1.VirtualMachine
	// busy are machines with an operation or a deletion in progress.
	busy []unsettled
	// orphans are VirtualMachines that disappeared because only the finalizer of Sallyport was left. Their machines stay.
	orphans []string
}

// gather reads the state before the first change.
func (j *releasing) gather(ctx context.Context) (err error) {
	if j.installed, err = j.FindInstallation(ctx, j.from); err != nil {
		return err
	}
	if j.registrations, err = findRegistrations(ctx, j.Cluster); err != nil {
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
	if j.given, err = j.adopted(ctx); err != nil {
		return err
	}
	j.busy, err = j.unsettled(ctx)
	return err
}

// recheck checks for operations that started before the manager stopped.
func (j *releasing) recheck(ctx context.Context) (err error) {
	if j.force || j.dryRun != cli.DryRunNone {
		return nil
	}
	if j.busy, err = j.unsettled(ctx); err != nil || len(j.busy) == 0 {
		return err
	}
	if was := j.installed.Replicas; was > 0 {
		if err := j.scale(ctx, was); err != nil {
			return fmt.Errorf("starting the manager again: %w", err)
		}
		fmt.Fprintf(j.Out, "%s scaled back to %d because operations or deletions of machines started in the meantime\n", j.installed.Name(), was)
	}
	return j.object()
}

// object returns an error if operations or deletions are in progress.
func (j *releasing) object() error {
	if len(j.busy) == 0 {
		return nil
	}
	j.printBusy()
	if j.force {
		return nil
	}
	if j.installed.Replicas == 0 {
		return errors.New("operations or deletions of machines are in progress, but the manager is not running; start the manager, or continue with --force")
	}
	return errors.New("operations or deletions of machines are in progress; wait until they finish (kubectl get svm -A --watch), or continue with --force")
}
