package tools

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport/cmd/sallyport/manager"
	"sallyport.dev/sallyport/cmd/sallyport/vcenter"
)

// newCommand is the command line of the whole program.
func newCommand() *cobra.Command {
	return NewCommand(manager.NewCommand(nil), manager.NewTestRunCommand(), vcenter.NewCommand())
}

// execute runs a command line and gives what it printed and its exit code.
func execute(t *testing.T, args ...string) (out, errs string, code int) {
	t.Helper()
	command := newCommand()
	var stdout, stderr bytes.Buffer
	command.SetOut(&stdout)
	command.SetErr(&stderr)
	command.SetArgs(args)
	code = Run(t.Context(), command)
	return stdout.String(), stderr.String(), code
}

// shippedCopy puts policies of the repository into a folder of the test's own: the supersede policy and its library.
func shippedCopy(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, part := range []string{"lib/operations", "operations/supersede"} {
		if err := os.CopyFS(filepath.Join(dir, part), os.DirFS(filepath.Join("../../../policies", part))); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// edit replaces a text that must be there.
func edit(t *testing.T, file, old, replacement string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), old) {
		t.Fatalf("%s does not contain %q", file, old)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(text), old, replacement, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// wanted is the matrix as it was agreed on: running operations downwards, new ones across, in the order of forms.
var wanted = map[string]string{
	"Start":           "- y y - - - - - -",
	"Stop":            "- - y - y - - - -",
	"Stop (force)":    "- - - - - - - - -",
	"Restart":         "- - y - y - - - -",
	"Restart (force)": "- - - - - - - - -",
	"Migrate":         "- y y y y - - - -",
	"Migrate (force)": "- y y y y - - - -",
	"Evict":           "- y y y y - - - -",
	"Evict (force)":   "- y y y y - - - -",
}

func matrixJSON(t *testing.T, args ...string) []pair {
	t.Helper()
	out, errs, code := execute(t, append([]string{"matrix", "-o", "json"}, args...)...)
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	var pairs []pair
	if err := json.Unmarshal([]byte(out), &pairs); err != nil {
		t.Fatalf("reading %s: %v", out, err)
	}
	return pairs
}

func TestMatrixIsAsAgreed(t *testing.T) {
	pairs := matrixJSON(t)
	if len(pairs) != 81 {
		t.Fatalf("got %d pairs", len(pairs))
	}
	for i, p := range pairs {
		column := i % len(forms)
		if p.New != forms[column] {
			t.Errorf("pair %d is about %v, not %v", i, p.New, forms[column])
		}
		if want := strings.Fields(wanted[p.Running.String()])[column] == "y"; p.Superseded != want {
			t.Errorf("%s during %s: superseded %v, want %v", p.New, p.Running, p.Superseded, want)
		}
	}
}

func TestMatrixShowsAnEditOfTheParameters(t *testing.T) {
	dir := shippedCopy(t)
	edit(t, filepath.Join(dir, "operations/supersede/policy.yaml"), "Start: [Stop, Stop force]", "Start: [Stop force, Restart]")
	before, after := matrixJSON(t), matrixJSON(t, "--policies", dir)
	var changed []string
	for i := range before {
		if before[i] != after[i] {
			changed = append(changed, after[i].Running.String()+" <- "+after[i].New.String())
		}
	}
	if got := strings.Join(changed, ", "); got != "Start <- Stop, Start <- Restart" {
		t.Errorf("changed are %s", got)
	}
}

func TestMatrixRefusesATableItDoesNotUnderstand(t *testing.T) {
	dir := shippedCopy(t)
	edit(t, filepath.Join(dir, "operations/supersede/policy.yaml"), "Start: [Stop, Stop force]", "Start: [Stopp]")
	if out, errs, code := execute(t, "matrix", "--policies", dir); code != 2 || !strings.Contains(errs, "parameters") || out != "" {
		t.Errorf("exit %d, %s %s", code, out, errs)
	}
	if out, errs, code := execute(t, "policy", "check", dir); code != 1 || !strings.Contains(out+errs, `spec.parameters.supersededBy.Start[0]: Unsupported value: "Stopp"`) {
		t.Errorf("policy check: exit %d, %s %s", code, out, errs)
	}
}

func TestMatrixFormats(t *testing.T) {
	for format, want := range map[string]string{
		"table":    "Start            -      yes   yes ",
		"markdown": "| Start | - | yes | yes | - |",
	} {
		if out, errs, code := execute(t, "matrix", "-o", format); code != 0 || !strings.Contains(out, want) {
			t.Errorf("%s: exit %d\n%s%s", format, code, out, errs)
		}
	}
	if _, errs, code := execute(t, "matrix", "-o", "yaml"); code != 2 || !strings.Contains(errs, `"yaml"`) {
		t.Errorf("exit %d: %s", code, errs)
	}
}

func TestPolicyTest(t *testing.T) {
	if out, errs, code := execute(t, "policy", "test", shippedCopy(t), "--coverage", "100"); code != 0 || !strings.Contains(out, " passed, 0 failed\n") {
		t.Errorf("shipped: exit %d\n%s%s", code, out, errs)
	}
	for name, tc := range map[string]struct {
		file, old, replacement string
		code                   int
		text                   string
	}{
		"a failing test": {"operations/supersede/supersede.rego", `"code": 409`, `"code": 403`, 1, "FAILED  DIR/operations/supersede/supersede_test.rego:"},
		"a syntax error": {"operations/supersede/supersede.rego", "deny contains {", "deny contains {{", 1, "\n      DIR/operations/supersede/supersede.rego:"},
		"less coverage":  {"lib/operations/operations.rego", "package sallyport.lib.operations\n", "package sallyport.lib.operations\n\nnever_tested(x) if x == 1\n", 1, "not covered by tests (100% required): DIR/lib/operations/operations.rego:6"},
		"a typo in YAML": {"operations/supersede/policy.yaml", "onError:", "onErorr:", 2, "\nDIR/operations/supersede/policy.yaml:8: "},
	} {
		t.Run(name, func(t *testing.T) {
			dir := shippedCopy(t)
			edit(t, filepath.Join(dir, tc.file), tc.old, tc.replacement)
			out, errs, code := execute(t, "policy", "test", dir, "--coverage", "100")
			if code != tc.code || !strings.Contains(out+errs, strings.ReplaceAll(tc.text, "DIR", dir)) {
				t.Errorf("exit %d, want %d with %q\n%s%s", code, tc.code, tc.text, out, errs)
			}
		})
	}
	if _, errs, code := execute(t, "policy", "test", "no/such/folder"); code != 2 || !strings.Contains(errs, "no/such/folder") {
		t.Errorf("exit %d: %s", code, errs)
	}
}

func TestPolicyCheck(t *testing.T) {
	if out, errs, code := execute(t, "policy", "check"); code != 0 || !strings.Contains(out, "policies are valid") {
		t.Errorf("shipped: exit %d\n%s%s", code, out, errs)
	}
	dir := shippedCopy(t)
	edit(t, filepath.Join(dir, "operations/supersede/supersede.rego"), "valid_input if {", "valid_input if {\n\thttp.send({}).status == 200")
	edit(t, filepath.Join(dir, "lib/operations/operations.rego"), "package sallyport.lib.operations\n", "package sallyport.lib.operations\n\nx := input.request.uid\n")
	out, errs, code := execute(t, "policy", "check", dir)
	for _, text := range []string{
		dir + "/operations/supersede/supersede.rego:32:2: undefined function http.send: Sallyport withholds this builtin; use facts, ",
		dir + "/lib/operations/operations.rego:6:6: a library must not read input", "2 of 2 policies are not valid",
	} {
		if code != 1 || !strings.Contains(out+errs, text) {
			t.Errorf("exit %d without %q:\n%s%s", code, text, out, errs)
		}
	}
}

func TestManagerFailsEarlyAndClearly(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "missing"))
	if _, errs, code := execute(t, "manager"); code != 2 || !strings.Contains(errs, "finding the cluster") {
		t.Errorf("exit %d: %s", code, errs)
	}
}
