package plugin

import (
	"flag"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
	"sallyport.dev/sallyport/test/support/pages"
)

var update = flag.Bool("update", false, "write docs/kubectl-reference.md")

const introduction = "# kubectl sallyport: commands and flags\n\n" +
	"<!-- Generated from the commands: go test ./cmd/sallyport/plugin -run TestReference -update -->\n\n" +
	"This page contains the `--help` text of all commands of the plugin. [kubectl sallyport](kubectl.md) shows how to use them.\n\n"

// The reference is the help of the commands. -update writes it.
func TestReference(t *testing.T) {
	program := rootCommand(cli.New(genericiooptions.NewTestIOStreamsDiscard()))
	pages.Golden(t, *update, "../../../docs/kubectl-reference.md", pages.Reference(program, introduction))
}

// Every command says what it does, with an example, and what its flags mean.
func TestHelpIsComplete(t *testing.T) {
	var look func(commands []*cobra.Command)
	look = func(commands []*cobra.Command) {
		for _, command := range commands {
			path := command.CommandPath()
			if command.Short == "" || strings.HasSuffix(command.Short, ".") || !strings.HasSuffix(command.Long, ".") || command.Example == "" {
				t.Errorf("%s: the short text must not end with a full stop, the long one must, and there must be an example: %q, %q, %q",
					path, command.Short, command.Long, command.Example)
			}
			command.LocalFlags().VisitAll(func(flag *pflag.Flag) {
				if _, usage := pflag.UnquoteUsage(flag); usage == "" {
					t.Errorf("%s --%s does not say what it means", path, flag.Name)
				}
			})
			if flag := command.Flags().Lookup("output"); flag != nil && !strings.Contains(flag.Usage, "yaml") {
				t.Errorf("%s prints no YAML: %s", path, flag.Usage)
			}
			look(command.Commands())
		}
	}
	look(rootCommand(cli.New(genericiooptions.NewTestIOStreamsDiscard())).Commands())
}
