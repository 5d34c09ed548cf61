package tools

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The explanation that docs/review.md shows is what its reader sees. -update writes it anew.
func TestDocsShowAnExplanation(t *testing.T) {
	const fence = "```console\n$ sallyport review -f stop.yaml "
	name := filepath.Join(repository, "docs", "review.md")
	text := page(t, "review.md")
	files := map[string]string{}
	for _, block := range strings.Split(text, "```yaml\n")[1:] {
		content, _, _ := strings.Cut(block, "```")
		file, _, _ := strings.Cut(content, "\n")
		files[strings.TrimPrefix(file, "# ")] = content
	}
	folder(t, files)
	before, rest, found := strings.Cut(text, fence)
	block, after, closed := strings.Cut(rest, "```\n")
	if !found || !closed || strings.Contains(after, fence) {
		t.Fatal("docs/review.md does not show one explanation")
	}
	command, want, _ := strings.Cut(block, "\n")
	out, errs, code := execute(t, append([]string{"review", "-f", "stop.yaml"}, strings.Fields(command)...)...)
	if code != 0 {
		t.Errorf("%s: exit %d: %s", command, code, errs)
	}
	_, is, _ := strings.Cut(out, "    operations-supersede: ") // what is filled in before has the time
	is = "    operations-supersede: " + is
	is = strings.ReplaceAll(strings.TrimPrefix(is, "    "), "\n    ", "\n")
	if *update {
		if err := os.WriteFile(name, []byte(before+fence+command+"\n"+is+"```\n"+after), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if is != want {
		t.Errorf("%s shows\n%s\nand not\n%s", command, is, want)
	}
}

func TestReviewExplains(t *testing.T) {
	folder(t, map[string]string{
		"stop.yaml": "apiVersion: sallyport.dev/v1alpha1\nkind: VirtualMachineOperation\nmetadata: {name: stop-1}\nspec: {virtualMachineName: web-1, type: Stop}\n",
		"vm.yaml":   "apiVersion: sallyport.dev/v1alpha1\nkind: VirtualMachine\nmetadata: {name: web-1}\nspec: {runPolicy: Manual, runtime: {pod: {}}}\nstatus: {phase: Running}\n",
	})
	for name, tc := range map[string]struct {
		args  string
		code  int
		texts []string
	}{
		"each policy": {"-f stop.yaml --state vm.yaml --explain", 0, []string{
			"defaults: changes the object: add /spec/requestedAt, ", "operations-supersede: allows: deny at supersede.rego:", "servers-tenancy: not evaluated: "}},
		"a policy": {"-f stop.yaml --state vm.yaml --explain --policy operations-applicability -o json", 0, []string{
			`"explanations": [`, `"summary": "operations-applicability: allows: `, `"rules": [`}},
		"a denial":                     {"-f stop.yaml --explain", 1, []string{"operations-applicability: denies: [VirtualMachineNotFound] "}},
		"what no webhook is asked":     {"-f vm.yaml --state vm.yaml --operation UPDATE --explain", 0, []string{"servers-tenancy: not evaluated: webhook validate.sallyport.dev is not called: its matchCondition "}},
		"a policy that is not there":   {"-f stop.yaml --explain --policy nobody", 2, []string{"policy nobody does not exist; policies are: defaults, "}},
		"a policy without --explain":   {"-f stop.yaml --policy defaults", 2, []string{"--policy requires --explain"}},
		"nothing without being asked":  {"-f stop.yaml --state vm.yaml -o json", 0, []string{`"verdict": "admitted"`}},
		"what the state does not know": {"-f stop.yaml --explain --policy operations-supersede", 1, []string{"facts.vm  VirtualMachine web-1 in namespace default: not found"}},
	} {
		t.Run(name, func(t *testing.T) {
			out, errs, code := execute(t, append([]string{"review"}, strings.Fields(tc.args)...)...)
			if code != tc.code {
				t.Errorf("exit %d, want %d", code, tc.code)
			}
			for _, text := range tc.texts {
				if !strings.Contains(out+errs, text) {
					t.Errorf("%q is not said", text)
				}
			}
			if strings.Contains(out, "explanations") != (strings.Contains(tc.args, "--explain") && strings.Contains(tc.args, "json")) {
				t.Error("explanations are where they were not asked for, or the other way round")
			}
			if t.Failed() {
				t.Logf("%s%s", out, errs)
			}
		})
	}
}
