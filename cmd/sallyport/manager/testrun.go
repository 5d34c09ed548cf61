package manager

import (
	"time"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport/webhooks/testrun"
)

// What the test run of a policy may take, if nothing else is said. The API server waits for five seconds.
const (
	TestRunTimeout = 3500 * time.Millisecond
	TestRunMemory  = 256 << 20
)

// NewTestRunCommand makes the command of the child processes in which policies are tried. It is for the program itself: every
// program with the manager needs it.
func NewTestRunCommand() *cobra.Command {
	var l testrun.Limits
	command := &cobra.Command{
		Use:   testrun.Subcommand,
		Short: "Try a RegoPolicy, as a child of another sallyport",
		Long: "Reads a RegoPolicy with those that there are from standard input, tries it and writes what it finds. The program starts\n" +
			"itself with this command, so that a policy can neither outrun its time nor take the memory of others.\n\n" +
			"Exit code 0 if something was found, whatever it is, 2 if not.",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return testrun.Serve(command.InOrStdin(), command.OutOrStdout(), l)
		},
	}
	command.Flags().Int64Var(&l.Memory, "memory", TestRunMemory, "`bytes` of memory that it may use")
	command.Flags().DurationVar(&l.Within, "within", TestRunTimeout, "how long it may take")
	return command
}
