// Command review is sallyport without the manager and the kubectl plugin. Three quarters of the compiled code are enough for it, so that the first build of
// the demo can show a denial early; nothing of it is compiled twice.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"sallyport.dev/sallyport/cmd/sallyport/tools"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := tools.Run(ctx, tools.NewCommand())
	stop()
	os.Exit(code)
}
