// Command sallyport is the one binary of Sallyport: the manager that serves the webhooks, the tools for its policies, and, under the
// name kubectl-sallyport, the plugin of kubectl, which is made of the same parts.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport/cmd/internal/terminal"
	"sallyport.dev/sallyport/cmd/sallyport/manager"
	"sallyport.dev/sallyport/cmd/sallyport/plugin"
)

func main() {
	if args, is := plugin.Called(os.Args); is {
		os.Exit(plugin.Main(args))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, newCommand())
	stop()
	os.Exit(code)
}

// run executes a command and gives its exit code: 0, 1 if a command has judged and the verdict is bad, 2 if it could not judge.
func run(ctx context.Context, command *cobra.Command) int {
	command.SetErr(terminal.Safe(command.ErrOrStderr()))
	err := command.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	var bad *verdictError
	if errors.As(err, &bad) {
		fmt.Fprintln(command.ErrOrStderr(), bad.Error())
		return 1
	}
	fmt.Fprintln(command.ErrOrStderr(), "Error:", err)
	return 2
}

// verdictError ends a command that did its work and found something wrong.
type verdictError struct{ text string }

func (e *verdictError) Error() string { return e.text }

func newCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "sallyport",
		Short: "A policy gate for virtual machines on Kubernetes",
		Long: "Sallyport decides, by policies in Rego, which requests may touch a fleet of virtual machines,\n" +
			"and refuses the others with a reason that says what to do instead. This is its manager, which runs in the\n" +
			"cluster, and the tools to work on policies without one.\n\n" +
			"Exit code 0 if all is well, 1 if a command did its work and found something wrong, 2 if it could not do its work.",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	command.AddCommand(manager.NewCommand(nil), newPolicyCommand(), newMatrixCommand(), newReviewCommand(), newReplayCommand(), newVersionCommand(), manager.NewTestRunCommand())
	return command
}
