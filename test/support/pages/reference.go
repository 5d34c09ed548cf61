package pages

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Family returns a command and all visible commands below it, in the order of its help.
func Family(command *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{command}
	for _, below := range command.Commands() {
		if !below.Hidden {
			all = append(all, Family(below)...)
		}
	}
	return all
}

// Reference returns the page of all commands below a program, with their help texts, after an introduction.
func Reference(program *cobra.Command, introduction string) string {
	all := Family(program)[1:]
	page := introduction + prose(program.Long) + "\n| command | description |\n| --- | --- |\n"
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

// prose returns a help text in Markdown. Indented paragraphs are commands.
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

// console returns a block of commands with their comments. Each command is one line.
func console(text string) string {
	block := "```console\n"
	for line := range strings.SplitSeq(continued.ReplaceAllString(text, " "), "\n") {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") {
			line = "$ " + line
		}
		block += line + "\n"
	}
	return block + "```\n"
}

// flags returns the table of the flags of a command, without --help.
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
	special   = regexp.MustCompile("[*_<>`]")
	continued = regexp.MustCompile(`\s*\\\n\s*`)
	option    = regexp.MustCompile(`(^|[\s(])(--?[a-z][a-z-]*)`)
)

// escaped returns plain text in Markdown, with flags as code.
func escaped(text string) string {
	return option.ReplaceAllString(special.ReplaceAllString(text, `\$0`), "$1`$2`")
}
