package tools

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// reference is the page with the help text of all commands.
const reference = "../../../docs/cli.md"

// The reference says what --help says. -update writes it anew.
func TestCLIReference(t *testing.T) {
	is := rendered(newCommand())
	if *update {
		if err := os.WriteFile(reference, []byte(is), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	was, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(was), is); diff != "" {
		t.Errorf("docs/cli.md is not current (-was +is); `go test ./cmd/sallyport/tools -run TestCLIReference -update` writes it:\n%s", diff)
	}
}

// Every command says what it does, what its flags mean, and its exit codes.
func TestHelpIsComplete(t *testing.T) {
	for _, command := range family(newCommand()) {
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

// family is a command and all below it that help shows, in its order.
func family(command *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{command}
	for _, below := range command.Commands() {
		if !below.Hidden {
			all = append(all, family(below)...)
		}
	}
	return all
}

// rendered is the page about a program.
func rendered(program *cobra.Command) string {
	all := family(program)[1:]
	page := "# The program `" + program.Name() + "`\n\n" +
		"<!-- Generated from the commands: go test ./cmd/sallyport/tools -run TestCLIReference -update -->\n\n" +
		prose(program.Long) + "\n" +
		"To build the program as `bin/sallyport`, run `make build`. This page contains the `--help` text of all commands. For the kubectl\n" +
		"plugin, see [kubectl sallyport](kubectl.md).\n\n" +
		"| command | description |\n| --- | --- |\n"
	for _, command := range all {
		path := command.CommandPath()
		page += fmt.Sprintf("| [`%s`](#%s) | %s |\n", path, strings.ReplaceAll(path, " ", "-"), cell(command.Short))
	}
	for _, command := range all {
		page += "\n## " + command.CommandPath() + "\n\n"
		if command.Runnable() {
			page += "```text\n" + command.UseLine() + "\n```\n\n"
		}
		page += prose(command.Long) + examples(command.Example) + flags(command)
	}
	return page
}

// prose is a help text in Markdown: what is indented are commands.
func prose(text string) (markdown string) {
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		if strings.HasPrefix(paragraph, "  ") {
			markdown += console(paragraph) + "\n"
		} else {
			markdown += escaped(paragraph) + "\n\n"
		}
	}
	return strings.TrimSuffix(markdown, "\n")
}

func examples(text string) string {
	if text == "" {
		return ""
	}
	return "\n" + console(text)
}

// console is a block of commands, with their comments.
func console(text string) string {
	block := "```console\n"
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") {
			line = "$ " + line
		}
		block += line + "\n"
	}
	return block + "```\n"
}

// flags is the table of a command's flags, but for --help.
func flags(command *cobra.Command) string {
	rows := ""
	command.LocalFlags().VisitAll(func(flag *pflag.Flag) {
		if flag.Hidden || flag.Name == "help" {
			return
		}
		value, usage := pflag.UnquoteUsage(flag)
		name := strings.TrimSpace("--" + flag.Name + " " + value)
		if flag.Shorthand != "" {
			name = "-" + flag.Shorthand + ", " + name
		}
		standard := ""
		if flag.DefValue != "" && flag.DefValue != "false" && flag.DefValue != "[]" {
			standard = "`" + flag.DefValue + "`"
		}
		rows += fmt.Sprintf("| `%s` | %s | %s |\n", name, standard, cell(usage))
	})
	if rows == "" {
		return ""
	}
	return "\n| flag | default | description |\n| --- | --- | --- |\n" + rows
}

func cell(text string) string { return strings.ReplaceAll(escaped(text), "|", `\|`) }

var (
	special = regexp.MustCompile("[*_<>`]")
	option  = regexp.MustCompile(`(^|[\s(])(--?[a-z][a-z-]*)`)
)

// escaped is plain text in Markdown, with flags as code.
func escaped(text string) string {
	return option.ReplaceAllString(special.ReplaceAllString(text, `\$0`), "$1`$2`")
}
