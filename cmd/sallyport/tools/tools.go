// Package tools has the command line of sallyport, with the commands that need no cluster. The caller adds the others, so that a program
// that only reviews does not contain the manager.
package tools

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport/cmd/internal/terminal"
	"sallyport.dev/sallyport/cmd/internal/verdict"
)

// Run executes a command and returns its exit code: 0 on success, 1 if the command completed and found problems, 2 if it failed.
func Run(ctx context.Context, command *cobra.Command) int {
	command.SetErr(terminal.Safe(command.ErrOrStderr()))
	err := command.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if bad, is := errors.AsType[verdict.Bad](err); is {
		fmt.Fprintln(command.ErrOrStderr(), bad.Error())
		return 1
	}
	fmt.Fprintln(command.ErrOrStderr(), "Error:", err)
	return 2
}

// NewCommand returns the command line of the program, with the tools and other commands.
func NewCommand(others ...*cobra.Command) *cobra.Command {
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
	tools := []*cobra.Command{newPolicyCommand(), newMatrixCommand(), newReviewCommand(), newReplayCommand(), newVersionCommand()}
	for _, tool := range tools {
		endAtSignal(tool)
	}
	command.AddCommand(append(tools, others...)...)
	return command
}

// farewell is how long a command may take to end by itself after a signal.
const farewell = time.Second

// endAtSignal makes a command and its subcommands end when the context does: neither compiling nor evaluating a policy checks for
// cancellation at each step.
func endAtSignal(command *cobra.Command) {
	for _, below := range command.Commands() {
		endAtSignal(below)
	}
	run := command.RunE
	if run == nil {
		return
	}
	command.RunE = func(command *cobra.Command, args []string) error {
		ended := make(chan error, 1)
		go func() { ended <- run(command, args) }()
		select {
		case err := <-ended:
			return err
		case <-command.Context().Done():
		}
		select {
		case err := <-ended:
			return err
		case <-time.After(farewell):
			return fmt.Errorf("%s was interrupted: %w", command.CommandPath(), context.Cause(command.Context()))
		}
	}
}
