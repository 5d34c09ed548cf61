// Package choice supports flags with a fixed set of values.
package choice

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	admissionv1 "k8s.io/api/admission/v1"
)

// Operations are the operations of requests that policies evaluate.
var Operations = []string{
	string(admissionv1.Create), string(admissionv1.Update), string(admissionv1.Delete), string(admissionv1.Connect),
}

// Flag adds a flag that accepts one of the words, ignoring case, with shell completion. The default can be a value that is not one of
// the words, such as "".
func Flag(command *cobra.Command, value *string, name, shorthand, usage string, words ...string) {
	command.Flags().VarP(&flag{value, words}, name, shorthand, usage)
	// It fails only for a flag that does not exist or is completed already.
	_ = command.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

type flag struct {
	value *string
	words []string
}

func (f *flag) String() string { return *f.value }

func (f *flag) Type() string { return "string" }

func (f *flag) Set(text string) error {
	i := slices.IndexFunc(f.words, func(word string) bool { return strings.EqualFold(word, text) })
	if i < 0 {
		return fmt.Errorf("must be %s", Either(f.words))
	}
	*f.value = f.words[i]
	return nil
}

// Either joins words with commas and "or".
func Either(words []string) string {
	last := len(words) - 1
	return strings.TrimPrefix(strings.Join(words[:last], ", ")+" or "+words[last], " or ")
}
