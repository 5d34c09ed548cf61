// Package choice is for flags that take one of some words.
package choice

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	admissionv1 "k8s.io/api/admission/v1"
)

// Operations are those at which policies are asked.
var Operations = []string{
	string(admissionv1.Create), string(admissionv1.Update), string(admissionv1.Delete), string(admissionv1.Connect),
}

// Flag adds a flag to a command that takes one of some words, in capitals or not, and refuses all else. Shells complete them. What the value
// is without the flag may be another one, such as none.
func Flag(command *cobra.Command, value *string, name, shorthand, usage string, words ...string) {
	command.Flags().VarP(&flag{value, words}, name, shorthand, usage)
	// It fails only for a flag that does not exist or is completed already.
	_ = command.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

type flag struct {
	value *string
	words []string
}

// String gives the value.
func (f *flag) String() string { return *f.value }

// Type is what help calls the value.
func (f *flag) Type() string { return "string" }

// Set takes one of the words.
func (f *flag) Set(text string) error {
	i := slices.IndexFunc(f.words, func(word string) bool { return strings.EqualFold(word, text) })
	if i < 0 {
		return fmt.Errorf("must be %s", Either(f.words))
	}
	*f.value = f.words[i]
	return nil
}

// Either puts the words of a choice.
func Either(words []string) string {
	last := len(words) - 1
	return strings.TrimPrefix(strings.Join(words[:last], ", ")+" or "+words[last], " or ")
}
