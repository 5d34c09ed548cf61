package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// The docs list the commands; this is what keeps them true.
func TestDocsListTheCommands(t *testing.T) {
	page, err := os.ReadFile("../../docs/kubectl.md")
	if err != nil {
		t.Fatal(err)
	}
	table := "| command | what it does |\n| --- | --- |\n"
	for _, command := range newPlugin(genericiooptions.NewTestIOStreamsDiscard()).command().Commands() {
		table += fmt.Sprintf("| `kubectl sallyport %s` | %s |\n", command.Use, command.Short)
	}
	if !strings.Contains(string(page), table) {
		t.Errorf("docs/kubectl.md does not have the commands as they are:\n%s", table)
	}
	flags := "| flag | what it means |\n| --- | --- |\n"
	for _, name := range []string{"force", "wait", "timeout", "deadline", "ttl", "dry-run", "to", "node-selector"} {
		migrate, _, err := newPlugin(genericiooptions.NewTestIOStreamsDiscard()).command().Find([]string{"migrate"})
		if err != nil {
			t.Fatal(err)
		}
		flags += fmt.Sprintf("| `--%s` | %s |\n", name, migrate.Flags().Lookup(name).Usage)
	}
	if !strings.Contains(string(page), flags) {
		t.Errorf("docs/kubectl.md does not have the flags as they are:\n%s", flags)
	}
}
