package tools

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport.dev/sallyport/test/support/pages"
)

// The page is the same in every form of policies, but for links to Rego, which are seen from the page.
func TestPolicyDocs(t *testing.T) {
	source := shippedCopy(t)
	list := clusterPolicies(t, source)
	file := filepath.Join(filepath.Dir(source), "pages", "policies.md")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if out, errs, code := execute(t, "policy", "docs", source, "-o", file); code != 0 || out+errs != "" {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	written, linked := string(text), 0
	for _, link := range pages.Parse("policies.md", written).Links {
		if !strings.HasPrefix(link.Text, "#") {
			linked++
			if _, err := os.Stat(filepath.Join(filepath.Dir(file), link.Text)); err != nil || filepath.IsAbs(link.Text) {
				t.Errorf("a link that leads nowhere: %s", link.Text)
			}
			written = strings.ReplaceAll(written, "[`"+filepath.Base(link.Text)+"`]("+link.Text+")", "`"+filepath.Base(link.Text)+"`")
		}
	}
	if linked != 2 {
		t.Errorf("%d links to Rego", linked)
	}
	if !strings.Contains(written, "\n### operations-supersede/OperationInProgress\n\n**Another operation is in progress.** The new operation") {
		t.Errorf("got\n%s", written)
	}
	if out, errs, code := executeWith(t, list, "policy", "docs", "-"); code != 0 || out != written {
		t.Errorf("of a list: exit %d\n%s%s", code, out, errs)
	}
	out, errs, code := execute(t, "policy", "docs")
	for _, want := range []string{"## defaults\n", "### policies-self/Weakened\n", "### operations-supersede/OperationInProgress\n"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("of the shipped ones: exit %d without %q\n%s%s", code, want, out, errs)
		}
	}
}

