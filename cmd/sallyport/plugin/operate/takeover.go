package operate

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
)

// earlier is a command that decides about objects that are held back, by an annotation.
type earlier struct {
	use, short, long, example string
	// writes is the annotation of the command, and removes that of the other command.
	writes, removes string
	effect          string
}

const earlierArgs = " KIND (NAME... | -l SELECTOR | --all)"

// earlierCommands decide about runtime objects of the same name with another UID.
var earlierCommands = []earlier{{
	use: "take-over", short: "Take over the machines, disks and templates of restored objects",
	long: "Has VirtualMachines, VirtualDisks or VSphereTemplates that are held back (reason OwnedByAnother) take over what the runtime has for\n" +
		"objects of the same names with other UIDs, for example before a restore. Machines stay as they are, on or off. Take over disks before the machines\n" +
		"that use them. Do not take over what another cluster still manages. Requires the verb override on RegoPolicy machines-abandon.",
	example: `  # Take over a disk, and then its machine
  kubectl sallyport take-over svd data -n team-a
  kubectl sallyport take-over svm web-1 -n team-a

  # Take over the releases of a template
  kubectl sallyport take-over svst ubuntu -n team-a

  # Take over all machines of a namespace that are held back
  kubectl sallyport take-over svm --all -n team-a`,
	writes: v1alpha1.AnnotationTakeOver, removes: v1alpha1.AnnotationMakeAnew, effect: "takes over what the runtime has for its name",
}, {
	use: "make-anew", short: "Create other machines and disks for restored objects",
	long: "Has Sallyport create new machines or disks for VirtualMachines or VirtualDisks that are held back (reason OwnedByAnother). What the\n" +
		"runtime has for objects of the same names with other UIDs is left alone, for example because another cluster manages it. Requires\n" +
		"the verb override on RegoPolicy machines-abandon.",
	example: `  # Create a machine although another cluster on the same vCenter has one for the same name
  kubectl sallyport make-anew svm web-1 -n team-a`,
	writes: v1alpha1.AnnotationMakeAnew, removes: v1alpha1.AnnotationTakeOver, effect: "is created anew",
}}

func earlierCommand(p *cli.Plugin, e earlier) *cobra.Command {
	which, dryRun := &cli.Selection{}, ""
	command := &cobra.Command{
		Use: e.use + earlierArgs, Short: e.short, Long: e.long, Example: e.example,
		Args: func(command *cobra.Command, args []string) error {
			switch {
			case len(args) == 0 || len(args) == 1 && !which.Given() && !strings.Contains(args[0], "/"):
				return cli.UsageError(command, errors.New("specify the object: KIND NAME, KIND/NAME, or KIND with -l or --all"))
			case which.Check(cli.NamesIn(args)) != nil:
				return cli.UsageError(command, which.Check(cli.NamesIn(args)))
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			return decideEarlier(command.Context(), p, e, *which, args, dryRun)
		},
	}
	which.AddTargetFlags(p, command, 0)
	cli.AddDryRun(command, &dryRun)
	return command
}

func decideEarlier(ctx context.Context, p *cli.Plugin, e earlier, which cli.Selection, args []string, dryRun string) error {
	c, err := p.Connect()
	if err != nil {
		return err
	}
	objects, err := p.Find(c.Namespace, which, args...)
	if err != nil {
		return err
	}
	failed, held := false, 0
	for _, object := range objects {
		err := e.mayDecide(object.Unstructured)
		if err == nil {
			err = cli.Annotate(ctx, c, object, map[string]any{e.writes: object.GetUID(), e.removes: nil}, dryRun)
		}
		switch {
		case errors.Is(err, errNotHeld) && which.Given():
			continue
		case err != nil:
			fmt.Fprintln(p.ErrOut, cli.Describe(fmt.Errorf("%s: %w", object.Name(), err)))
			failed = true
		default:
			fmt.Fprintf(p.Out, "%s %s%s\n", object.Name(), e.effect, cli.DryRunSuffix[dryRun])
		}
		held++
	}
	if held == 0 && len(objects) > 0 {
		fmt.Fprintf(p.ErrOut, "Nothing of the selection is held back (condition Ready with the reason %s).\n", v1alpha1.ReasonOwnedByAnother)
	}
	if failed {
		return cli.ErrReported
	}
	return nil
}

var errNotHeld = errors.New("not held back: its condition Ready must have the reason OwnedByAnother")

// mayDecide returns an error if the command has nothing to decide about an object.
func (e earlier) mayDecide(o *unstructured.Unstructured) error {
	switch {
	case !heldBack(o):
		return errNotHeld
	case e.writes == v1alpha1.AnnotationMakeAnew && o.GetKind() == cli.TemplateKind:
		return errors.New("a folder can have only one template of the name: rename or remove the other one in vCenter")
	}
	return nil
}

// heldBack reports whether an object is not reconciled because the runtime has a counterpart of another object of its name.
func heldBack(o *unstructured.Unstructured) bool {
	kind := o.GroupVersionKind()
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		fields, is := c.(map[string]any)
		if is && fields["type"] == string(v1alpha1.ConditionReady) && fields["status"] == string(metav1.ConditionFalse) &&
			fields["reason"] == string(v1alpha1.ReasonOwnedByAnother) {
			return kind.Group == v1alpha1.GroupName && (kind.Kind == cli.MachineKind || kind.Kind == "VirtualDisk" || kind.Kind == cli.TemplateKind)
		}
	}
	return false
}
