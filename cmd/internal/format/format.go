// Package format prints values that are not API objects in the formats of kubectl: JSON and YAML.
package format

import (
	"encoding/json"
	"io"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/cmd/internal/choice"
)

// AddFlag adds --output to a command. An empty value means text.
func AddFlag(command *cobra.Command, output *string) {
	choice.Flag(command, output, "output", "o", "output format: json or yaml (default: text)", "json", "yaml")
}

// Print writes a value in the format of the flag: json or yaml.
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
