package pages

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Understood reports the commands of the pages that a program does not understand: a subcommand or a flag that it does not
// have, a value or a number of arguments that it does not take. In the pages the program is called by one of the names.
func Understood(t *testing.T, pages []Page, program func() *cobra.Command, names ...[]string) {
	t.Helper()
	checked := 0
	for _, p := range pages {
		for _, c := range p.Commands() {
			for _, name := range names {
				args, is := c.Below(name...)
				if !is {
					continue
				}
				checked++
				if err := understood(program(), args, c.Mentioned); err != nil {
					t.Errorf("%s: %s: %v", c.Where, strings.Join(c.Words, " "), err)
				}
			}
		}
	}
	if checked == 0 {
		t.Errorf("no page has a command %v", names)
	}
}

func understood(program *cobra.Command, args []string, mentioned bool) error {
	program.InitDefaultHelpCmd()
	command, rest, err := program.Find(args)
	if err != nil {
		return err
	}
	command.InitDefaultHelpFlag()
	if err := command.ParseFlags(rest); err != nil {
		return err
	}
	left := command.Flags().Args()
	switch {
	case !command.Runnable() && len(left) > 0:
		return fmt.Errorf("%s has no command %q", command.CommandPath(), left[0])
	case mentioned, command.Flags().Changed("help"):
		return nil // without the arguments, perhaps
	}
	return command.ValidateArgs(left)
}

// HasFlags reports the flags that some pages name in their sentences and tables and that no command of a program has, but for
// those of other programs.
func HasFlags(t *testing.T, all []Page, program *cobra.Command, paths []string, others ...string) {
	t.Helper()
	for _, p := range all {
		if !slices.Contains(paths, p.Path) {
			continue
		}
		for _, s := range p.Spans {
			name, isFlag := strings.CutPrefix(s.Text, "--")
			name, _, _ = strings.Cut(name, "=")
			name, _, _ = strings.Cut(name, " ")
			if isFlag && !slices.Contains(others, name) && Flag(program, name) == nil {
				t.Errorf("%s: no command has the flag --%s", s.Where, name)
			}
		}
	}
}

// Flag finds a flag of a command or of one below it.
func Flag(command *cobra.Command, name string) *pflag.Flag {
	if flag := command.Flags().Lookup(name); flag != nil {
		return flag
	}
	if flag := command.PersistentFlags().Lookup(name); flag != nil {
		return flag
	}
	for _, below := range command.Commands() {
		if flag := Flag(below, name); flag != nil {
			return flag
		}
	}
	return nil
}
