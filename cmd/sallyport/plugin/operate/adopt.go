package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
)

// kubeVirtMachines is the resource of KubeVirt's VirtualMachines, as kubectl accepts it.
const kubeVirtMachines = "virtualmachines.kubevirt.io"

type adopt struct {
	*cli.Plugin
	which cli.Selection
	creation
}

func adoptCommand(p *cli.Plugin) *cobra.Command {
	o := &adopt{Plugin: p}
	command := &cobra.Command{
		Use:   "adopt (NAME... | -l SELECTOR | --all)",
		Short: "Adopt existing machines of KubeVirt",
		Long: "Creates, for VirtualMachines of KubeVirt, VirtualMachines of Sallyport with the same names that adopt them. Machines stay on or\n" +
			"off as they are. The run policy follows the run strategy, which becomes Manual:\n" +
			"  - Always or Halted: AlwaysOnUnlessStoppedManually. A machine that is off stays off until it is started\n" +
			"  - others, such as RerunOnFailure: Manual\n\n" +
			"The command skips machines that are adopted already, and with -l and --all those that are being deleted or that another\n" +
			"object controls, such as a pool, and prints why. It continues after errors. To undo an adoption, delete the VirtualMachine\n" +
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
	ours, err := machines(ctx, c)
	if err != nil {
		return err
	}
	for _, vm := range theirs {
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted before %s", vm.GetName())
		}
		err := o.adopt(ctx, c, vm.Unstructured, ours)
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

// machines reads the VirtualMachines of Sallyport in the namespace.
func machines(ctx context.Context, c *cli.Cluster) (all []v1alpha1.VirtualMachine, err error) {
	for page := (&v1alpha1.VirtualMachineList{}); ; {
		err := c.List(ctx, page, client.InNamespace(c.Namespace), client.Limit(cli.PageSize), client.Continue(page.Continue))
		if err != nil {
			return nil, fmt.Errorf("reading the VirtualMachines of Sallyport: %w", err)
		}
		if all = append(all, page.Items...); page.Continue == "" {
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
func (o *adopt) adopt(ctx context.Context, c *cli.Cluster, theirs *unstructured.Unstructured, ours []v1alpha1.VirtualMachine) error {
	if err := adoptable(theirs, ours); err != nil {
		return err
	}
	machine := adopting(theirs)
	if err := o.create(ctx, c, machine); err != nil {
		return err
	}
	return o.printer.PrintObj(machine, o.Raw)
}

// adoptable returns an error if a machine cannot be adopted under its name.
func adoptable(theirs *unstructured.Unstructured, ours []v1alpha1.VirtualMachine) error {
	mark := theirs.GetLabels()[v1alpha1.LabelMachineOfKubeVirt]
	for i := range ours {
		vm, k := &ours[i], ours[i].Spec.Runtime.KubeVirt
		switch {
		case mark == string(vm.UID), mark == "" && k != nil && k.Create == nil && cmp.Or(k.Name, vm.Name) == theirs.GetName():
			return skipped{text: "it belongs to VirtualMachine " + vm.Name + " of Sallyport", adopted: true}
		case mark == "" && vm.Name == theirs.GetName():
			return fmt.Errorf("VirtualMachine %s of Sallyport exists and is another machine: create one with another name and spec.runtime.kubevirt.name: %[1]s", vm.Name)
		}
	}
	switch owner := metav1.GetControllerOf(theirs); {
	case mark != "":
		return skipped{text: fmt.Sprintf("its label %s belongs to a VirtualMachine that does not exist in this namespace: see kubectl sallyport take-over --help",
			v1alpha1.LabelMachineOfKubeVirt)}
	case owner != nil:
		return skipped{text: fmt.Sprintf("%s %s controls it", owner.Kind, owner.Name)}
	case theirs.GetDeletionTimestamp() != nil:
		return skipped{text: "it is being deleted"}
	}
	return nil
}

// adopting returns the VirtualMachine that adopts one of KubeVirt and keeps it on or off, as it is.
func adopting(theirs *unstructured.Unstructured) *v1alpha1.VirtualMachine {
	vm := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: theirs.GetNamespace(), Name: theirs.GetName()}}
	vm.Spec.Runtime.KubeVirt = &v1alpha1.KubeVirtRuntime{Name: theirs.GetName()}
	switch strategy, _, _ := unstructured.NestedString(theirs.Object, "spec", "runStrategy"); strategy {
	case "", "Always", "Halted": // "" with the older field running: virtctl start and stop change between these two
		vm.Spec.RunPolicy = v1alpha1.RunPolicyAlwaysOnUnlessStoppedManually
	default:
		vm.Spec.RunPolicy = v1alpha1.RunPolicyManual
	}
	return vm
}
