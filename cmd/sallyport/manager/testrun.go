package manager

import (
	"time"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport/webhooks/testrun"
)

// TestRunTimeout is the default time limit of the test run of a policy. The API server waits five seconds for the webhooks.
const TestRunTimeout = 3500 * time.Millisecond

// NewTestRunCommand returns the command of the child processes that run the tests of policies. Every program that contains the manager
// needs it.
func NewTestRunCommand() *cobra.Command {
	var l testrun.Limits
	command := &cobra.Command{
		Use:   testrun.Subcommand,
		Short: "Run the tests of a RegoPolicy in a child process",
		Long: "Reads a RegoPolicy and the existing RegoPolicies from standard input, runs the tests of the policy and writes the result.\n" +
			"The program starts itself with this command to limit the time and memory of a test run.\n\n" +
			"Exit codes: 0 if there is a result, 2 if not.",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return testrun.Serve(command.InOrStdin(), command.OutOrStdout(), l)
		},
	}
	command.Flags().Int64Var(&l.Memory, "memory", testrun.DefaultMemory, "memory limit in `bytes`")
	command.Flags().DurationVar(&l.Within, "within", TestRunTimeout, "time limit")
	return command
}
