package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/internal/choice"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
	"sallyport.dev/sallyport/commands"
)

// kubeVirtMachines is the resource of KubeVirt's VirtualMachines, as kubectl accepts it.
const kubeVirtMachines = "virtualmachines.kubevirt.io"

type adopt struct {
	*cli.Plugin
	which     cli.Selection
	runPolicy string
	creation
}

func adoptCommand(p *cli.Plugin) *cobra.Command {
	o := &adopt{Plugin: p}
	command := &cobra.Command{
		Use:   "adopt (NAME... | -l SELECTOR | --all)",
		Short: "Adopt existing machines of KubeVirt",
		Long: "Creates, for VirtualMachines of KubeVirt, VirtualMachines of Sallyport with the same names that adopt them. Machines stay on or\n" +
			"off as they are, unless KubeVirt was about to start them. The run policy follows the run strategy, which becomes Manual:\n" +
			"  - Always: AlwaysOnUnlessStoppedManually. A machine that is off is started\n" +
			"  - Halted: AlwaysOnUnlessStoppedManually. A machine that is off stays off until it is started\n" +
			"  - others, such as RerunOnFailure: Manual\n" +
			"With --run-policy Observe, nothing changes: Sallyport only shows the machine. The command prints each run strategy that changes: a\n" +
			"tool that applies the machine from Git must apply runStrategy Manual first.\n" +
			"spec.blockDeviceRefs names the VirtualDisks that the machine has and that are not attached to another machine.\n\n" +
			"The command skips machines that are adopted already, and with -l and --all those that are being deleted, that another\n" +
			"object controls, such as a pool, or that have the label of another VirtualMachine, as clones have, and prints why. It continues after errors. To undo an adoption, delete the VirtualMachine\n" +
			"of Sallyport: kubectl delete svm NAME.\n\n" +
			"Exit codes: 0 on success, 1 if a machine could not be adopted.",
		Example: `  # Print what would adopt all machines of a namespace
  kubectl sallyport adopt --all -n team-a --dry-run=client -o yaml

  # Adopt all machines of a namespace
  kubectl sallyport adopt --all -n team-a

  # Adopt two machines
  kubectl sallyport adopt web-1 db-1 -n team-a`,
		Args: o.which.Args("VirtualMachine of KubeVirt"),
		RunE: func(command *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return cli.UsageError(command, err)
			}
			return o.run(command.Context(), args)
		},
		ValidArgsFunction: func(command *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return p.CompleteOthers(command, &o.which, kubeVirtMachines, args), cobra.ShellCompDirectiveNoFileComp
		},
	}
	o.which.AddFlags(p, command, func([]string) string { return kubeVirtMachines })
	all := append(slices.Clone(runPolicies), string(v1alpha1.RunPolicyObserve))
	choice.Flag(command, &o.runPolicy, "run-policy", "", "the run policy: "+strings.Join(all, ", ")+" (default: by the run strategy)", all...)
	o.addFlags(command)
	return command
}

func (o *adopt) run(ctx context.Context, names []string) error {
	c, err := o.Connect()
	if err != nil {
		return err
	}
	failed := false
	fail := func(name string, err error) {
		fmt.Fprintln(o.ErrOut, cli.Describe(fmt.Errorf("adopting %s: %w", name, err)))
		failed = true
	}
	var theirs []cli.Found
	if o.which.Given() {
		if theirs, err = o.Find(c.Namespace, o.which, kubeVirtMachines); err != nil {
			return err
		}
	}
	for _, name := range names {
		found, err := o.Find(c.Namespace, o.which, kubeVirtMachines, name)
		if err != nil {
			fail(name, err)
		}
		theirs = append(theirs, found...)
	}
	ours, err := readAll(ctx, c, &v1alpha1.VirtualMachineList{}, func(l *v1alpha1.VirtualMachineList) []v1alpha1.VirtualMachine { return l.Items })
	if err != nil {
		return fmt.Errorf("reading the VirtualMachines of Sallyport: %w", err)
	}
	disks, err := readAll(ctx, c, &v1alpha1.VirtualDiskList{}, func(l *v1alpha1.VirtualDiskList) []v1alpha1.VirtualDisk { return l.Items })
	if err != nil {
		return fmt.Errorf("reading the VirtualDisks: %w", err)
	}
	disks = slices.DeleteFunc(disks, func(d v1alpha1.VirtualDisk) bool {
		return d.Spec.Runtime.KubeVirt == nil || d.Status.DiskID == "" || d.Status.AttachedTo != nil &&
			slices.ContainsFunc(ours, func(vm v1alpha1.VirtualMachine) bool { return vm.UID == d.Status.AttachedTo.UID })
	})
	for _, vm := range theirs {
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted before %s", vm.GetName())
		}
		err := o.adopt(ctx, c, vm.Unstructured, ours, disks)
		if skip := new(skipped); errors.As(err, skip) && (skip.adopted || o.which.Given()) {
			fmt.Fprintf(o.ErrOut, "%s skipped: %v\n", vm.GetName(), err)
		} else if err != nil {
			fail(vm.GetName(), err)
		}
	}
	if failed {
		return cli.ErrReported
	}
	return nil
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

