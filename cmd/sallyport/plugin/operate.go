package plugin

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// verb is a command that asks for one type of operation.
type verb struct {
	use, short, example string
	kind                v1alpha1.OperationType
}

var verbs = []verb{
	{"start", "Power virtual machines on", `  # Power on, and wait until that is seen
  kubectl sallyport start web-1 --wait`, v1alpha1.OperationStart},
	{"stop", "Shut virtual machines down", `  # Shut two guests down
  kubectl sallyport stop web-1 web-2

  # Shut down those with a label
  kubectl sallyport stop -l app=web

  # Would it be accepted? Nothing is done
  kubectl sallyport stop web-1 --dry-run=server

  # Power off without waiting for the guest, in place of a stop that the guest ignores
  kubectl sallyport stop web-1 --force

  # In spite of the denial of a policy that I may override, once
  kubectl sallyport stop web-1 --override "operations-applicability: moved to db-2, ticket 42"`, v1alpha1.OperationStop},
	{"restart", "Shut virtual machines down and power them on again", `  # Restart, and give up after five minutes
  kubectl sallyport restart web-1 --deadline 5m --wait`, v1alpha1.OperationRestart},
	{"migrate", "Move virtual machines to another node", `  # To wherever the runtime chooses
  kubectl sallyport migrate web-1

  # To this node, or to one with these labels
  kubectl sallyport migrate web-1 --to esx-3
  kubectl sallyport migrate web-1 --node-selector zone=b,disk=ssd`, v1alpha1.OperationMigrate},
	{"evict", "Move virtual machines off their nodes, to wherever there is room", `  # Off its node, and wait until it is
  kubectl sallyport evict web-1 --wait

  # All that are on a node, of the namespace
  kubectl sallyport evict --field-selector status.nodeName=esx-3 --wait`, v1alpha1.OperationEvict},
}

// operate is one command that asks for operations.
type operate struct {
	*plugin
	verb
	force, wait            bool
	timeout, deadline, ttl time.Duration
	override               string
	migrate                v1alpha1.MigrateTarget
	nodeSelector           nodeSelector
	which                  selection
	creation
}

