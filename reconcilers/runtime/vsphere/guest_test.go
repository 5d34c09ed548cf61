package vsphere_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/double/vcsim"
)

func TestGuest(t *testing.T) {
	w := newWorld(t)
	m := w.adopted("web")
	w.on(m)
	var many []string
	for i := range 40 {
		many = append(many, fmt.Sprintf("10.1.0.%d", 40-i))
	}
	for name, tc := range map[string]struct {
		says vcsim.Guest
		want runtime.Guest
	}{
		"says nothing but that the tools run": {vcsim.Guest{}, runtime.Guest{Tools: v1alpha1.ToolsRunning}},
		"has its main address first, and those that only it knows last": {
			vcsim.Guest{Hostname: "web.example", Address: "10.0.0.9", Adapters: map[int32][]string{
				-1: {"172.17.0.1"}, 4000: {"2001:db8::9", "10.0.0.9", "10.0.0.10"}, 4001: {"10.0.0.3"},
			}},
			runtime.Guest{Hostname: "web.example", Tools: v1alpha1.ToolsRunning, Addresses: []string{
				"10.0.0.9", "10.0.0.3", "10.0.0.10", "2001:db8::9", "172.17.0.1",
			}},
		},
		"has addresses that lead nowhere": {
			vcsim.Guest{Address: "fe80::1", Adapters: map[int32][]string{4000: {
				"127.0.0.1", "::1", "169.254.1.1", "fe80::1%eth0", "224.0.0.1", "0.0.0.0", "", "no address", "::ffff:10.0.0.1", "2001:DB8::1",
			}}},
			runtime.Guest{Tools: v1alpha1.ToolsRunning, Addresses: []string{"10.0.0.1", "2001:db8::1"}},
		},
		"has more than there is room for": {
			vcsim.Guest{Address: "10.1.0.40", Adapters: map[int32][]string{4000: many}},
			runtime.Guest{Tools: v1alpha1.ToolsRunning, Addresses: first(many, "10.1.0.40", runtime.MaxAddresses)},
		},
		"calls itself what no host is called": {vcsim.Guest{Hostname: "\x1b[2Jweb"}, runtime.Guest{Tools: v1alpha1.ToolsRunning}},
		"has too long a name":                 {vcsim.Guest{Hostname: strings.Repeat("a", 254)}, runtime.Guest{Tools: v1alpha1.ToolsRunning}},
		"has tools that do not run": {
			vcsim.Guest{Hostname: "web", Address: "10.0.0.9", ToolsNotRunning: true}, runtime.Guest{Tools: v1alpha1.ToolsNotRunning},
		},
		"has no tools": {vcsim.Guest{ToolsNotInstalled: true}, runtime.Guest{Tools: v1alpha1.ToolsNotInstalled}},
	} {
		t.Run(name, func(t *testing.T) {
			w.SetGuest(w.path(m), tc.says)
			if diff := cmp.Diff(tc.want, w.observe(m).Guest); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// first gives that address, and of the others, which are in falling order, the lowest, so many in all.
func first(falling []string, main string, count int) []string {
	all := []string{main}
	for i := len(falling) - 1; len(all) < count; i-- {
		if falling[i] != main {
			all = append(all, falling[i])
		}
	}
	return all
}

// What is too long for a status is cut, and what is answered is not shown any more.
func TestQuestion(t *testing.T) {
	w := newWorld(t)
	m := w.adopted("web")
	w.Ask(w.path(m), strings.Repeat("ä", 3000), strings.Fields(strings.Repeat("yes ", 20))...)
	seen := w.observe(m).Question
	if seen == nil || len([]rune(seen.Text)) != 2048 || len(seen.Choices) != 16 {
		t.Errorf("got %+v", seen)
	}
	w.Answer(w.path(m))
	if seen := w.observe(m).Question; seen != nil {
		t.Errorf("what is answered is still asked: %+v", seen)
	}
}
