package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/internal/choice"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

type adopt struct {
	*cli.Plugin
	which     cli.Selection
	vcenter   vcenter
	runPolicy string
	labels    []string
	observed  *bool // what setRunPolicy has learned
	creation
}

func adoptCommand(p *cli.Plugin) *cobra.Command {
	o := &adopt{Plugin: p}
	command := &cobra.Command{
		Use:   "adopt (NAME... | -l SELECTOR | --all | --vsphere-server SERVER (PATH... | --folder FOLDER))",
		Short: "Adopt existing machines of KubeVirt or of a vCenter",
		Long: "Creates VirtualMachines of Sallyport that adopt existing machines. Machines stay on or off as they are, unless KubeVirt was about to\n" +
			"start them. With --run-policy Observe, nothing changes: Sallyport only shows the machines.\n\n" +
			"To see what each policy says, without creating anything, use --dry-run=server.\n\n" +
			"KubeVirt: the VirtualMachine has the name and the labels of the machine, except those of deployment tools. The run policy follows the\n" +
			"run strategy, which becomes Manual:\n" +
			"  - Always: AlwaysOnUnlessStoppedManually. A machine that is off is started\n" +
			"  - Halted: AlwaysOnUnlessStoppedManually. A machine that is off stays off until it is started\n" +
			"  - others, such as RerunOnFailure: Manual\n" +
			"If policy defaults has adopted machines only observed, it is Observe. The command prints each run strategy that changes: a tool that\n" +
			"applies the machine from Git must apply runStrategy Manual first.\n" +
			"spec.blockDeviceRefs names the VirtualDisks that the machine has and that are not attached to another machine.\n\n" +
			"vCenter: the VirtualMachine has the name that the machine has there, in lower case and with - for other characters, and the run policy\n" +
			"that policy defaults sets. Specify machines by inventory path, or all machines in a folder and below it. Only --folder logs in to\n" +
			"vCenter: with the Secret of the VSphereServer, which it must be allowed to read.\n\n" +
			"The command skips machines that are adopted already, and, if they are not named, those that are being deleted, that another object\n" +
			"controls, such as a pool or an extension of vCenter, or that have the mark of another VirtualMachine, as clones have, and prints why.\n" +
			"It continues after errors. To undo an adoption, delete the VirtualMachine of Sallyport: kubectl delete svm NAME.\n\n" +
			"Exit codes: 0 on success, 1 if a machine could not be adopted.",
		Example: `  # Print what would adopt all machines of a namespace
  kubectl sallyport adopt --all -n team-a --dry-run=client -o yaml

  # Adopt all machines of a namespace
  kubectl sallyport adopt --all -n team-a

  # Adopt two machines
  kubectl sallyport adopt web-1 db-1 -n team-a

  # Show what policies say about adopting the machines in a folder of a vCenter
  kubectl sallyport adopt --vsphere-server vc-1 --folder /dc/vm/team-a -n team-a --dry-run=server

  # Observe those that have a tag in vCenter, and label their VirtualMachines
  kubectl sallyport adopt --vsphere-server vc-1 --folder /dc/vm/team-a --tags stage=test -n team-a --run-policy Observe --labels owner=alice`,
		Args: o.args,
		RunE: func(command *cobra.Command, args []string) error {
			if err := cmp.Or(o.check(), o.checkLabels()); err != nil {
				return cli.UsageError(command, err)
			}
			return o.run(command.Context(), args)
		},
		ValidArgsFunction: func(command *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if o.vcenter.server != "" {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return p.CompleteOthers(command, &o.which, kubeVirtMachines, args), cobra.ShellCompDirectiveNoFileComp
		},
	}
	o.which.AddFlags(p, command, func([]string) string { return kubeVirtMachines })
	o.vcenter.addFlags(p, command)
	all := append(slices.Clone(runPolicies), string(v1alpha1.RunPolicyObserve))
	choice.Flag(command, &o.runPolicy, "run-policy", "", "the run policy: "+strings.Join(all, ", ")+" (default: see above)", all...)
	command.Flags().StringSliceVar(&o.labels, "labels", nil, "labels for the VirtualMachines, as key=value,... (default: those of the machine of KubeVirt)")
	o.addFlags(command)
	return command
}

// args requires machines of KubeVirt, or of a vCenter.
func (o *adopt) args(command *cobra.Command, args []string) error {
	if !o.vcenter.given() {
		return o.which.Args("VirtualMachine of KubeVirt")(command, args)
	}
	if err := o.vcenter.check(o.which.Given(), args); err != nil {
		return cli.UsageError(command, err)
	}
	return nil
}

func (o *adopt) checkLabels() error {
	for _, label := range o.labels {
		if key, _, is := strings.Cut(label, "="); !is || key == "" {
			return fmt.Errorf("invalid --labels %q: must be key=value", label)
		}
	}
	return nil
}

// candidate is a machine that may be adopted.
type candidate struct {
	// name is its name in messages.
	name string
	// as is the VirtualMachine that adopts it.
	as *v1alpha1.VirtualMachine
	// changes is what changes with its adoption, or "".
	changes string
	// err is why it is not adopted.
	err error
}

// skipped is why a machine is not adopted.
type skipped struct {
	text string
	// adopted says that Sallyport runs the machine already.
	adopted bool
}

func (s skipped) Error() string { return s.text }

func (o *adopt) run(ctx context.Context, args []string) error {
	c, err := o.Connect()
	if err != nil {
		return err
	}
	ours, err := readAll(ctx, c, &v1alpha1.VirtualMachineList{}, func(l *v1alpha1.VirtualMachineList) []v1alpha1.VirtualMachine { return l.Items })
	if err != nil {
		return fmt.Errorf("reading the VirtualMachines of Sallyport: %w", err)
	}
	find := o.ofKubeVirt
	if o.vcenter.given() {
		find = o.ofVCenter
	}
	candidates, err := find(ctx, c, args, ours)
	if err != nil {
		return err
	}
	failed := false
	for i := range candidates {
		found := &candidates[i]
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted before %s", found.name)
		}
		err := o.adopt(ctx, c, found)
		if skip := new(skipped); errors.As(err, skip) && (skip.adopted || len(args) == 0) {
			fmt.Fprintf(o.ErrOut, "%s skipped: %v\n", found.name, err)
		} else if err != nil {
			fmt.Fprintln(o.ErrOut, cli.Describe(fmt.Errorf("adopting %s: %w", found.name, err)))
			failed = true
		}
	}
	if failed {
		return cli.ErrReported
	}
	return nil
}

