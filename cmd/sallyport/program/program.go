// Package program is the whole program sallyport, for the binary of this name and for others that contain it.
package program

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"sallyport.dev/sallyport/cmd/sallyport/manager"
	"sallyport.dev/sallyport/cmd/sallyport/plugin"
	"sallyport.dev/sallyport/cmd/sallyport/tools"
	"sallyport.dev/sallyport/cmd/sallyport/vcenter"
)

// Main runs the program with the command line of the process, and returns its exit code. Under the name kubectl-sallyport, the program is
// the kubectl plugin.
func Main() int {
	if args, is := plugin.Called(os.Args); is {
		return plugin.Main(args)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return tools.Run(ctx, tools.NewCommand(manager.NewCommand(nil), manager.NewTestRunCommand(), vcenter.NewCommand()))
}