func (p *plugin) operateCommand(v verb) *cobra.Command {
	o := &operate{plugin: p, verb: v}
	command := &cobra.Command{
		Use:   v.use + " (VM... | -l SELECTOR | --all)",
		Short: v.short,
		Long: v.short + ".\n\nCreates a VirtualMachineOperation of type " + string(v.kind) + " for each VM, which is named as web-1 or\n" +
			"svm/web-1, or chosen by its labels. What is refused is shown as the API server says it; the others are tried all the\n" +
			"same, one after the other.\n\n" +
			"Exit code 1 if one was refused or, with --wait, did not succeed.",
		Example: v.example,
		Args: func(command *cobra.Command, args []string) error {
			if len(args) == 0 && !o.which.given() {
				return usage(command, errors.New("which VirtualMachine? Name at least one, or choose with -l or --all"))
			}
			if err := o.which.check(len(args)); err != nil {
				return usage(command, err)
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error { return o.run(command, args) },
		ValidArgsFunction: func(command *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return p.others(command, &o.which, machineKind, args), cobra.ShellCompDirectiveNoFileComp
		},
	}
	o.addFlags(command)
	return command
}

func (o *operate) addFlags(command *cobra.Command) {
	o.which.addFlags(o.plugin, command, func([]string) string { return machineKind })
	f := command.Flags()
	f.BoolVar(&o.force, "force", false, "do not wait for the guest")
	if o.kind == v1alpha1.OperationStart {
		f.Lookup("force").Hidden = true // the API server knows why not
	}
	f.BoolVar(&o.wait, "wait", false, "wait until the operation has ended, and fail unless it succeeded")
	f.DurationVar(&o.timeout, "timeout", 0, "how long --wait waits (default: the operation's deadline, and a minute more)")
	f.DurationVar(&o.deadline, "deadline", 0, "how long the operation may take before it is withdrawn (default: 10m; 1h for migrate and evict)")
	f.DurationVar(&o.ttl, "ttl", 0, "how long the operation is kept after it has ended (default: 24h)")
	f.StringVar(&o.override, "override", "", "the policy to pass in spite of its denial, and why, as \"POLICY: REASON\", if you may")
	if o.kind == v1alpha1.OperationMigrate {
		f.StringVar(&o.migrate.NodeName, "to", "", "the node or ESXi host to move to")
		o.nodeSelector.addFlag(f, "labels that the node to move to must have")
	}
	o.creation.addFlags(command)
}

func (o *operate) run(command *cobra.Command, args []string) error {
	names, spec, err := o.check(command, args)
	if err != nil {
		return usage(command, err)
	}
	var past *v1alpha1.Override
	if command.Flags().Changed("override") {
		if past, err = overrideOf(o.override, o.now()); err != nil {
			return usage(command, err)
		}
	}
	c, err := o.connect()
	if err != nil {
		return err
	}
	if past != nil {
		who, err := c.whoami(command.Context())
		if err != nil {
			return err
		}
		past.By = who.Username
	}
	if o.which.given() {
		machines, err := o.find(c.namespace, o.which, "virtualmachines."+v1alpha1.GroupName)
		if err != nil {
			return err
		}
		for i := range machines {
			names = append(names, machines[i].GetName())
		}
	}
	created, err := o.createAll(command.Context(), c, names, spec, past)
	if err != nil {
		return err
	}
	if o.wait && len(created) > 0 {
		o.warnUnserved(command.Context(), c)
	}
	failed := len(created) < len(names)
	if o.wait && !o.await(command.Context(), c, created) || failed {
		return errTold
	}
	return nil
}

// adviceAtMost is after how many refusals it is no longer looked for what would be accepted instead, which takes requests.
const adviceAtMost = 5

// createAll asks for one operation after the other, whatever became of those before, and tells each answer.
func (o *operate) createAll(
	ctx context.Context, c *cluster, names []string, spec v1alpha1.VirtualMachineOperationSpec, past *v1alpha1.Override,
) (created []*v1alpha1.VirtualMachineOperation, err error) {
	for i, name := range names {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("interrupted before %s, which is %d of %d VirtualMachines", name, i+1, len(names))
		}
		operation := newOperation(c.namespace, name, spec)
		if past != nil {
			operation.Annotations = map[string]string{v1alpha1.AnnotationOverride: past.String()}
		}
		if err := o.create(ctx, c, operation); err != nil {
			fmt.Fprintln(o.ErrOut, describe(fmt.Errorf("%s of %s: %w", called(spec.Type, spec.Force), name, err)))
			if i-len(created) < adviceAtMost {
				o.advise(ctx, c, name, err, past)
			}
			continue
		}
		created = append(created, operation)
		if err := o.show(operation); err != nil {
			return nil, err
		}
	}
	return created, nil
}

// show prints an operation. One that the API server has not named is called by what its name would begin with.
func (o *operate) show(operation *v1alpha1.VirtualMachineOperation) error {
	if format := *o.print.OutputFormat; operation.Name == "" && (format == "" || format == "name") {
		operation = operation.DeepCopy()
		operation.Name = operation.GenerateName
	}
	return o.printer.PrintObj(operation, o.raw)
}

// advise tells what to do about a refusal.
func (o *operate) advise(ctx context.Context, c *cluster, name string, err error, past *v1alpha1.Override) {
	o.wayOut(ctx, c, name, err)
	if past == nil {
		o.wayPast(ctx, c, err)
	}
	if said, _ := judge(err); said == unknown {
		o.warnUnserved(ctx, c)
	}
}

// check reads the command line. What an operation may be like is for the API server to say.
func (o *operate) check(command *cobra.Command, args []string) ([]string, v1alpha1.VirtualMachineOperationSpec, error) {
	spec := v1alpha1.VirtualMachineOperationSpec{Type: o.kind, Force: o.force}
	names := make([]string, len(args))
	for i, argument := range args {
		var err error
		if names[i], err = machineName(argument); err != nil {
			return nil, spec, err
		}
	}
	if err := o.creation.check(); err != nil {
		return nil, spec, err
	}
	switch set := command.Flags().Changed; {
	case o.wait && o.dryRun != dryRunNone:
		return nil, spec, fmt.Errorf("--wait has nothing to wait for with --dry-run=%s", o.dryRun)
	case set("to") && set("node-selector"):
		return nil, spec, errors.New("cannot set --to and --node-selector at the same time")
	case set("timeout") && !o.wait:
		return nil, spec, errors.New("--timeout is how long --wait waits: add --wait")
	case set("timeout") && o.timeout <= 0:
		return nil, spec, errors.New("--timeout must be longer than 0")
	case set("deadline") && !seconds(o.deadline, &spec.ActiveDeadlineSeconds):
		return nil, spec, fmt.Errorf("--deadline %s is not a number of whole seconds", o.deadline)
	case set("ttl") && !seconds(o.ttl, &spec.TTLSecondsAfterFinished):
		return nil, spec, fmt.Errorf("--ttl %s is not a number of whole seconds", o.ttl)
	}
	if o.migrate.NodeName != "" || len(o.nodeSelector) > 0 {
		spec.Migrate = &o.migrate
		spec.Migrate.NodeSelector = o.nodeSelector.labels()
	}
	return names, spec, nil
}

// seconds puts a duration into a field that counts whole ones.
func seconds(d time.Duration, field **int32) bool {
	if d%time.Second != 0 || d < 0 || d/time.Second > math.MaxInt32 {
		return false
	}
	*field = new(int32(d / time.Second))
	return true
}

// newOperation is an operation as this plugin asks for it; the API server makes the name.
func newOperation(namespace, machine string, spec v1alpha1.VirtualMachineOperationSpec) *v1alpha1.VirtualMachineOperation {
	spec.VirtualMachineName = machine
	return &v1alpha1.VirtualMachineOperation{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, GenerateName: fmt.Sprintf("%s-%s-", machine, strings.ToLower(string(spec.Type))),
		},
		Spec: spec,
	}
}

// called is what people call an operation.
func called(t v1alpha1.OperationType, force bool) string {
	if force {
		return "forced " + string(t)
	}
	return string(t)
}
