package pages

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestUnderstood(t *testing.T) {
	nothing := func(*cobra.Command, []string) {}
	program := func() *cobra.Command {
		root, group := &cobra.Command{Use: "tool"}, &cobra.Command{Use: "group"}
		stop := &cobra.Command{Use: "stop VM", Args: cobra.ExactArgs(1), Run: nothing}
		stop.Flags().Duration("timeout", 0, "")
		root.PersistentFlags().StringP("namespace", "n", "", "")
		group.AddCommand(stop)
		root.AddCommand(group)
		return root
	}
	for line, want := range map[string]string{
		"tool":       "",
		"tool group": "",
		"tool group stop web-1 -n a --timeout 5s": "",
		"tool help group":                         "",
		"tool grup":                               `unknown command "grup"`,
		"tool group stopp":                        `tool group has no command "stopp"`,
		"tool group stop web-1 --time 5s":         "unknown flag: --time",
		"tool group stop web-1 --timeout 5":       "missing unit",
		"tool group stop":                         "accepts 1 arg",
	} {
		err := understood(program(), strings.Fields(line)[1:], false)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", line, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: got %v, want %q", line, err, want)
		}
	}
	if err := understood(program(), []string{"group", "stop"}, true); err != nil {
		t.Errorf("mentioned without its argument: %v", err)
	}
}
