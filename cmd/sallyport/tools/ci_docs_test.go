package tools

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// ciPage goes to a folder with the files that docs/ci.md shows, and with the policy that it begins.
func ciPage(t *testing.T) (text string, files map[string]string) {
	t.Helper()
	read, err := os.ReadFile(filepath.Join(repository, "docs/ci.md"))
	if err != nil {
		t.Fatal(err)
	}
	text = string(read)
	files = map[string]string{}
	for _, block := range strings.Split(text, "```yaml\n")[1:] {
		content, _, _ := strings.Cut(block, "```")
		name, _, _ := strings.Cut(content, "\n")
		files[strings.TrimPrefix(name, "# ")] = content
	}
	folder(t, files)
	_, shown, _ := strings.Cut(text, "```console\n")
	shown, _, _ = strings.Cut(shown, "```")
	command, want, _ := strings.Cut(shown, "\n")
	if out, errs, _ := execute(t, strings.Fields(strings.TrimPrefix(command, "$ sallyport "))...); out+errs != want {
		t.Errorf("%s shows\n%s\nand not\n%s", command, out+errs, want)
	}
	return text, files
}

// workflow are the commands of the program in the workflow of the page, by the names of their steps.
func workflow(t *testing.T, text string) map[string][]string {
	t.Helper()
	var parsed struct {
		Jobs map[string]struct {
			Steps []struct{ Name, Run string }
		}
	}
	if err := yaml.Unmarshal([]byte(text), &parsed); err != nil {
		t.Fatal(err)
	}
	commands := map[string][]string{}
	for _, step := range parsed.Jobs["gate"].Steps {
		if line, is := strings.CutPrefix(step.Run, "sallyport "); is {
			line, _, _ = strings.Cut(line, " > ")
			commands[step.Name] = strings.Fields(line)
		}
	}
	if len(commands) != 3 {
		t.Fatalf("the workflow has %v", commands)
	}
	return commands
}

// The workflow that somebody copies passes with what a policy begins as, and each of its steps stops what it is for.
func TestDocsShowAWorkflowThatGates(t *testing.T) {
	for name, tc := range map[string]struct {
		file, old, replacement string
		fails                  string // the steps that do
	}{
		"nothing":                 {"policies/owner/owner.rego", "", "", ""},
		"no contract":             {"policies/owner/owner.rego", "reason: OwnerMissing, ", "", "Contract, Tests, Recorded requests"},
		"no kind of such a field": {"policies/owner/policy.yaml", "mode: Warn", "mode: Wran", "Contract, Recorded requests"},
		"another meaning":         {"policies/owner/owner.rego", `_labels.owner != ""`, `_labels.owner != "team-a"`, "Tests"},
		"a line without a test":   {"policies/owner/owner.rego", "_owned if", "_owned if {\n\t_labels.owner == null\n\t_labels.x\n}\n\n_owned if", "Tests"},
		"a request of a team":     {"policies/owner/policy.yaml", "mode: Warn", "mode: Enforce", ""},
		"a request without owner": {"recorded/requests/web.yaml", "owner: team-a", "app: web", ""}, // mode Warn
	} {
		t.Run(name, func(t *testing.T) {
			_, files := ciPage(t)
			edit(t, tc.file, tc.old, tc.replacement)
			var failed []string
			steps := workflow(t, files[".github/workflows/policies.yaml"])
			for _, step := range []string{"Format", "Contract", "Tests", "Recorded requests"} {
				out, errs, code := execute(t, steps[step]...)
				if code != 0 {
					failed = append(failed, step)
					t.Logf("%s: exit %d\n%s%s", step, code, out, errs)
				}
			}
			if got := strings.Join(failed, ", "); got != tc.fails {
				t.Errorf("%s fails, not %s", got, tc.fails)
			}
		})
	}
}

// A request that was admitted and is not any more stops the change of a policy.
func TestDocsShowAWorkflowThatReviews(t *testing.T) {
	_, files := ciPage(t)
	edit(t, "policies/owner/policy.yaml", "mode: Warn", "mode: Enforce")
	edit(t, "recorded/requests/web.yaml", "owner: team-a", "app: web")
	out, errs, code := execute(t, workflow(t, files[".github/workflows/policies.yaml"])["Recorded requests"]...)
	if code != 1 || !strings.Contains(out, `file="recorded/requests/web.yaml" line="2"`) || !strings.Contains(out, `<failure type="OwnerMissing"`) {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
}

// The fields that the page has jq read are those that there are.
func TestDocsShowFieldsOfAReview(t *testing.T) {
	text, _ := ciPage(t)
	edit(t, "policies/owner/policy.yaml", "mode: Warn", "mode: Enforce")
	edit(t, "recorded/requests/web.yaml", "owner: team-a", "app: web")
	out, _, _ := execute(t, "review", "-f", "recorded/requests", "--add-policies", "policies", "-o", "json")
	var raw struct{ Results []map[string]any }
	if err := json.Unmarshal([]byte(out), &raw); err != nil {
		t.Fatal(err)
	}
	_, filter, _ := strings.Cut(text, "jq -r '")
	filter, _, _ = strings.Cut(filter, "'")
	for _, field := range regexp.MustCompile(`\\\(([a-z.]+)\)`).FindAllStringSubmatch(filter, -1) {
		var value any = raw.Results[0]
		for name := range strings.SplitSeq(strings.TrimPrefix(field[1], "."), ".") {
			object, _ := value.(map[string]any)
			value = object[name]
		}
		if value == nil || fmt.Sprint(value) == "" {
			t.Errorf("a result of a denial has no %s", field[1])
		}
	}
}
