// Command demo shows Sallyport on its own control plane with a simulated vCenter. It contains the program sallyport: under the name
// sallyport or kubectl-sallyport it is that program, so that one file is all the demo needs. The program sallyport does not contain the
// demo.
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
	"path/filepath"
	"syscall"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"sallyport.dev/sallyport/cmd/internal/terminal"
	"sallyport.dev/sallyport/cmd/sallyport/plugin"
	"sallyport.dev/sallyport/cmd/sallyport/program"
	"sallyport.dev/sallyport/webhooks/testrun"
)

const help = `Usage: sallyport-demo [--all] [--script] [--runtime kubevirt]

Starts a Kubernetes control plane and a simulated vCenter on this machine and installs Sallyport with Helm. Then it runs kubectl
commands to show which requests are allowed, denied and superseded, how policies are edited, and, with --all, what happens during an
upgrade and restarts. Afterwards, the cluster stays up for your own commands until you press Ctrl-C.

Requires Linux and the programs of a control plane: etcd, kube-apiserver, kube-controller-manager, kubectl and helm. Programs that are not
found are built, which requires Go and a Go module proxy. Everything except caches is removed at the end.

`

func main() {
	if isSallyport(os.Args) {
		os.Exit(program.Main())
	}
	log.SetLogger(logr.Discard()) // hide the logs of libraries
	stdlog.SetOutput(io.Discard)  // hide the logs of the simulator
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), help)
		flag.PrintDefaults()
	}
	all := flag.Bool("all", false, "also boot a machine from an image, upgrade Sallyport, and replace its replicas and its certificate, which takes half a minute longer")
	script := flag.Bool("script", false, "uninstall Sallyport after the walk and exit: code 0 on success, 1 on failure")
	first := flag.Bool("denial", true, "begin with a denial that needs no cluster")
	where := flag.String("runtime", "vsphere", "where the machines run: vsphere, a simulated vCenter, or kubevirt, the real virt-api and virt-controller of KubeVirt")
	flag.Parse()
	if *where != "vsphere" && *where != "kubevirt" {
		fmt.Fprintf(os.Stderr, "--runtime: must be vsphere or kubevirt, is %q\n", *where)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := runDemo(ctx, os.Stdout, options{first: *first, all: *all, script: *script, onKubeVirt: *where == "kubevirt"})
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// isSallyport reports whether a command line is for the program sallyport: by its name, or because sallyport starts itself for the test run
// of a policy.
func isSallyport(args []string) bool {
	_, plugged := plugin.Called(args)
	return plugged || filepath.Base(args[0]) == sallyport || len(args) > 1 && args[1] == testrun.Subcommand
}

// options are those of the command line.
type options struct{ first, all, script, onKubeVirt bool }

// runDemo starts the demo, runs the walk, and stops everything, even after an error.
func runDemo(ctx context.Context, out io.Writer, o options) (err error) {
	p := terminal.NewPrinter(out)
	s, err := newStage(ctx, p, o.first, o.onKubeVirt)
	defer func() {
		err = errors.Join(err, s.close())
		if ctx.Err() != nil {
			p.Say("Everything is removed.")
		}
	}()
	if err == nil {
		err = (&show{Printer: p, stage: s, ctx: ctx}).walk(o.all, o.script)
	}
	switch {
	case ctx.Err() != nil:
		p.Say("")
		return errors.New("the demo was interrupted before its end")
	case err != nil || o.script:
		return err
	}
	s.explain(p)
	<-ctx.Done()
	p.Say("\nShutting down ...")
	return nil
}
