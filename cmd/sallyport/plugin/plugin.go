// Package plugin is the kubectl plugin of Sallyport. It requests operations on virtual machines and explains what blocks them. The API
// server makes all decisions.
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

// pluginName and completerName are the names of the plugin and of its completion program for kubectl. A suffix such as ".exe" is ignored.
const pluginName, completerName = "kubectl-sallyport", "kubectl_complete-sallyport"

// Called returns the arguments of the plugin if the program was called by one of the plugin's names.
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

// Main runs the plugin and returns its exit code.
func Main(args []string) int {
	log.SetLogger(logr.Discard()) // libraries' logs are not for users
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends it at once
	return newPlugin(genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}).run(ctx, args)
}

// plugin is what all commands share.
type plugin struct {
	// IOStreams are for text. They escape control characters.
	genericiooptions.IOStreams
	// raw is for objects in the format of --output.
	raw   io.Writer
	flags *genericclioptions.ConfigFlags
	now   func() time.Time
	// patience is how long a command waits until Sallyport has reconciled its change.
	patience time.Duration
}

// defaultPatience is long enough for a running manager and short enough to wait for one that does not run.
const defaultPatience = 5 * time.Second

func newPlugin(streams genericiooptions.IOStreams) *plugin {
	raw := streams.Out
	streams.Out, streams.ErrOut = terminal.Safe(streams.Out), terminal.Safe(streams.ErrOut)
	p := &plugin{IOStreams: streams, raw: raw, flags: genericclioptions.NewConfigFlags(true), now: time.Now, patience: defaultPatience}
	p.flags.WrapConfigFn = (&leavingOut{out: p.ErrOut}).wrap
	return p
}

// run executes a command line and returns its exit code: 0 on success, otherwise the code of the command's error or 1.
func (p *plugin) run(ctx context.Context, args []string) int {
	command := p.command()
	command.SetArgs(args)
	err := command.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if !errors.Is(err, errReported) {
		fmt.Fprintln(p.ErrOut, describe(err))
	}
	if c := (coded{}); errors.As(err, &c) {
		return c.code
	}
	return 1
}

// common are the kubectl flags that help shows, with their help. The other kubectl flags are hidden.
var common = map[string]string{
	"namespace":  "the namespace (default: the namespace of the kubeconfig context)",
	"context":    "the kubeconfig context (default: the current context)",
	"kubeconfig": "the kubeconfig file",
	"as":         "the user to impersonate; for a service account: system:serviceaccount:NAMESPACE:NAME",
}

func (p *plugin) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "kubectl-sallyport",
		Short: "Operate virtual machines and find out what blocks them",
		Long: "Operates virtual machines, pools and policies of Sallyport: requests operations, shows what blocks them and which\n" +
			"policies are in force, and prepares the uninstallation. The API server decides whether a request is allowed.\n\n" +
			"All kubectl flags for the connection to a cluster are supported, including those that help does not list.\n\n" +
			"Exit codes: 0 on success, 1 on failure.",
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
	for _, e := range earlierCommands {
		root.AddCommand(p.earlierCommand(e))
	}
	root.AddCommand(p.createCommand(), p.scaleDownCommand(), p.busyCommand(), p.idleCommand(), p.whyCommand(), p.explainCommand(), p.overrideCommand(), p.gateCommand(), p.policiesCommand(), p.auditCommand(), p.releaseCommand(), p.versionCommand())
	return root
}

func showCommon(flag *pflag.Flag) {
	usage, is := common[flag.Name]
	if is {
		flag.Usage = usage
	}
	flag.Hidden = flag.Hidden || !is
}
