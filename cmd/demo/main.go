// Command demo shows Sallyport on its own control plane with a simulated vCenter. It is not part of the sallyport program.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	stdlog "log"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"sallyport.dev/sallyport/cmd/internal/terminal"
)

const help = `Usage: go run ./cmd/demo [--script]

Starts a Kubernetes control plane and a simulated vCenter on this machine and installs Sallyport with Helm. Then it runs kubectl
commands to show which requests are allowed, denied and superseded, how policies are edited, and what happens during an upgrade and
restarts. Afterwards, the cluster stays up for your own commands until you press Ctrl-C.

Requires Linux, Go, a clone of the repository as the working directory and, for the first run, a Go module proxy. Everything except
build caches is removed at the end.

`

func main() {
	log.SetLogger(logr.Discard()) // hide the logs of libraries
	stdlog.SetOutput(io.Discard)  // hide the logs of the simulator
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), help)
		flag.PrintDefaults()
	}
	script := flag.Bool("script", false, "uninstall Sallyport after the walk and exit: code 0 on success, 1 on failure")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := runDemo(ctx, os.Stdout, *script)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// runDemo starts the demo, runs the walk, and stops everything, even after an error.
func runDemo(ctx context.Context, out io.Writer, script bool) (err error) {
	p := terminal.NewPrinter(out)
	s, err := newStage(ctx, p)
	defer func() {
		err = errors.Join(err, s.close())
		if ctx.Err() != nil {
			p.Say("Everything is removed.")
		}
	}()
	if err == nil {
		err = (&show{Printer: p, stage: s, ctx: ctx}).walk(script)
	}
	switch {
	case ctx.Err() != nil:
		p.Say("")
		return errors.New("the demo was interrupted before its end")
	case err != nil || script:
		return err
	}
	s.explain(p)
	<-ctx.Done()
	p.Say("\nShutting down ...")
	return nil
}
