// Command sallyport is the single binary of Sallyport: the manager that serves the webhooks, the tools for policies, and, under the
// name kubectl-sallyport, the kubectl plugin.
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

// run executes a command and returns its exit code: 0 on success, 1 if the command completed and found problems, 2 if it failed.
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

// verdictError is the error of a command that completed and found problems.
type verdictError struct{ text string }

func (e *verdictError) Error() string { return e.text }

func newCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "sallyport",
		Short: "A policy gate for virtual machines on Kubernetes",
		Long: "Sallyport evaluates Rego policies to admit or deny requests that affect virtual machines. Each denial says\n" +
			"what blocks the request and what to do instead.\n\n" +
			"This program contains the manager, which runs in a cluster, and tools for working on policies without a cluster.\n\n" +
			"Exit codes: 0 on success, 1 if a command completes and finds problems, 2 if a command fails.",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	command.AddCommand(manager.NewCommand(nil), newPolicyCommand(), newMatrixCommand(), newReviewCommand(), newReplayCommand(), newVersionCommand(), manager.NewTestRunCommand())
	return command
}
