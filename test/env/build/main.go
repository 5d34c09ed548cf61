// Command build builds the programs of the local control plane, and Helm, ahead of the tests, which would do so without showing progress.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"sallyport.dev/sallyport/test/env"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	say := func(format string, args ...any) { fmt.Printf(format+"\n", args...) }
	_, err := env.Binaries(ctx, say)
	if err == nil {
		_, err = env.Helm(ctx, say)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}
