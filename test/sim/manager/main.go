// Command manager is `sallyport manager` with a simulated runtime for every machine, which it finds by its environment.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport/cmd/sallyport/manager"
	"sallyport.dev/sallyport/test/sim"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	root := &cobra.Command{Use: "sallyport", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(manager.NewCommand(sim.FromEnvironment()), manager.NewTestRunCommand())
	err := root.ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(2)
	}
}
