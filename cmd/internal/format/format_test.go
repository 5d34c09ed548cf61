package format

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestPrint(t *testing.T) {
	known := struct {
		Name string `json:"name"`
	}{"web-1"}
	for output, want := range map[string]string{"json": "{\n    \"name\": \"web-1\"\n}\n", "yaml": "name: web-1\n"} {
		var out strings.Builder
		if err := Print(&out, output, known); err != nil || out.String() != want {
			t.Errorf("%s: %q, %v, want %q", output, out.String(), err, want)
		}
	}
}

func TestFlag(t *testing.T) {
	output, command := "", &cobra.Command{}
	AddFlag(command, &output)
	if err := command.ParseFlags([]string{"-o", "yaml"}); err != nil || output != "yaml" {
		t.Errorf("-o yaml is %q, %v", output, err)
	}
}
