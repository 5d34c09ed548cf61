// Package plugin is Sallyport's plugin for kubectl: operations on virtual machines in one line, and why something
// does not go on. It decides nothing: what is accepted is what the API server accepts.
package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"sallyport.dev/sallyport/cmd/internal/terminal"
)

// The names under which kubectl looks for a plugin, and for what completes its command lines. What follows them is of no matter: on
// Windows they end with ".exe".
const pluginName, completerName = "kubectl-sallyport", "kubectl_complete-sallyport"

// Called gives the arguments for the plugin if a program was called by one of its names.
func Called(command []string) (args []string, is bool) {
	if len(command) == 0 {
		return nil, false
	}
	switch name := filepath.Base(command[0]); {
	case strings.HasPrefix(name, completerName):
		return append([]string{cobra.ShellCompRequestCmd}, command[1:]...), true
	case strings.HasPrefix(name, pluginName):
		return command[1:], true
	}
	return nil, false
}

// Main is the program, and gives its exit code.
func Main(args []string) int {
	log.SetLogger(logr.Discard()) // what the libraries log is not for people
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends it at once
	return newPlugin(genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}).run(ctx, args)
}

// plugin is what all commands share.
type plugin struct {
	// IOStreams are for people: what others have written does nothing to their terminal.
	genericiooptions.IOStreams
	// raw is for programs: objects in the format that was asked for.
	raw   io.Writer
	flags *genericclioptions.ConfigFlags
	now   func() time.Time
	// patience is how long a command waits for Sallyport to see what it has done.
	patience time.Duration
}

// defaultPatience is long for a manager that runs, and short for somebody who waits for one that does not.
const defaultPatience = 5 * time.Second

func newPlugin(streams genericiooptions.IOStreams) *plugin {
	raw := streams.Out
	streams.Out, streams.ErrOut = terminal.Safe(streams.Out), terminal.Safe(streams.ErrOut)
	return &plugin{IOStreams: streams, raw: raw, flags: genericclioptions.NewConfigFlags(true), now: time.Now, patience: defaultPatience}
}

// run executes a command line and gives its exit code: 0 if all went as it should, else 1, as of kubectl, or what a command says.
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
	if c := (coded{}); errors.As(err, &c) {
		return c.code
	}
	return 1
}

// common are the flags of kubectl that help shows, and what it says of them; the others are there too.
var common = map[string]string{
	"namespace":  "the namespace, in place of the one that the context has",
	"context":    "the context of the kubeconfig, in place of the current one",
	"kubeconfig": "the kubeconfig file",
	"as":         "who to act as: a user, or a service account as system:serviceaccount:NAMESPACE:NAME",
}

func (p *plugin) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "kubectl-sallyport",
		Short: "Operations on virtual machines, and why something does not go on",
		Long: "Creates, starts, stops, restarts and moves virtual machines, takes them out of pools and marks them as busy, tells why\n" +
			"something does not go on and which policies decide, and prepares an uninstall. What is accepted is what the API server accepts: the plugin decides nothing.\n\n" +
			"All flags with which kubectl finds a cluster are understood, also those that are not shown. Exit code 1 if anything did\n" +
			"not go as it should, else 0.",
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
	root.PersistentFlags().VisitAll(showCommon)
	for _, v := range verbs {
		root.AddCommand(p.operateCommand(v))
	}
	root.AddCommand(p.createCommand(), p.scaleDownCommand(), p.busyCommand(), p.idleCommand(), p.whyCommand(), p.explainCommand(), p.overrideCommand(), p.policiesCommand(), p.auditCommand(), p.releaseCommand(), p.versionCommand())
	return root
}

func showCommon(flag *pflag.Flag) {
	usage, is := common[flag.Name]
	if is {
		flag.Usage = usage
	}
	flag.Hidden = flag.Hidden || !is
}
