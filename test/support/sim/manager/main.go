// Command manager is `sallyport manager` with a simulated runtime for every machine, which it finds by its environment.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/manager"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/templates"
	"sallyport.dev/sallyport/test/support/sim"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	root := &cobra.Command{Use: "sallyport", SilenceErrors: true, SilenceUsage: true}
	rt := sim.FromEnvironment()
	runtimes := &manager.Runtimes{
		Machine: func(context.Context, *v1alpha1.VirtualMachine) (*runtime.Client, error) { return rt, nil },
		Disk:    func(context.Context, *v1alpha1.VirtualDisk) (*runtime.Client, error) { return rt, nil },
		Template: func(context.Context, *v1alpha1.VSphereTemplate) (templates.Store, error) {
			return sim.NoTemplates{}, nil
		},
	}
	root.AddCommand(manager.NewCommand(runtimes), manager.NewTestRunCommand())
	err := root.ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(2)
	}
}
