// Package operate has the commands that create, operate, scale and mark virtual machines.
package operate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
)

type verb struct {
	use, short, example string
	kind                v1alpha1.OperationType
}

var verbs = []verb{
	{"start", "Start virtual machines", `  # Start a machine and wait until it is running
  kubectl sallyport start web-1 --wait`, v1alpha1.OperationStart},
	{"stop", "Stop virtual machines", `  # Shut down two machines
  kubectl sallyport stop web-1 web-2

  # Shut down all machines with a label
  kubectl sallyport stop -l app=web

  # Check whether a stop is allowed, without stopping the machine
  kubectl sallyport stop web-1 --dry-run=server

  # Power off without waiting for the guest; supersedes a stop that the guest ignores
  kubectl sallyport stop web-1 --force

  # Override the denial of a policy (needs the verb override on the policy)
  kubectl sallyport stop web-1 --override "operations-applicability: moved to db-2, ticket 42"`, v1alpha1.OperationStop},
	{"restart", "Restart virtual machines", `  # Restart a machine, with a deadline of five minutes
  kubectl sallyport restart web-1 --deadline 5m --wait`, v1alpha1.OperationRestart},
	{"migrate", "Migrate virtual machines to another node", `  # Migrate to a node that the runtime selects
  kubectl sallyport migrate web-1

  # Migrate to a specific node, or to a node with these labels
  kubectl sallyport migrate web-1 --to esx-3
  kubectl sallyport migrate web-1 --node-selector zone=b,disk=ssd`, v1alpha1.OperationMigrate},
	{"evict", "Evict virtual machines from their nodes", `  # Evict a machine from its node and wait until it has moved
  kubectl sallyport evict web-1 --wait

  # Evict all machines of the namespace from a node
  kubectl sallyport evict --field-selector status.nodeName=esx-3 --wait`, v1alpha1.OperationEvict},
}

type operate struct {
	*cli.Plugin
	verb
	force, wait            bool
	timeout, deadline, ttl time.Duration
	override               string
	migrate                v1alpha1.MigrateTarget
	nodeSelector           nodeSelector
	which                  cli.Selection
	creation
}

// Commands returns the commands that create, operate and scale virtual machines.
func Commands(p *cli.Plugin) []*cobra.Command {
	commands := []*cobra.Command{createCommand(p), scaleDownCommand(p), busyCommand(p), idleCommand(p), adoptCommand(p)}
	for _, v := range verbs {
		commands = append(commands, operateCommand(p, v))
	}
	for _, e := range earlierCommands {
		commands = append(commands, earlierCommand(p, e))
	}
	return commands
}

func operateCommand(p *cli.Plugin, v verb) *cobra.Command {
	o := &operate{Plugin: p, verb: v}
	command := &cobra.Command{
		Use:   v.use + " (VM... | -l SELECTOR | --all)",
		Short: v.short,
		Long: v.short + ".\n\nCreates a VirtualMachineOperation of type " + string(v.kind) + " for each VM, one after the other.\n" +
			"Specify VMs by name (web-1 or svm/web-1) or by a selector. If the API server denies an operation, the command prints\n" +
			"the reason and continues with the next VM.\n\n" +
			"Exit codes: 0 on success, 1 if an operation was denied or, with --wait, did not succeed.",
		Example: v.example,
		Args:    o.which.Args(cli.MachineKind),
		RunE:    func(command *cobra.Command, args []string) error { return o.run(command, args) },
		ValidArgsFunction: func(command *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return p.CompleteOthers(command, &o.which, cli.MachineKind, args), cobra.ShellCompDirectiveNoFileComp
		},
	}
	o.addFlags(command)
	return command
}

func (o *operate) addFlags(command *cobra.Command) {
	o.which.AddFlags(o.Plugin, command, func([]string) string { return cli.MachineKind })
	f := command.Flags()
	f.BoolVar(&o.force, "force", false, "do not wait for the guest to shut down")
	if o.kind == v1alpha1.OperationStart {
		f.Lookup("force").Hidden = true // the API server knows why not
	}
	f.BoolVar(&o.wait, "wait", false, "wait until the operation finishes, and fail if it did not succeed")
	f.DurationVar(&o.timeout, "timeout", 0, "timeout of --wait (default: the deadline of the operation plus one minute)")
	f.DurationVar(&o.deadline, "deadline", 0, "deadline of the operation, after which it is rolled back (default: 10m; 1h for migrate and evict)")
	f.DurationVar(&o.ttl, "ttl", 0, "how long the VirtualMachineOperation is kept after it finishes (default: 24h)")
	f.StringVar(&o.override, "override", "", "policy to override once and the reason, as \"POLICY: REASON\" (needs the verb override on the policy)")
	if o.kind == v1alpha1.OperationMigrate {
		f.StringVar(&o.migrate.NodeName, "to", "", "the node or ESXi host to migrate to")
		o.nodeSelector.addFlag(f, "labels of the node to migrate to")
	}
	o.creation.addFlags(command)
}

