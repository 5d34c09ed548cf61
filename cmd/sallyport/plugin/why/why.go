// Package why has the command that explains what an object waits for, and which requests are allowed.
package why

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/internal/format"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
)

// Command returns the command `why`.
func Command(p *cli.Plugin) *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:   "why KIND NAME",
		Short: "Explain what an object waits for, and which requests are allowed now",
		Long: "Explains what an object waits for:\n" +
			"  - VirtualMachine: its claim, what the claim waits for, what blocks its deletion, and which operations are allowed\n" +
			"  - VirtualMachineOperation: what it waits for, or its result\n" +
			"  - VirtualMachinePool: what it waits for, and which members are busy or being removed\n" +
			"  - VSphereTemplate: the releases of each failure domain, what it waits for, and its users\n" +
			"  - VMDiskImage: its import, what it waits for, who uses it, and what its deletion waits for\n" +
			"  - VSphereServer: what it waits for, and machines whose VirtualMachine does not exist\n" +
			"  - certificate, without a name: the certificate of the webhooks, who serves and trusts it, and what is wrong with it\n" +
			"  - any other kind: whether it can be deleted and scaled down, what its deletion waits for, its owners, its deletion and\n" +
			"    scaling guards, and the events of Sallyport\n\n" +
			"To find out which requests are allowed now, the command sends them to the API server as dry runs. A request is undecided\n" +
			"if a policy failed to decide, forbidden if RBAC does not allow it, and unknown if the API server did not respond.\n\n" +
			"KIND is a kind, resource or short name as in kubectl get. KIND/NAME is the same as KIND NAME. NAME alone is a\n" +
			"VirtualMachine, except certificate.",
		Example: `  # What does this machine wait for, and which operations are allowed?
  kubectl sallyport why svm web-1

  # What does this operation wait for?
  kubectl sallyport why svmop/web-1-stop-x7k2p

  # Why does this pool have more machines than it should?
  kubectl sallyport why svmpool ci

  # What is the progress of the new release of a template?
  kubectl sallyport why svst ubuntu

  # Who uses this image, and when is it deleted?
  kubectl sallyport why vmdi ubuntu

  # Which machines of this vCenter have lost their VirtualMachine?
  kubectl sallyport why svsrv vc-1

  # What blocks the deletion of this namespace?
  kubectl sallyport why ns team-a

  # Can this Deployment be scaled down?
  kubectl sallyport why deploy/web`,
		Args: func(command *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return cli.UsageError(command, errors.New("specify one object, such as svm web-1"))
			}
			return nil
		},
		RunE:              func(command *cobra.Command, args []string) error { return runWhy(command.Context(), p, args, output) },
		ValidArgsFunction: p.CompleteTarget,
	}
	format.AddFlag(command, &output)
	return command
}

func runWhy(ctx context.Context, p *cli.Plugin, args []string, output string) error {
	kind, name, err := target(args)
	if err != nil {
		return err
	}
	c, err := p.Connect()
	if err != nil {
		return err
	}
	var r cli.Report
	switch {
	case slices.Equal(args, []string{certificateArgument}):
		r, err = gatherCertificate(ctx, c, p.Now())
		kind = "" // which is served by no replica
	case kind == cli.MachineKind:
		r, err = gatherMachine(ctx, c, name)
	case kind == cli.OperationKind:
		r, err = gatherOperation(ctx, c, name)
	default:
		r, err = gatherObject(ctx, p, c, args)
	}
	if err != nil {
		return err
	}
	if output != "" {
		return format.Print(p.Out, output, r)
	}
	if slices.Contains([]string{cli.MachineKind, cli.OperationKind, cli.PoolKind, cli.TemplateKind, cli.ImageKind, cli.ServerKind}, kind) { // their controller is missing, too
		p.WarnUnserved(ctx, c)
	}
	return cli.Render(p.Out, r, p.Now())
}

type machineReport struct {
	Machine *v1alpha1.VirtualMachine `json:"virtualMachine"`
	// Unfinished are the operations that hold it or wait for it, oldest first.
	Unfinished []v1alpha1.VirtualMachineOperation `json:"unfinishedOperations"`
	// Requests are the possible requests and whether they would be admitted now.
	Requests []cli.Answer `json:"requests"`
}

func gatherMachine(ctx context.Context, c *cli.Cluster, name string) (cli.Report, error) {
	machine := &v1alpha1.VirtualMachine{}
	if err := c.Get(ctx, c.Key(name), machine); err != nil {
		return nil, err
	}
	list := &v1alpha1.VirtualMachineOperationList{}
	err := c.List(ctx, list, client.InNamespace(c.Namespace), client.MatchingFields{"spec.virtualMachineName": name})
	if err != nil {
		return nil, fmt.Errorf("listing the operations of %s: %w", name, err)
	}
	r := &machineReport{Machine: machine, Unfinished: list.Items, Requests: c.AskMachine(ctx, machine, cli.MachineRequests())}
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

type operationReport struct {
	Operation *v1alpha1.VirtualMachineOperation `json:"virtualMachineOperation"`
	// Machine is absent if there is none of that name, or if it may not be read.
	Machine *v1alpha1.VirtualMachine `json:"virtualMachine,omitempty"`
	// MachineError is why Machine is absent.
	MachineError string `json:"virtualMachineError,omitempty"`
}

func gatherOperation(ctx context.Context, c *cli.Cluster, name string) (cli.Report, error) {
	r := &operationReport{Operation: &v1alpha1.VirtualMachineOperation{}}
	err := c.Get(ctx, c.Key(name), r.Operation)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%w (operations are deleted after spec.ttlSecondsAfterFinished)", err)
	}
	if err != nil {
		return nil, err
	}
	r.Operation.ManagedFields = nil
	machine := &v1alpha1.VirtualMachine{}
	if err := c.Get(ctx, c.Key(r.Operation.Spec.VirtualMachineName), machine); err != nil {
		r.MachineError = err.Error()
		return r, nil
	}
	machine.ManagedFields = nil
	r.Machine = machine
	return r, nil
}

// target parses KIND NAME, KIND/NAME, or the NAME of a VirtualMachine. The kind is empty if it is not Sallyport's.
func target(args []string) (kind, name string, err error) {
	word, name := cli.MachineKind, args[0]
	switch before, after, found := strings.Cut(args[0], "/"); {
	case len(args) == 2 && !found:
		word, name = args[0], args[1]
	case len(args) == 2:
		return "", "", fmt.Errorf("%s already contains a name: use KIND NAME or KIND/NAME", args[0])
	case found:
		word, name = before, after
	case cli.KindOf(name) == cli.PolicyKind:
		return "", "", fmt.Errorf("specify a %s, such as rego/defaults", cli.PolicyKind)
	case cli.KindOf(name) != "":
		return "", "", fmt.Errorf("specify a %s, such as %s/web-1", cli.KindOf(name), name)
	}
	kind = cli.KindOf(word)
	if name == "" || strings.Contains(name, "/") {
		return "", "", fmt.Errorf("invalid argument %s: specify exactly one %s", strings.Join(args, " "), cmp.Or(kind, "object"))
	}
	return kind, name, nil
}
