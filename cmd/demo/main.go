// Command demo shows Sallyport on a control plane and a simulated vCenter of its own. It is no part of the sallyport program,
// which has no use for either in a cluster.
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

Starts a Kubernetes control plane and a simulated vCenter on this machine, installs Sallyport with Helm, and walks through what
is admitted, refused and superseded, and through edits, an upgrade and restarts, with real kubectl. Then it stays up for you to
try, until Ctrl-C. It runs in a clone of the repository and needs Linux, Go, and a module proxy the first time. Nothing is left
behind but build caches.

`

func main() {
	log.SetLogger(logr.Discard()) // what the libraries log is not for people
	stdlog.SetOutput(io.Discard)  // and neither is what the simulator does
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), help)
		flag.PrintDefaults()
	}
	script := flag.Bool("script", false, "uninstall after the walk and end, with a verdict as the exit code")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := runDemo(ctx, os.Stdout, *script)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// runDemo starts everything, walks, and ends everything, whatever happens in between.
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
	p.Say("\nEnding ...")
	return nil
}
