// Package format prints what is known for programs, in the formats that kubectl has for what is no object of the API server.
package format

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// names are the values of --output.
var names = []string{"json", "yaml"}

// AddFlag adds --output to a command.
func AddFlag(command *cobra.Command, output *string) {
	command.Flags().StringVarP(output, "output", "o", "", "json or yaml; without it, text for people")
	// It fails only for a flag that does not exist or is completed already.
	_ = command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(slices.Clone(names), cobra.ShellCompDirectiveNoFileComp))
}

// Check refuses a value of --output that is not one. Empty is text for people.
func Check(output string) error {
	if output != "" && !slices.Contains(names, output) {
		return fmt.Errorf("--output %q is not json or yaml", output)
	}
	return nil
}

// Print writes what is known as the flag has it, which is not empty.
func Print(out io.Writer, output string, known any) (err error) {
	var text []byte
	switch output {
	case "json":
		if text, err = json.MarshalIndent(known, "", "    "); err == nil {
			text = append(text, '\n')
		}
	case "yaml":
		text, err = yaml.Marshal(known)
	default:
		return Check(output)
	}
	if err == nil {
		_, err = out.Write(text)
	}
	return err
}