func (o *operate) run(command *cobra.Command, args []string) error {
	names, spec, err := o.check(command, args)
	if err != nil {
		return cli.UsageError(command, err)
	}
	var past *v1alpha1.Override
	if command.Flags().Changed("override") {
		if past, err = overrideOf(o.override, o.Now()); err != nil {
			return cli.UsageError(command, err)
		}
	}
	c, err := o.Connect()
	if err != nil {
		return err
	}
	if past != nil {
		who, err := c.WhoAmI(command.Context())
		if err != nil {
			return err
		}
		past.By = who.Username
		if _, err := past.Text(); err != nil {
			return fmt.Errorf("writing the override: %w", err)
		}
	}
	if o.which.Given() {
		machines, err := o.Find(c.Namespace, o.which, "virtualmachines."+v1alpha1.GroupName)
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
		o.WarnUnserved(command.Context(), c)
	}
	failed := len(created) < len(names)
	if o.wait && !o.await(command.Context(), c, created) || failed {
		return cli.ErrReported
	}
	return nil
}

// adviceAtMost is the number of denials after which no alternatives are tried, because these take requests.
const adviceAtMost = 5

// createAll creates the operations one after the other, and prints each response. It continues after errors.
func (o *operate) createAll(
	ctx context.Context, c *cli.Cluster, names []string, spec v1alpha1.VirtualMachineOperationSpec, past *v1alpha1.Override,
) (created []*v1alpha1.VirtualMachineOperation, err error) {
	for i, name := range names {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("interrupted before VirtualMachine %s (%d of %d)", name, i+1, len(names))
		}
		operation := cli.NewOperation(c.Namespace, name, spec)
		if past != nil {
			operation.Annotations = map[string]string{v1alpha1.AnnotationOverride: past.String()}
		}
		if err := o.create(ctx, c, operation); err != nil {
			fmt.Fprintln(o.ErrOut, cli.Describe(fmt.Errorf("%s of %s: %w", cli.OperationText(spec.Type, spec.Force), name, err)))
			if i-len(created) < adviceAtMost {
				o.advise(ctx, c, operation, err, past)
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

// show prints an operation. Without a name from the API server, it prints generateName.
func (o *operate) show(operation *v1alpha1.VirtualMachineOperation) error {
	if format := *o.print.OutputFormat; operation.Name == "" && (format == "" || format == "name") {
		operation = operation.DeepCopy()
		operation.Name = operation.GenerateName
	}
	return o.printer.PrintObj(operation, o.Raw)
}

func (o *operate) advise(ctx context.Context, c *cli.Cluster, operation *v1alpha1.VirtualMachineOperation, err error, past *v1alpha1.Override) {
	wayOut(ctx, o.Plugin, c, operation.Spec.VirtualMachineName, err)
	if past == nil {
		wayPast(ctx, o.Plugin, c, operation, err)
	}
	if said, _ := cli.ParseResponse(err); said == cli.Unknown {
		o.WarnUnserved(ctx, c)
	}
}

// check validates the command line. The API server validates the operation.
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
	case o.wait && o.dryRun != cli.DryRunNone:
		return nil, spec, fmt.Errorf("cannot set --wait and --dry-run=%s at the same time", o.dryRun)
	case set("to") && set("node-selector"):
		return nil, spec, errors.New("cannot set --to and --node-selector at the same time")
	case set("timeout") && !o.wait:
		return nil, spec, errors.New("--timeout requires --wait")
	case set("timeout") && o.timeout <= 0:
		return nil, spec, errors.New("--timeout must be greater than 0")
	case set("deadline") && !seconds(o.deadline, &spec.ActiveDeadlineSeconds):
		return nil, spec, fmt.Errorf("invalid --deadline %s: must be a number of whole seconds", o.deadline)
	case set("ttl") && !seconds(o.ttl, &spec.TTLSecondsAfterFinished):
		return nil, spec, fmt.Errorf("invalid --ttl %s: must be a number of whole seconds", o.ttl)
	}
	if o.migrate.NodeName != "" || len(o.nodeSelector) > 0 {
		spec.Migrate = &o.migrate
		spec.Migrate.NodeSelector = o.nodeSelector.labels()
	}
	return names, spec, nil
}

// seconds sets a field in seconds, and reports whether the duration is a number of whole seconds.
func seconds(d time.Duration, field **int32) bool {
	if d%time.Second != 0 || d < 0 || d/time.Second > math.MaxInt32 {
		return false
	}
	*field = new(int32(d / time.Second))
	return true
}

// machineName parses an argument that names a VirtualMachine: web-1, svm/web-1, virtualmachine/web-1.
func machineName(argument string) (string, error) { return nameOf(argument, cli.MachineKind, "svm") }

// nameOf parses an argument that names an object of a kind: NAME or KIND/NAME.
func nameOf(argument, kind, short string) (string, error) {
	word, name, found := strings.Cut(argument, "/")
	switch {
	case !found:
		return argument, nil
	case cli.KindOf(word) != kind:
		return "", fmt.Errorf("%s is not a %s: use NAME or %s/NAME", argument, kind, short)
	case name == "" || strings.Contains(name, "/"):
		return "", fmt.Errorf("invalid %[2]s %[1]s: specify exactly one name", argument, kind)
	}
	return name, nil
}
