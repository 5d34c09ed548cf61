package tools

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/policies"
	"sallyport.dev/sallyport/test/support/pages"
)

// The reviews that docs/windows.md shows are those that its reader gets, with the policy as the values on the page change it. -update writes
// them anew.
func TestDocsShowWhatWindowsSays(t *testing.T) {
	text := page(t, "windows.md")
	files := map[string]string{}
	for _, block := range regexp.MustCompile("(?s)```yaml\n# (\\S+)\n(.*?)```\n").FindAllStringSubmatch(text, -1) {
		files[block[1]] = block[2]
	}
	folder(t, files)
	policy := windowsWith(t, files["values.yaml"], files["workloads.yaml"])
	if err := os.WriteFile("windows.yaml", policy, 0o600); err != nil {
		t.Fatal(err)
	}
	shown := 0
	is := regexp.MustCompile("(?s)```console\n.*?```\n").ReplaceAllStringFunc(text, func(block string) string {
		var said strings.Builder
		for line := range strings.Lines(block) {
			command, is := strings.CutPrefix(line, "$ ")
			if !is {
				continue
			}
			said.WriteString(line)
			if arguments, is := strings.CutPrefix(command, "sallyport "); is {
				shown++
				out, errs, _ := execute(t, strings.Fields(arguments)...)
				for line := range strings.Lines(out + errs) {
					if !strings.HasPrefix(strings.TrimSpace(line), "Note: no schema of ") {
						said.WriteString(line)
					}
				}
			}
		}
		return "```console\n" + said.String() + "```\n"
	})
	if shown < 3 {
		t.Errorf("docs/windows.md shows %d reviews", shown)
	}
	pages.Golden(t, *update, filepath.Join(repository, "docs", "windows.md"), is)
}

// windowsWith is the policy windows with the parameters and the resources of chart values.
func windowsWith(t *testing.T, values ...string) []byte {
	t.Helper()
	all, err := policies.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	policy := all[slices.IndexFunc(all, func(p v1alpha1.RegoPolicy) bool { return p.Name == "windows" })]
	for _, text := range values {
		var of struct {
			Policies struct {
				Windows struct {
					Parameters json.RawMessage
					Match      v1alpha1.PolicyMatch
				}
			}
		}
		if err := yaml.Unmarshal([]byte(text), &of); err != nil {
			t.Fatal(err)
		}
		if of.Policies.Windows.Parameters != nil {
			policy.Spec.Parameters = &runtime.RawExtension{Raw: of.Policies.Windows.Parameters}
		}
		if resources := of.Policies.Windows.Match.Resources; resources != nil {
			policy.Spec.Match.Resources = resources
		}
	}
	text, err := yaml.Marshal(policy)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
