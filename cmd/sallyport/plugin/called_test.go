package plugin

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The program is the plugin if kubectl calls it, by a link or by a copy.
func TestNamesOfThePlugin(t *testing.T) {
	for command, want := range map[string]string{
		"":                                       "no",
		"sallyport stop web-1":                   "no",
		"/usr/local/bin/sallyport version":       "no",
		"bin/kubectl version":                    "no",
		"kubectl-sallyport":                      "",
		"/home/a/bin/kubectl-sallyport why":      "why",
		"bin/kubectl-sallyport.exe stop a":       "stop a",
		"bin/kubectl_complete-sallyport sto":     "__complete sto",
		"bin/kubectl_complete-sallyport.exe why": "__complete why",
	} {
		got := "no"
		if args, is := Called(strings.Fields(command)); is {
			got = strings.Join(args, " ")
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", command, diff)
		}
	}
}