// adopt creates and prints the VirtualMachine that adopts a machine.
func (o *adopt) adopt(ctx context.Context, c *cli.Cluster, found *candidate) error {
	if found.err != nil {
		return found.err
	}
	machine := found.as
	if len(o.labels) > 0 {
		machine.Labels = map[string]string{}
	}
	for _, label := range o.labels {
		key, value, _ := strings.Cut(label, "=")
		machine.Labels[key] = value
	}
	if err := o.setRunPolicy(ctx, c, machine); err != nil {
		return err
	}
	if err := o.create(ctx, c, machine); err != nil {
		return err
	}
	if machine.Spec.RunPolicy != v1alpha1.RunPolicyObserve && found.changes != "" {
		fmt.Fprintf(o.ErrOut, "%s: %s%s\n", machine.Name, found.changes, cli.DryRunSuffix[o.dryRun])
	}
	return o.printer.PrintObj(machine, o.Raw)
}

// setRunPolicy sets the run policy of the flag, or Observe if policy defaults has adopted machines only observed. It asks the API server until
// that is known, in a dry run: an error is returned, because a machine that is to be observed must not be adopted for lack of an answer.
func (o *adopt) setRunPolicy(ctx context.Context, c *cli.Cluster, machine *v1alpha1.VirtualMachine) error {
	if o.runPolicy != "" || machine.Spec.RunPolicy == "" {
		machine.Spec.RunPolicy = v1alpha1.RunPolicy(o.runPolicy)
		return nil
	}
	if o.observed == nil {
		asked := machine.DeepCopy()
		asked.Spec.RunPolicy = ""
		if err := c.Try(ctx, asked); err != nil {
			return err
		}
		o.observed = new(asked.Spec.RunPolicy == v1alpha1.RunPolicyObserve)
	}
	if *o.observed {
		machine.Spec.RunPolicy = v1alpha1.RunPolicyObserve
	}
	return nil
}

// labelsFor returns the labels of a machine that its VirtualMachine gets: all but those of Sallyport, of KubeVirt, and of deployment tools,
// which would take it for theirs.
func labelsFor(theirs map[string]string) map[string]string {
	labels := runtime.DefaultUncopied().Rest(theirs)
	maps.DeleteFunc(labels, func(key, _ string) bool {
		prefix, _, prefixed := strings.Cut(key, "/")
		return prefixed && slices.ContainsFunc([]string{v1alpha1.GroupName, "kubevirt.io"}, func(group string) bool {
			return prefix == group || strings.HasSuffix(prefix, "."+group)
		})
	})
	return labels
}

// readAll reads the objects of a list in the namespace, page by page.
func readAll[L client.ObjectList, T any](ctx context.Context, c *cli.Cluster, page L, items func(L) []T) (all []T, err error) {
	for {
		err := c.List(ctx, page, client.InNamespace(c.Namespace), client.Limit(cli.PageSize), client.Continue(page.GetContinue()))
		if err != nil {
			return nil, err
		}
		if all = append(all, items(page)...); page.GetContinue() == "" {
			return all, nil
		}
	}
}
