package plugin

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport/reconcilers/pool/busy"
)

func (p *plugin) busyCommand() *cobra.Command {
	o := &marking{plugin: p}
	command := &cobra.Command{
		Use:   "busy VM --for 30m --holder HOLDER",
		Short: "Mark a virtual machine as busy, so that no pool gives it up unnamed",
		Long: "Mark a virtual machine as busy, so that no pool gives it up unnamed.\n\n" +
			"Writes a Lease that says with what the machine is busy, and until when. If the command succeeds, no pool deletes the\n" +
			"machine before that time for having too many; only somebody who names it can have it deleted. If the machine is being\n" +
			"deleted or was named to go, the command fails and takes the Lease back: do not begin. The same holder can mark it again\n" +
			"before the time is over, and so go on. A machine that another holder has is refused, with whose it is.\n\n" +
			"Exit code 1 if the machine is not marked by this.",
		Example: `  # A runner before it takes a job: without success it takes none
  kubectl sallyport busy ci-3 --for 30m --holder https://ci.example.com/jobs/4711`,
		RunE: func(command *cobra.Command, args []string) error {
			switch {
			case o.holder == "":
				return usage(command, errors.New("--holder is missing: with what is the machine busy? Such as the URL of a job"))
			case o.during < time.Second || o.during > busy.Longest:
				return usage(command, fmt.Errorf("--for %s is not from 1s to %s; who needs longer marks the machine again", o.during, busy.Longest))
			}
			return o.run(command, args, o.busy)
		},
	}
	f := command.Flags()
	f.DurationVar(&o.during, "for", 0, "how long, from now on, such as 30m; at most 24h")
	f.StringVar(&o.holder, "holder", "", "with what, such as the URL of a job")
	f.Lookup("for").DefValue = "" // which help does not show
	return o.machineCommand(command)
}

func (p *plugin) idleCommand() *cobra.Command {
	o := &marking{plugin: p}
	command := &cobra.Command{
		Use:   "idle VM --holder HOLDER",
		Short: "Mark a virtual machine as not busy any more",
		Long: "Mark a virtual machine as not busy any more.\n\n" +
			"Deletes the Lease that kubectl sallyport busy has written, and has the pool of the machine look again. The Lease of\n" +
			"another holder is left alone unless it has expired or --force says otherwise.\n\n" +
			"Exit code 1 if the machine is still marked.",
		Example: `  # A runner after its job
  kubectl sallyport idle ci-3 --holder https://ci.example.com/jobs/4711

  # Whoever has it is gone
  kubectl sallyport idle ci-3 --force`,
		RunE: func(command *cobra.Command, args []string) error { return o.run(command, args, o.idle) },
	}
	f := command.Flags()
	f.StringVar(&o.holder, "holder", "", "who has marked it")
	f.BoolVar(&o.force, "force", false, "whoever has marked it")
	return o.machineCommand(command)
}

// machineCommand has a command take one VirtualMachine.
func (o *marking) machineCommand(command *cobra.Command) *cobra.Command {
	command.Args = func(command *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usage(command, fmt.Errorf("name one VirtualMachine: got %d names", len(args)))
		}
		return nil
	}
	command.ValidArgsFunction = func(command *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return o.names(command.Context(), machineKind), cobra.ShellCompDirectiveNoFileComp
	}
	_ = command.RegisterFlagCompletionFunc("holder", cobra.NoFileCompletions) // it fails only for a flag that does not exist
	return command
}
