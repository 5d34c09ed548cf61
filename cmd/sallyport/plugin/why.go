package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/internal/format"
)

// report is what is known of an object: shown to people, or printed for programs.
type report interface {
	// text is for people; now is what times are told against.
	text(out *page)
}

func (p *plugin) whyCommand() *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:   "why KIND NAME",
		Short: "Tell what something waits for, and what would be accepted now",
		Long: "Tells of a VirtualMachine who holds it, what that waits for, what keeps it from being deleted, and which operations\n" +
			"would be accepted now: each is sent to the API server as a dry run, so the answers are those of the policies. Undecided\n" +
			"is what a policy failed to decide, forbidden what you have not the right to, and unknown what got no answer.\n" +
			"Tells of a VirtualMachineOperation what it waits for, or how it has ended and why.\n" +
			"Tells of a VirtualMachinePool what it waits for, and which members go and are busy, beside what it tells of anything else.\n" +
			"Tells of a VSphereTemplate which releases each failure domain has, what it waits for, and who needs it, too.\n" +
			"Tells of anything else whether it could be deleted and scaled down now, what its deletion waits for, who owns it, which\n" +
			"guards it carries, and what Sallyport has noted about it.\n\n" +
			"KIND is as in kubectl get. KIND/NAME is understood too, and NAME alone is a VirtualMachine.",
		Example: `  # A machine: why does it not do what I want, and what may I do?
  kubectl sallyport why svm web-1

  # An operation: what does it wait for?
  kubectl sallyport why svmop/web-1-stop-x7k2p

  # A pool: why has it more machines than it should?
  kubectl sallyport why svmpool ci

  # A template: how far is the new release?
  kubectl sallyport why svst ubuntu

  # A namespace: why can I not delete it, or why does it not go away?
  kubectl sallyport why ns team-a

  # A workload: may it have fewer replicas?
  kubectl sallyport why deploy/web`,
		Args: func(command *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return usage(command, errors.New("name one object, such as svm web-1"))
			}
			return nil
		},
		RunE:              func(command *cobra.Command, args []string) error { return p.why(command.Context(), args, output) },
		ValidArgsFunction: p.completeTarget,
	}
	format.AddFlag(command, &output)
	return command
}

func (p *plugin) why(ctx context.Context, args []string, output string) error {
	kind, name, err := target(args)
	if err != nil {
		return err
	}
	c, err := p.connect()
	if err != nil {
		return err
	}
	var r report
	switch kind {
	case machineKind:
		r, err = gatherMachine(ctx, c, name)
	case operationKind:
		r, err = gatherOperation(ctx, c, name)
	default:
		r, err = p.gatherObject(ctx, c, args)
	}
	if err != nil {
		return err
	}
	if output != "" {
		return format.Print(p.Out, output, r)
	}
	if kind == machineKind || kind == operationKind || kind == poolKind || kind == templateKind { // which nobody carries out either
		p.warnUnserved(ctx, c)
	}
	return render(p.Out, r, p.now())
}

// machineReport is what is known of a VirtualMachine.
type machineReport struct {
	Machine *v1alpha1.VirtualMachine `json:"virtualMachine"`
	// Unfinished are the operations that hold it or wait for it, oldest first.
	Unfinished []v1alpha1.VirtualMachineOperation `json:"unfinishedOperations"`
	// Requests are what one could ask for now.
	Requests []answer `json:"requests"`
}

func gatherMachine(ctx context.Context, c *cluster, name string) (report, error) {
	machine := &v1alpha1.VirtualMachine{}
	if err := c.Get(ctx, c.key(name), machine); err != nil {
		return nil, err
	}
	list := &v1alpha1.VirtualMachineOperationList{}
	err := c.List(ctx, list, client.InNamespace(c.namespace), client.MatchingFields{"spec.virtualMachineName": name})
	if err != nil {
		return nil, fmt.Errorf("listing the operations of %s: %w", name, err)
	}
	r := &machineReport{Machine: machine, Unfinished: list.Items, Requests: c.ask(ctx, &machineSubject{c, machine}, asked())}
	r.Unfinished = slices.DeleteFunc(r.Unfinished, func(o v1alpha1.VirtualMachineOperation) bool { return o.Finished() })
	slices.SortStableFunc(r.Unfinished, func(a, b v1alpha1.VirtualMachineOperation) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	machine.ManagedFields = nil
	for i := range r.Unfinished {
		r.Unfinished[i].ManagedFields = nil
	}
	return r, nil
}

// operationReport is what is known of a VirtualMachineOperation.
type operationReport struct {
	Operation *v1alpha1.VirtualMachineOperation `json:"virtualMachineOperation"`
	// Machine is absent if there is none of that name, or if it may not be read.
	Machine *v1alpha1.VirtualMachine `json:"virtualMachine,omitempty"`
	// MachineError is why Machine is absent.
	MachineError string `json:"virtualMachineError,omitempty"`
}

func gatherOperation(ctx context.Context, c *cluster, name string) (report, error) {
	r := &operationReport{Operation: &v1alpha1.VirtualMachineOperation{}}
	err := c.Get(ctx, c.key(name), r.Operation)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%w (operations are deleted some time after their end, see spec.ttlSecondsAfterFinished)", err)
	}
	if err != nil {
		return nil, err
	}
	r.Operation.ManagedFields = nil
	machine := &v1alpha1.VirtualMachine{}
	if err := c.Get(ctx, c.key(r.Operation.Spec.VirtualMachineName), machine); err != nil {
		r.MachineError = err.Error()
		return r, nil
	}
	machine.ManagedFields = nil
	r.Machine = machine
	return r, nil
}
