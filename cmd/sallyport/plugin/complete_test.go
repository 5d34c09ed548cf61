package plugin

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
)

// kubectl finds what completes the command lines of the plugin, and shows what it offers.
func TestKubectlCompletes(t *testing.T) {
	tm := newTeam(t)
	tm.machine("web-1", "Running")
	tm.must("", "label", "svm/web-1", "app=web", "tier=front", "sallyport.dev/pool=ci")
	tm.must(`{"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualMachinePool", "metadata": {"name": "ci"}, "spec":
		{"scaleDownPolicy": "Explicit", "virtualMachineTemplate": {"spec": {"runtime": {"pod": {}}}}}}`, "create", "-f", "-")
	tm.must("", "create", "configmap", "settings")
	for line, want := range map[string]string{
		"sto":                            "stop",
		"why svm/":                       "svm/web-1",
		"stop ":                          "web-1",
		"stop -l ":                       "app=web sallyport.dev/pool=ci tier=front",
		"stop --all ":                    "",
		"stop -l app=web ":               "",
		"busy ":                          "web-1",
		"idle web-1 ":                    "",
		"scale-down ":                    "ci",
		"scale-down ci ":                 "",
		"scale-down ci --vm ":            "web-1",
		"scale-down other --vm ":         "",
		"scale-down ci --vm web-1 --vm ": "",
		"explain svm -l ":                "app=web sallyport.dev/pool=ci tier=front",
		"explain svm ":                   "web-1",
		"override operat":                "operations-applicability operations-copies operations-supersede",
		"override deletion-protected configmap se":          "settings",
		"override deletion-protected configmap settings se": "",
		"override deletion-protected svm -l a":              "app=web",
	} {
		words := strings.Split(line, " ")
		args := append([]string{"--namespace", tm.namespace}, words...)
		out := tm.completed(args, strings.HasPrefix(line, "st"))
		var offered []string
		for text := range strings.Lines(out) {
			word, _, _ := strings.Cut(strings.TrimSpace(text), "\t")
			if strings.HasPrefix(word, words[len(words)-1]) && !strings.HasPrefix(word, ":") {
				offered = append(offered, word)
			}
		}
		slices.Sort(offered)
		if got := strings.Join(offered, " "); got != want {
			t.Errorf("after %q kubectl offers %q, want %q:\n%s", line, got, want, out)
		}
	}
}

// completed asks what may come next: through kubectl, or in this process as kubectl asks, which is sooner told.
func (tm *team) completed(words []string, kubectl bool) string {
	tm.Helper()
	var r result
	if kubectl {
		r.stdout, r.stderr, r.code = started.plane.KubectlAs(tm.Context(), started.plane.Kubeconfig(), nil, append([]string{"__complete", "sallyport"}, words...)...)
	} else {
		r = plugged(tm.Context(), "", started.plane.Kubeconfig(), append([]string{cobra.ShellCompRequestCmd}, words...), cli.DefaultPatience)
	}
	if r.code != 0 {
		tm.Errorf("%q is completed with exit %d: %s", words, r.code, r.stderr)
	}
	return r.stdout
}
