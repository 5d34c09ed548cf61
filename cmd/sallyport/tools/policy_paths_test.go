package tools

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/charts"
	"sallyport.dev/sallyport/cmd/sallyport/bundled"
	"sallyport.dev/sallyport/reconcilers/policy/shipping"
	"sallyport.dev/sallyport/webhooks/offline"
)

// clusterPolicies are the policies of a folder as kubectl get -o yaml shows them.
func clusterPolicies(t *testing.T, folder string) string {
	t.Helper()
	collection, err := bundled.Release.Read(&offline.Files{}, folder)
	if err != nil {
		t.Fatal(err)
	}
	list := v1alpha1.RegoPolicyList{Items: collection.Objects}
	list.APIVersion, list.Kind = "v1", "List"
	for i := range list.Items {
		list.Items[i].UID, list.Items[i].ResourceVersion, list.Items[i].Generation = "a", "1", 7
		list.Items[i].Status.ObservedGeneration = 7
	}
	text, err := yaml.Marshal(&list)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Every command that works with policies takes them in every form.
func TestPoliciesInEveryForm(t *testing.T) {
	source := shippedCopy(t)
	list := clusterPolicies(t, source)
	documents, errs, code := execute(t, "policy", "manifest", source)
	if code != 0 {
		t.Fatal(errs)
	}
	library, policy, _ := strings.Cut(documents, "---\n")
	folder(t, map[string]string{
		"list.yaml": list, "documents.yaml": documents, "objects/library.yaml": library, "objects/deep/policy.yaml": policy,
		"vm.yaml": machineYAML("web-1"), "stop.yaml": operationYAML("stop-1", "Stop"),
	})
	for form, paths := range map[string]string{
		"a folder as they are written": source,
		"several such folders":         source + "/operations," + source + "/lib",
		"a list":                       "list.yaml",
		"documents of a file":          "documents.yaml",
		"files":                        "objects/library.yaml,objects/deep/policy.yaml",
		"standard input":               "-",
	} {
		t.Run(form, func(t *testing.T) {
			for _, args := range [][]string{
				{"policy", "check"}, {"policy", "test", "--run", "test_known"}, {"policy", "manifest"},
				{"matrix", "-o", "json", "--policies"}, {"review", "-f", "stop.yaml", "--state", "vm.yaml", "--policies"},
			} {
				last := strings.Split(paths, ",")
				if strings.HasPrefix(args[len(args)-1], "--") {
					last = []string{paths}
				}
				out, errs, code := executeWith(t, list, append(args, last...)...)
				want := map[string]string{
					"check": "2 policies are valid\n", "test": " passed, 0 failed\n", "manifest": "name: operations-supersede",
					"-o": `"superseded": true`, "-f": "stop-1 created",
				}[args[1]]
				if code != 0 || !strings.Contains(out, want) {
					t.Errorf("%v: exit %d, want 0 with %q\n%s%s", args, code, want, out, errs)
				}
			}
		})
	}
}

// What is wrong is told where it can be opened, in every form.
func TestPolicyProblemsNameTheirFiles(t *testing.T) {
	source := shippedCopy(t)
	edit(t, filepath.Join(source, "operations/supersede/supersede.rego"), "valid_input if {", "valid_inputs if {")
	edit(t, filepath.Join(source, "operations/supersede/supersede.rego"), "facts.vm := {", "facts.vm[0] := {")
	edit(t, filepath.Join(source, "operations/supersede/policy.yaml"), "mode: Enforce", "mode: Enforced")
	list := clusterPolicies(t, source)
	before, _, _ := strings.Cut(list, "  kind: RegoPolicy\n  metadata:\n    generation: 7\n    name: operations-supersede\n")
	item := fmt.Sprintf("list.yaml:%d: ", strings.Count(before, "\n"))
	folder(t, map[string]string{
		"list.yaml": list, "policy.yaml": manifest("RegoPolicy", "name: a", "spec: {package: a, match: {resources: []}}"), "a.rego": "package a",
		"twice/a.yaml": list, "twice/b.yaml": list, "empty/readme": "",
		"broken/policy.yaml": "apiVersion: [\n", "broken/a.rego": "package a", "lost/a.rego": "package a",
		"misspelt/policy.yaml": manifest("RegoPolicy", "name: a", "spec:\n  package: a\n  macth:\n    resources: []\n  timeoutMilliseconds: soon"), "misspelt/a.rego": "package a",
	})
	rego := source + "/operations/supersede/supersede.rego"
	for name, tc := range map[string]struct {
		args string
		code int
		text []string
	}{
		"a folder": {"policy check " + source, 1, []string{
			rego + ":24:1: a fact must be written", source + "/operations/supersede/policy.yaml: rule valid_input is missing",
			source + `/operations/supersede/policy.yaml:7: spec.mode: Unsupported value: "Enforced"`, "1 of 2 policies is not valid",
		}},
		"a list": {"policy check list.yaml", 1, []string{
			"\n" + item + "operations-supersede/supersede.rego:24:1: a fact must be written", "\n" + item + "rule valid_input is missing",
		}},
		"a matrix":         {"matrix --policies " + source, 2, []string{"policy operations-supersede has errors:\n", "\n" + rego + ":24:1: a fact"}},
		"a test":           {"policy test " + source, 1, []string{"FAIL  operations-supersede\n", source + "/operations/supersede/supersede_test.rego:477:6: "}},
		"no folder":        {"policy check no/such/folder", 2, []string{"no/such/folder: no such file"}},
		"an empty folder":  {"policy check empty", 2, []string{"empty: no file in it ends in"}},
		"a file of Rego":   {"policy check a.rego", 2, []string{"a.rego: a policy is read together with its policy.yaml; name the folder ."}},
		"half of a policy": {"policy check policy.yaml", 2, []string{"policy.yaml:1: spec.modules is missing; if the Rego is beside it, name the folder ."}},
		"twice":            {"policy check twice", 2, []string{"twice/b.yaml:3: RegoPolicy lib-operations is also in twice/a.yaml:3"}},
		"broken YAML":      {"policy check broken", 2, []string{"\nbroken/policy.yaml: "}},
		"a misspelt field": {"policy check misspelt", 2, []string{
			"\nmisspelt/policy.yaml:6: unknown field \"spec.macth\"\nmisspelt/policy.yaml:8: spec.timeoutMilliseconds: Invalid value: \"string\": ",
		}},
		"Rego alone": {"policy test lost", 2, []string{"\nlost/a.rego: no policy.yaml in the same directory"}},
	} {
		t.Run(name, func(t *testing.T) {
			out, errs, code := execute(t, strings.Fields(tc.args)...)
			for _, text := range tc.text {
				if code != tc.code || !strings.Contains("\n"+out+errs, text) {
					t.Errorf("exit %d, want %d with %q:\n%s%s", code, tc.code, text, out, errs)
				}
			}
		})
	}
}

// What is no path of a field would find nothing, for ever.
func TestPathsOfIndexes(t *testing.T) {
	source := shippedCopy(t)
	file := filepath.Join(source, "operations/supersede/policy.yaml")
	edit(t, file, "indexes: [spec.virtualMachineName]", "indexes: [spec.virtualMachineName, INDEX]")
	written := "INDEX"
	for index, valid := range map[string]bool{
		"spec.a[].b": true, "spec.tags[]": true, "a": true, "spec.a[].b[].c,spec.d": true, "spec.d,spec.a[].b,spec.c": true, "metadata.labels.a/b-c": true,
		"spec.a[0].b": false, "spec.a[": false, "spec..a": false, ".spec": false, "spec.": false, "[].a": false, "a,": false, "a[][]": false,
		"spec.a[].b,spec.c,spec.d[].e": false, // which could take as many entries as there are pairs
	} {
		edit(t, file, written, fmt.Sprintf("%q", index))
		written = fmt.Sprintf("%q", index)
		out, errs, code := execute(t, "policy", "check", source)
		problem := fmt.Sprintf("%s:19: spec.reads[0].indexes[1]: Invalid value: %q: ", file, index)
		if valid != (code == 0) || valid == strings.Contains(out+errs, problem) {
			t.Errorf("%s: exit %d\n%s%s", index, code, out, errs)
		}
	}
}

// A policy of one's own may import what every cluster has; what is there in its place counts.
func TestPoliciesImportShippedLibraries(t *testing.T) {
	source := shippedCopy(t)
	alone := filepath.Join(source, "operations")
	for _, args := range []string{"policy check", "policy test --run test_facts", "matrix --policies", "review -f testdata/review/requests.yaml --policies"} {
		out, errs, code := execute(t, append(strings.Fields(args), alone)...)
		if code == 2 || strings.HasPrefix(args, "policy") && code != 0 {
			t.Errorf("%s: exit %d\n%s%s", args, code, out, errs)
		}
	}
	edit(t, filepath.Join(source, "lib/operations/policy.yaml"), "name: lib-operations", "name: another")
	edit(t, filepath.Join(source, "lib/operations/operations.rego"), "known(spec) if", "unknown(spec) if")
	if out, errs, code := execute(t, "policy", "check", source); code != 1 || !strings.Contains(out, source+"/operations/supersede/supersede.rego:") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
}

// What is packed is what was written, and for the shipped policies what the chart has, but for the Rego, to which the chart refers.
func TestPolicyManifest(t *testing.T) {
	folders := map[string]string{"operations-supersede": "operations/supersede", "lib-operations": "lib/operations", "defaults": "defaults"}
	for name, folder := range folders {
		out, errs, code := execute(t, "policy", "manifest", filepath.Join("../../../policies", folder))
		want, err := charts.Files.ReadFile("sallyport/files/policies/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), referring(t, out)); code != 0 || diff != "" {
			t.Errorf("%s: exit %d\n%s\n(-chart +manifest):\n%s", name, code, errs, diff)
		}
	}
	source := shippedCopy(t)
	file := filepath.Join(t.TempDir(), "policies.yaml")
	if out, errs, code := execute(t, "policy", "manifest", source, "-o", file); code != 0 || out != "" {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	written, err := bundled.Release.Read(&offline.Files{}, source)
	if err != nil {
		t.Fatal(err)
	}
	packed, err := bundled.Release.Read(&offline.Files{}, file)
	if err != nil {
		t.Fatal(err)
	}
	spaced := cmp.Transformer("spaced", func(text string) string { return strings.ReplaceAll(text, "\t", "  ") })
	if diff := cmp.Diff(written.Objects, packed.Objects, spaced, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("-written +packed:\n%s", diff)
	}
	if out, errs, code := executeWith(t, clusterPolicies(t, source), "policy", "manifest", "-"); code != 0 || strings.Contains(out, "resourceVersion") || strings.Contains(out, "observedGeneration") {
		t.Errorf("what only a cluster sets is packed: exit %d\n%s%s", code, out, errs)
	}
	edit(t, filepath.Join(source, "operations/supersede/supersede.rego"), "deny contains {", "deny contains {{")
	if out, errs, code := execute(t, "policy", "manifest", source); code != 1 || out != "" || !strings.HasPrefix(errs, source+"/operations/supersede/supersede.rego:") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
}

// A file that is written has the old text or the new one, its mode, and its place behind a link.
func TestReplaceFile(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := replaceFile("new", []byte("a"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("new", "link"); err != nil {
		t.Fatal(err)
	}
	if err := replaceFile("link", []byte("b"), 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat("new")
	text, readErr := os.ReadFile("link")
	if err != nil || readErr != nil || info.Mode() != 0o640 || string(text) != "b" {
		t.Errorf("%v %v: %v with %q", err, readErr, info, text)
	}
	if err := replaceFile("no/such/folder", nil, 0o600); err == nil || !strings.Contains(err.Error(), "writing no/such/folder") {
		t.Errorf("got %v", err)
	}
	if err := os.Mkdir("full", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := replaceFile("full", nil, 0o600); err == nil {
		t.Error("a folder was replaced")
	}
	if entries, err := os.ReadDir("."); err != nil || len(entries) != 3 {
		t.Errorf("there is something left: %v, %v", entries, err)
	}
}

// referring returns a manifest with references instead of its Rego.
func referring(t *testing.T, manifest string) string {
	t.Helper()
	policy := &v1alpha1.RegoPolicy{}
	if err := yaml.Unmarshal([]byte(manifest), policy); err != nil {
		t.Fatal(err)
	}
	shipping.Refer(policy)
	text, err := yaml.Marshal(policy)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
