package tools

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"sallyport.dev/sallyport/test/support/pages"
)

const introduction = "# The program `sallyport`\n\n" +
	"<!-- Generated from the commands: go test ./cmd/sallyport/tools -run TestCLIReference -update -->\n\n" +
	"To build the program as `bin/sallyport`, run `make build`. This page contains the `--help` text of all commands. For the kubectl\n" +
	"plugin, see [kubectl sallyport](kubectl.md).\n\n"

// The reference says what --help says. -update writes it anew.
func TestCLIReference(t *testing.T) {
	pages.Golden(t, *update, "../../../docs/cli.md", pages.Reference(newCommand(), introduction))
}

// Every command says what it does, what its flags mean, and its exit codes.
func TestHelpIsComplete(t *testing.T) {
	for _, command := range pages.Family(newCommand()) {
		path := command.CommandPath()
		if command.Short == "" || strings.HasSuffix(command.Short, ".") || !strings.HasSuffix(command.Long, ".") {
			t.Errorf("%s: the short text must not end with a full stop, and the long one must: %q, %q", path, command.Short, command.Long)
		}
		if command.Runnable() && !strings.Contains(strings.ToLower(command.Long), "exit code") {
			t.Errorf("%s does not tell its exit codes", path)
		}
		command.LocalFlags().VisitAll(func(flag *pflag.Flag) {
			if _, usage := pflag.UnquoteUsage(flag); usage == "" || strings.HasSuffix(usage, ".") {
				t.Errorf("%s --%s: %q is empty or ends with a full stop", path, flag.Name, usage)
			}
		})
	}
}
