// Package format prints what is known for programs, in the formats that kubectl has for what is no object of the API server.
package format

import (
	"encoding/json"
	"io"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/cmd/internal/choice"
)

// AddFlag adds --output to a command. Empty is text for people.
func AddFlag(command *cobra.Command, output *string) {
	choice.Flag(command, output, "output", "o", "json or yaml; without it, text for people", "json", "yaml")
}

// Print writes what is known as the flag has it: json or yaml.
func Print(out io.Writer, output string, known any) (err error) {
	var text []byte
	if output == "yaml" {
		text, err = yaml.Marshal(known)
	} else if text, err = json.MarshalIndent(known, "", "    "); err == nil {
		text = append(text, '\n')
	}
	if err == nil {
		_, err = out.Write(text)
	}
	return err
}
