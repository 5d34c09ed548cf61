// Command kubectl-sallyport is Sallyport's plugin for kubectl: operations on virtual machines in one line, and why something
// does not go on. It decides nothing: what is accepted is what the API server accepts.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

func main() {
	log.SetLogger(logr.Discard()) // what the libraries log is not for people
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends it at once
	p := newPlugin(genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr})
	code := p.run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// plugin is what all commands share.
type plugin struct {
	genericiooptions.IOStreams
	flags *genericclioptions.ConfigFlags
	now   func() time.Time
}

func newPlugin(streams genericiooptions.IOStreams) *plugin {
	return &plugin{IOStreams: streams, flags: genericclioptions.NewConfigFlags(true), now: time.Now}
}

// run executes a command line and gives its exit code: 0 if all went as it should, else 1, as of kubectl.
func (p *plugin) run(ctx context.Context, args []string) int {
	command := p.command()
	command.SetArgs(args)
	err := command.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if !errors.Is(err, errTold) {
		fmt.Fprintln(p.ErrOut, describe(err))
	}
	return 1
}

// common are the flags of kubectl that help shows; the others are there too.
var common = map[string]bool{"namespace": true, "context": true, "kubeconfig": true, "as": true}

func (p *plugin) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "kubectl-sallyport",
		Short: "Operations on virtual machines, and why something does not go on",
		Long: "Start, stop, restart and move virtual machines, and ask why something does not go on.\n" +
			"All flags with which kubectl finds a cluster are understood, also those that are not shown.",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl sallyport"},
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetIn(p.In)
	root.SetOut(p.Out)
	root.SetErr(p.ErrOut)
	root.SetFlagErrorFunc(usage)
	root.CompletionOptions.HiddenDefaultCmd = true
	p.flags.AddFlags(root.PersistentFlags())
	root.PersistentFlags().VisitAll(hideUncommon)
	for _, v := range verbs {
		root.AddCommand(p.operateCommand(v))
	}
	root.AddCommand(p.whyCommand(), p.policiesCommand(), p.releaseCommand(), p.versionCommand())
	return root
}

func hideUncommon(flag *pflag.Flag) { flag.Hidden = flag.Hidden || !common[flag.Name] }
