// Package plugin is the kubectl plugin of Sallyport. It requests operations on virtual machines and explains what blocks them. The API
// server makes all decisions.
package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/explain"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/operate"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/policies"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/release"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/resume"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/why"
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
	return run(ctx, cli.New(genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}), args)
}

func run(ctx context.Context, p *cli.Plugin, args []string) int {
	command := rootCommand(p)
	command.SetArgs(args)
	err := command.ExecuteContext(ctx)
	if err != nil && !errors.Is(err, cli.ErrReported) {
		fmt.Fprintln(p.ErrOut, cli.Describe(err))
	}
	return cli.ExitCode(err)
}

// common are the kubectl flags that help shows, with their help. The other kubectl flags are hidden.
var common = map[string]string{
	"namespace":  "the namespace (default: the namespace of the kubeconfig context)",
	"context":    "the kubeconfig context (default: the current context)",
	"kubeconfig": "the kubeconfig file",
	"as":         "the user to impersonate; for a service account: system:serviceaccount:NAMESPACE:NAME",
}

func rootCommand(p *cli.Plugin) *cobra.Command {
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
	root.SetFlagErrorFunc(cli.UsageError)
	root.CompletionOptions.HiddenDefaultCmd = true
	p.Flags.AddFlags(root.PersistentFlags())
	root.PersistentFlags().VisitAll(showCommon)
	root.AddCommand(operate.Commands(p)...)
	root.AddCommand(policies.Commands(p)...)
	root.AddCommand(why.Command(p), explain.Command(p), resume.Command(p), release.Command(p), versionCommand(p))
	return root
}

func showCommon(flag *pflag.Flag) {
	usage, is := common[flag.Name]
	if is {
		flag.Usage = usage
	}
	flag.Hidden = flag.Hidden || !is
}