// skipped is why a machine is not adopted.
type skipped struct {
	text string
	// adopted says that Sallyport runs the machine already.
	adopted bool
}

func (s skipped) Error() string { return s.text }

// adopt creates and prints the VirtualMachine that adopts one of KubeVirt.
func (o *adopt) adopt(ctx context.Context, c *cli.Cluster, theirs *unstructured.Unstructured, ours []v1alpha1.VirtualMachine, disks []v1alpha1.VirtualDisk) error {
	if err := adoptable(theirs, ours); err != nil {
		return err
	}
	machine := adopting(theirs, disks)
	machine.Spec.RunPolicy = cmp.Or(v1alpha1.RunPolicy(o.runPolicy), machine.Spec.RunPolicy)
	if err := o.create(ctx, c, machine); err != nil {
		return err
	}
	if was := strategyOf(theirs); machine.Spec.RunPolicy != v1alpha1.RunPolicyObserve && was != "Manual" {
		fmt.Fprintf(o.ErrOut, "%s: run strategy changes from %s to Manual%s\n", machine.Name, was, cli.DryRunSuffix[o.dryRun])
	}
	return o.printer.PrintObj(machine, o.Raw)
}

// adoptable returns an error if a machine cannot be adopted under its name.
func adoptable(theirs *unstructured.Unstructured, ours []v1alpha1.VirtualMachine) error {
	mark, of := theirs.GetLabels()[v1alpha1.LabelMachineOfKubeVirt], "a VirtualMachine that does not exist in this namespace"
	for i := range ours {
		vm, k := &ours[i], ours[i].Spec.Runtime.KubeVirt
		switch {
		case mark == string(vm.UID) && vm.Status.InstanceID != "" && vm.Status.InstanceID != theirs.GetName():
			of = "VirtualMachine " + vm.Name + ", whose machine is " + vm.Status.InstanceID + ", and was copied, as by a clone"
		case mark == string(vm.UID), mark == "" && k != nil && k.Create == nil && cmp.Or(k.Name, vm.Name) == theirs.GetName():
			return skipped{text: "it belongs to VirtualMachine " + vm.Name + " of Sallyport", adopted: true}
		case mark == "" && vm.Name == theirs.GetName():
			return fmt.Errorf("VirtualMachine %s of Sallyport exists and is another machine: create one with another name and spec.runtime.kubevirt.name: %[1]s", vm.Name)
		}
	}
	switch owner := metav1.GetControllerOf(theirs); {
	case mark != "":
		remove := commands.Line("kubectl", "label", kubeVirtMachines, theirs.GetName(), "-n", theirs.GetNamespace(), v1alpha1.LabelMachineOfKubeVirt+"-")
		return skipped{text: fmt.Sprintf("its label %s is of %s. To adopt it, remove the label: %s", v1alpha1.LabelMachineOfKubeVirt, of, remove)}
	case owner != nil:
		return skipped{text: fmt.Sprintf("%s %s controls it", owner.Kind, owner.Name)}
	case theirs.GetDeletionTimestamp() != nil:
		return skipped{text: "it is being deleted"}
	}
	return nil
}

// adopting returns the VirtualMachine that adopts one of KubeVirt and keeps it on or off, as it is, with those of the disks that it has.
func adopting(theirs *unstructured.Unstructured, disks []v1alpha1.VirtualDisk) *v1alpha1.VirtualMachine {
	vm := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: theirs.GetNamespace(), Name: theirs.GetName()}}
	vm.Spec.Runtime.KubeVirt = &v1alpha1.KubeVirtRuntime{Name: theirs.GetName()}
	switch strategyOf(theirs) {
	case "Always", "Halted": // virtctl start and stop change between these two
		vm.Spec.RunPolicy = v1alpha1.RunPolicyAlwaysOnUnlessStoppedManually
	default:
		vm.Spec.RunPolicy = v1alpha1.RunPolicyManual
	}
	volumes, _, _ := unstructured.NestedSlice(theirs.Object, "spec", "template", "spec", "volumes")
	for _, volume := range volumes {
		of, _ := volume.(map[string]any)
		claim, _, _ := unstructured.NestedString(of, "persistentVolumeClaim", "claimName")
		if claim == "" {
			claim, _, _ = unstructured.NestedString(of, "dataVolume", "name")
		}
		if i := slices.IndexFunc(disks, func(d v1alpha1.VirtualDisk) bool { return d.Status.DiskID == claim }); i >= 0 {
			vm.Spec.BlockDeviceRefs = append(vm.Spec.BlockDeviceRefs, v1alpha1.BlockDeviceRef{Kind: v1alpha1.BlockDeviceVirtualDisk, Name: disks[i].Name})
		}
	}
	return vm
}

// strategyOf returns the run strategy of a VirtualMachine of KubeVirt, also if it has the older field running.
func strategyOf(theirs *unstructured.Unstructured) string {
	if strategy, _, _ := unstructured.NestedString(theirs.Object, "spec", "runStrategy"); strategy != "" {
		return strategy
	}
	if running, _, _ := unstructured.NestedBool(theirs.Object, "spec", "running"); running {
		return "Always"
	}
	return "Halted"
}
