package plugin

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// The docs list the commands; this is what keeps them true.
func TestDocsListTheCommands(t *testing.T) {
	page, err := os.ReadFile("../../../docs/kubectl.md")
	if err != nil {
		t.Fatal(err)
	}
	table := "| command | what it does |\n| --- | --- |\n"
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
		"release": {"all", "force", "dry-run", "timeout"},
	} {
		command, _, err := newPlugin(genericiooptions.NewTestIOStreamsDiscard()).command().Find([]string{name})
		if err != nil {
			t.Fatal(err)
		}
		table := "| flag | what it means |\n| --- | --- |\n"
		for _, flag := range flags {
			table += fmt.Sprintf("| `--%s` | %s |\n", flag, command.Flags().Lookup(flag).Usage)
		}
		if !strings.Contains(string(page), table) {
			t.Errorf("docs/kubectl.md does not have the flags of %s as they are:\n%s", name, table)
		}
	}
}
