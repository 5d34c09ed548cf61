package plugin

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// selection are the flags that select objects, the same as of kubectl.
type selection struct {
	labels, fields string
	all            bool
}

// addFlags adds the flags to a command; kind returns the kind of its arguments, whose labels are completed.
func (s *selection) addFlags(p *plugin, command *cobra.Command, kind func(args []string) string) {
	f := command.Flags()
	f.StringVarP(&s.labels, "selector", "l", "", "label selector for the objects, as in kubectl get")
	f.StringVar(&s.fields, "field-selector", "", "field selector for the objects, as in kubectl get")
	f.BoolVar(&s.all, "all", false, "select all objects of the namespace")
	// They fail only for a flag that does not exist or is completed already.
	_ = command.RegisterFlagCompletionFunc("selector", func(command *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return p.labels(command.Context(), kind(args)), cobra.ShellCompDirectiveNoFileComp
	})
	_ = command.RegisterFlagCompletionFunc("field-selector", cobra.NoFileCompletions)
}

// given reports whether a flag selects objects. An empty selector, for example from an unset variable, does not: it would select all
// objects.
func (s *selection) given() bool { return s.all || s.selects() }

func (s *selection) selects() bool { return strings.TrimSpace(s.labels+s.fields) != "" }

// check returns an error if flags contradict each other, or if there are names too.
func (s *selection) check(names int) error {
	switch {
	case s.all && s.selects():
		return errors.New("cannot set --all and a selector at the same time")
	case s.all && names > 0:
		return errors.New("name cannot be provided when --all is specified")
	case s.selects() && names > 0:
		return errors.New("name cannot be provided when a selector is specified")
	}
	if _, err := labels.Parse(s.labels); err != nil {
		return fmt.Errorf("--selector %q: %w", s.labels, err)
	}
	if _, err := fields.ParseSelector(s.fields); err != nil {
		return fmt.Errorf("--field-selector %q: %w", s.fields, err)
	}
	return nil
}

// namesIn counts the names in KIND NAME... or KIND/NAME...
func namesIn(args []string) int {
	if len(args) > 0 && !strings.Contains(args[0], "/") {
		return len(args) - 1
	}
	return len(args)
}
