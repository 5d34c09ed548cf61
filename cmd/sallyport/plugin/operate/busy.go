package operate

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
	"sallyport.dev/sallyport/reconcilers/pool/busy"
)

func busyCommand(p *cli.Plugin) *cobra.Command {
	o := &marking{Plugin: p}
	command := &cobra.Command{
		Use:   "busy VM --for 30m --holder HOLDER",
		Short: "Mark a virtual machine as busy to protect it from scale-down",
		Long: "Marks a VirtualMachine as busy with a Lease that has a holder and an expiry time. Until that time, a pool does not choose\n" +
			"the VirtualMachine when it scales down. It can still be deleted by name, for example with scale-down.\n\n" +
			"If the VirtualMachine is being deleted or is a target of a scale-down, the command removes the Lease and fails: do not\n" +
			"start work on the machine. The same holder can extend the time with another busy command. If another holder has\n" +
			"marked the VirtualMachine, the command fails and names the holder.\n\n" +
			"Exit codes: 0 if the VirtualMachine is marked, 1 if not.",
		Example: `  # Before a runner takes a job; if the command fails, do not take the job
  kubectl sallyport busy ci-3 --for 30m --holder https://ci.example.com/jobs/4711`,
		RunE: func(command *cobra.Command, args []string) error {
			switch {
			case o.holder == "":
				return cli.UsageError(command, errors.New("--holder is required: what the machine is busy with, such as the URL of a job"))
			case o.during < time.Second || o.during > busy.Longest:
				return cli.UsageError(command, fmt.Errorf("invalid --for %s: must be between 1s and %s; to extend the time, repeat the command before it expires", o.during, busy.Longest))
			}
			return o.run(command, args, o.busy)
		},
	}
	f := command.Flags()
	f.DurationVar(&o.during, "for", 0, "how long the machine stays busy, such as 30m (required, maximum 24h)")
	f.StringVar(&o.holder, "holder", "", "what the machine is busy with, such as the URL of a job (required)")
	return o.machineCommand(command)
}

func idleCommand(p *cli.Plugin) *cobra.Command {
	o := &marking{Plugin: p}
	command := &cobra.Command{
		Use:   "idle VM --holder HOLDER",
		Short: "Remove the busy mark of a virtual machine",
		Long: "Deletes the Lease that kubectl sallyport busy created and triggers a reconciliation of the pool. The command does not\n" +
			"delete the Lease of another holder unless it has expired or --force is set.\n\n" +
			"Exit codes: 0 if the VirtualMachine is not marked, 1 if it is still marked.",
		Example: `  # After a runner has finished its job
  kubectl sallyport idle ci-3 --holder https://ci.example.com/jobs/4711

  # Remove the mark of a holder that no longer exists
  kubectl sallyport idle ci-3 --force`,
		RunE: func(command *cobra.Command, args []string) error { return o.run(command, args, o.idle) },
	}
	f := command.Flags()
	f.StringVar(&o.holder, "holder", "", "the holder that marked the machine as busy")
	f.BoolVar(&o.force, "force", false, "also remove the mark of another holder")
	return o.machineCommand(command)
}

func (o *marking) machineCommand(command *cobra.Command) *cobra.Command {
	command.Args = cli.ExactlyOne(cli.MachineKind)

	command.ValidArgsFunction = o.CompleteOne(cli.MachineKind)

	cli.CompleteValues(command, "holder")
	return command
}
