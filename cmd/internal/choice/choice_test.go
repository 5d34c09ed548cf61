package choice

import (
	"testing"

	"github.com/spf13/cobra"
)

func TestFlag(t *testing.T) {
	for text, tc := range map[string]struct{ value, wrong string }{
		"--verb=create": {"CREATE", ""},
		"--verb=DELETE": {"DELETE", ""},
		"--verb=":       {"none", `invalid argument "" for "--verb" flag: must be CREATE, UPDATE or DELETE`},
		"--verb=patch":  {"none", `invalid argument "patch" for "--verb" flag: must be CREATE, UPDATE or DELETE`},
	} {
		value, command := "none", &cobra.Command{}
		Flag(command, &value, "verb", "", "what is done", "CREATE", "UPDATE", "DELETE")
		wrong := ""
		if err := command.ParseFlags([]string{text}); err != nil {
			wrong = err.Error()
		}
		if value != tc.value || wrong != tc.wrong {
			t.Errorf("%s: %q, %q, want %q, %q", text, value, wrong, tc.value, tc.wrong)
		}
		if complete, found := command.GetFlagCompletionFunc("verb"); !found {
			t.Error("shells do not complete it")
		} else if words, _ := complete(command, nil, ""); len(words) != 3 {
			t.Errorf("shells are offered %v", words)
		}
	}
	if got := Either([]string{"verdict"}); got != "verdict" {
		t.Errorf("one word is %q", got)
	}
}