// A page about what no cluster takes is not written.
func TestPolicyDocsOfWhatIsNotInOrder(t *testing.T) {
	source := shippedCopy(t)
	rego := source + "/operations/supersede/supersede.rego"
	file := filepath.Join(source, "README.md")
	for name, tc := range map[string]struct{ old, replacement, want string }{
		"no remedy":       {"#   remedyInMessage: Wait until the unfinished operation ends, delete it, or request an operation that the message lists.\n", "", rego + ":44:1: deny needs METADATA with title, custom.reason (CamelCase) and custom.remedy, or custom.remedyInMessage if each denial says it\n1 of 2 policies is not valid"},
		"an unknown key":  {"#   remedyInMessage: Wait until the unfinished operation ends", "#   remedies: Wait until the unfinished operation ends", "METADATA custom.remedies is unknown"},
		"another reason":  {"\"reason\": \"OperationInProgress\"", "\"reason\": \"Busy\"", rego + ":45:1: deny has the reason \"Busy\", but its METADATA has custom.reason \"OperationInProgress\""},
		"what is no Rego": {"deny contains {", "deny contains {{", rego + ":"},
	} {
		t.Run(name, func(t *testing.T) {
			before, err := os.ReadFile(rego)
			if err != nil {
				t.Fatal(err)
			}
			edit(t, rego, tc.old, tc.replacement)
			out, errs, code := execute(t, "policy", "docs", source, "-o", file)
			if code != 1 || out != "" || !strings.Contains(errs, tc.want) {
				t.Errorf("exit %d without %q\n%s%s", code, tc.want, out, errs)
			}
			if _, err := os.Stat(file); err == nil {
				t.Error("it was written")
			}
			if err := os.WriteFile(rego, before, 0o600); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// What keeps a policy from being fast is told, and is no reason to refuse it.
func TestPolicyCheckNotes(t *testing.T) {
	source := shippedCopy(t)
	rego := source + "/operations/supersede/supersede.rego"
	edit(t, rego, "	some op in _unfinished\n	not _may_supersede(op)\n", "	some op in _unfinished\n	_unfinished != 1 with input.request.uid as \"\"\n	not _may_supersede(op)\n")
	out, errs, code := execute(t, "policy", "check", source)
	want := rego + ":54:2: note: policy operations-supersede is not compiled because of `with`: its decisions take longer\n2 policies are valid\n"
	if code != 0 || out != want || errs != "" {
		t.Errorf("exit %d\n%s%swant\n%s", code, out, errs, want)
	}
	// A policy on Pods is asked about debug containers only if it says so.
	for resources, noted := range map[string]bool{"[pods]": true, "[pods, pods/ephemeralcontainers]": false, "[configmaps]": false, "[pods/exec]": false} {
		operations := "[CREATE, UPDATE]"
		if resources == "[pods/exec]" {
			operations = "[CONNECT]"
		}
		folder(t, map[string]string{
			"pods/policy.yaml": "apiVersion: sallyport.dev/v1alpha1\nkind: RegoPolicy\nmetadata: {name: pods}\nspec:\n  package: pods\n" +
				"  match: {resources: [{apiGroups: [''], apiVersions: [v1], resources: " + resources + ", operations: " + operations + "}]}\n",
			"pods/pods.rego":      "# METADATA\n# title: T\n# description: D\npackage pods\n\nvalid_input := true\n\nwarn contains \"w\" if input.request.operation == \"x\"\n",
			"pods/pods_test.rego": "package pods_test\n\nimport data.pods\n\ntest_t if count(pods.warn) == 0 with input as {\"request\": {\"operation\": \"y\"}}\n",
		})
		out, errs, code := execute(t, "policy", "check", "pods")
		if code != 0 || strings.Contains(out, "note: policy pods is not evaluated for debug containers (kubectl debug)") != noted {
			t.Errorf("%s: exit %d\n%s%s", resources, code, out, errs)
		}
	}
	// A denial that needs all objects of a list is dearer than one that needs the one it names.
	for rule, noted := range map[string]bool{"some other in input.facts.others": false, "count(input.facts.others) > 2": true} {
		folder(t, map[string]string{
			"hosts/policy.yaml": "apiVersion: sallyport.dev/v1alpha1\nkind: RegoPolicy\nmetadata: {name: hosts}\nspec:\n  package: hosts\n" +
				"  match: {resources: [{apiGroups: [''], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}]}\n" +
				"  reads: [{apiVersion: v1, kind: ConfigMap, indexes: [data.host]}]\n",
			"hosts/hosts.rego": "# METADATA\n# title: T\n# description: D\npackage hosts\n\nfacts.others := {\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\", " +
				"\"fields\": {\"data.host\": input.request.object.data.host}}\n\nvalid_input := true\n\nwarn contains \"w\" if " + rule + "\n",
			"hosts/hosts_test.rego": "package hosts_test\n\nimport data.hosts\n\ntest_t if count(hosts.warn) == 0 with input as {\"facts\": {\"others\": []}}\n",
		})
		const note = "hosts/hosts.rego:10:28: note: facts.others is not only iterated over here, so a denial compares the metadata of all its objects"
		if out, errs, code := execute(t, "policy", "check", "hosts"); code != 0 || strings.Contains(out, note) != noted {
			t.Errorf("%s: exit %d\n%s%s", rule, code, out, errs)
		}
	}
	folder(t, map[string]string{
		"hosts/hosts.rego": "# METADATA\n# title: T\n# description: D\npackage hosts\n\nfacts.others := {\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\"}\n\n" +
			"valid_input := true\n\nwarn contains \"w\" if {\n\tsome other in input.facts.others\n\tother.data.host == input.request.object.data.host\n}\n",
		"hosts/hosts_test.rego": "package hosts_test\n\nimport data.hosts\n\ntest_t if count(hosts.warn) == 0 with input as {\"facts\": {\"others\": []}}\n",
		"hosts/policy.yaml": "apiVersion: sallyport.dev/v1alpha1\nkind: RegoPolicy\nmetadata: {name: hosts}\nspec:\n  package: hosts\n" +
			"  match: {resources: [{apiGroups: [''], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}]}\n" +
			"  reads: [{apiVersion: v1, kind: ConfigMap}]\n",
	})
	const note = `hosts/hosts.rego:12:2: note: facts.others reads all objects, of which data.host is compared here: if the query has "fields": {"data.host": ...}, ` +
		"and the kind in spec.reads has indexes: [data.host], only those with the value are read"
	if out, errs, code := execute(t, "policy", "check", "hosts"); code != 0 || !strings.Contains(out, note) {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	if out, errs, code := execute(t, "policy", "check"); code != 0 || strings.Contains(out, "note:") {
		t.Errorf("the shipped policies are not all followed: exit %d\n%s%s", code, out, errs)
	}
}

// What a cluster would refuse because it is not granted is told without one.
func TestPolicyCheckKnowsWhatIsGranted(t *testing.T) {
	source := t.TempDir()
	for file, text := range map[string]string{
		"policy.yaml": "apiVersion: sallyport.dev/v1alpha1\nkind: RegoPolicy\nmetadata: {name: marks}\nspec:\n  package: marks\n" +
			"  match: {resources: [{apiGroups: [\"\"], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}]}\n",
		"marks.rego": "# METADATA\n# title: T\n# description: D\npackage marks\n\nvalid_input if is_object(input.request)\n\n" +
			"patch contains {\"op\": \"add\", \"path\": \"/data\", \"value\": {}} if not input.request.object.data\n",
		"marks_test.rego": "package marks_test\n\nimport data.marks as policy\n\ntest_x if count(policy.patch) == 1 with input.request.object as {}\n",
	} {
		if err := os.WriteFile(filepath.Join(source, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, errs, code := execute(t, "policy", "check", source)
	if want := "configmaps: policies may not patch it; to grant its labels and annotations, run: helm upgrade RELEASE CHART"; code != 1 || !strings.Contains(out, want) {
		t.Errorf("exit %d, want 1 with %q\n%s%s", code, want, out, errs)
	}
	if out, errs, code := execute(t, "policy", "check", source, "--patchable", "configmaps=All"); code != 0 {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	if _, errs, code := execute(t, "policy", "check", source, "--patchable", "secrets=All"); code != 2 || !strings.Contains(errs, "secrets cannot be granted: it holds credentials") {
		t.Errorf("exit %d\n%s", code, errs)
	}
}
