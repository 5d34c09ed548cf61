package plugin

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// The docs list the commands; this is what keeps them true.
func TestDocsListTheCommands(t *testing.T) {
	page, err := os.ReadFile("../../../docs/kubectl.md")
	if err != nil {
		t.Fatal(err)
	}
	table := "| command | description |\n| --- | --- |\n"
	var list func(prefix string, commands []*cobra.Command)
	list = func(prefix string, commands []*cobra.Command) {
		for _, command := range commands {
			use := strings.ReplaceAll(command.Use, "|", `\|`)
			table += fmt.Sprintf("| `%s %s` | %s |\n", prefix, use, command.Short)
			list(prefix+" "+command.Name(), command.Commands())
		}
	}
	list("kubectl sallyport", newPlugin(genericiooptions.NewTestIOStreamsDiscard()).command().Commands())
	if !strings.Contains(string(page), table) {
		t.Errorf("docs/kubectl.md does not have the commands as they are:\n%s", table)
	}
	for name, flags := range map[string][]string{
		"migrate": {"selector", "field-selector", "all", "force", "wait", "timeout", "deadline", "ttl", "override", "dry-run", "to", "node-selector"},
		"create vm": {"vsphere-server", "template", "folder", "resource-pool", "datastore", "network", "failure-domain", "storage-policy", "cpu", "memory", "disk", "hostname",
			"user-data-secret", "run-policy", "node", "node-selector"},
		"scale-down": {"vm", "from", "dry-run"},
		"release":    {"all", "force", "dry-run", "timeout"},
	} {
		command, _, err := newPlugin(genericiooptions.NewTestIOStreamsDiscard()).command().Find(strings.Fields(name))
		if err != nil {
			t.Fatal(err)
		}
		table := "| flag | description |\n| --- | --- |\n"
		for _, flag := range flags {
			table += fmt.Sprintf("| `--%s` | %s |\n", flag, command.Flags().Lookup(flag).Usage)
		}
		if !strings.Contains(string(page), table) {
			t.Errorf("docs/kubectl.md does not have the flags of %s as they are:\n%s", name, table)
		}
	}
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
	look(newPlugin(genericiooptions.NewTestIOStreamsDiscard()).command().Commands())
}
