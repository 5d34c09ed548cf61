package describe_test

import (
	"flag"
	"path"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/policies"
	"sallyport.dev/sallyport/policies/describe"
	"sallyport.dev/sallyport/test/support/pages"
	"sallyport.dev/sallyport/webhooks/catalog"
)

var update = flag.Bool("update", false, "write testdata/toys.md")

const preface = "# Toys\n\nWhat they are.\n\n"

// toys loads the policies in a hidden folder, so that they are not loaded with the shipped policies.
func toys(t *testing.T) []v1alpha1.RegoPolicy {
	t.Helper()
	loaded, _, err := policies.LoadFolder("testdata/.toys")
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

// The page contains everything that a policy can have, with Markdown escaped.
func TestPage(t *testing.T) {
	loaded := toys(t)
	for _, source := range catalog.Sources(loaded) {
		if err := source.Check(); err != nil {
			t.Fatalf("the policy of the page is not valid: %v", err)
		}
	}
	page := describe.Page{Preface: preface, Modules: func(policy *v1alpha1.RegoPolicy, module string) string {
		if policy.Spec.Library {
			return ""
		}
		return path.Join("toys", policy.Name, module)
	}}
	got, err := page.Write(loaded)
	if err != nil {
		t.Fatal(err)
	}
	pages.Golden(t, *update, "testdata/toys.md", got)
}

// Every denial with the prefix [policy/Reason] has a heading, also if the names of two policies would result in the same anchor.
func TestAnchors(t *testing.T) {
	loaded := toys(t)
	again := loaded[len(loaded)-1].DeepCopy()
	again.Name = "toys-quotaunknown" // is also what the heading toys-quota/Unknown becomes
	page := describe.Page{Preface: "# toys-quota\n\n"}
	text, err := page.Write(append(loaded, *again))
	if err != nil {
		t.Fatal(err)
	}
	parsed := pages.Parse("toys.md", text)
	linked := map[string]string{}
	for _, link := range parsed.Links {
		anchor, ours := strings.CutPrefix(link.Text, "#")
		if !ours {
			continue
		}
		if !parsed.Anchors[anchor] {
			t.Errorf("%s: no heading has the anchor %s", link.Where, link.Text)
		}
		if before := linked[anchor]; before != "" {
			t.Errorf("%s leads to where %s does", link.Where, before)
		}
		linked[anchor] = link.Where
	}
	if want := len(loaded) + 1 + 4; len(linked) != want {
		t.Errorf("%d links, not one for each of %d policies and reasons", len(linked), want)
	}
}

func TestWhatDoesNotParse(t *testing.T) {
	loaded := toys(t)
	module := &loaded[len(loaded)-1].Spec.Modules[0]
	page := describe.Page{Preface: preface}
	module.Source = strings.Replace(module.Source, "deny contains {", "deny contains {{", 1)
	if _, err := page.Write(loaded); err == nil || !strings.Contains(err.Error(), "toys-quota/quota.rego:") {
		t.Errorf("got %v", err)
	}
}

// For omitted fields the page shows the defaults of the API.
func TestDefaults(t *testing.T) {
	policy := v1alpha1.RegoPolicy{}
	err := yaml.UnmarshalStrict([]byte(`
metadata: {name: bare}
spec:
  package: bare
  match: {resources: [{apiGroups: [""], apiVersions: ["*"], resources: [pods], operations: [CREATE]}]}
  modules: [{name: bare.rego, source: "package bare"}]
`), &policy)
	if err != nil {
		t.Fatal(err)
	}
	page := describe.Page{Preface: preface}
	text, err := page.Write([]v1alpha1.RegoPolicy{policy})
	if err != nil {
		t.Fatal(err)
	}
	want := `## bare

| | |
| --- | --- |
| matches | CREATE of ` + "`pods`" + ` |
| mode | ` + "`Enforce`" + ` |
| on error | the request is denied (` + "`onError: Deny`" + `) |
| override | users with the verb ` + "`override` on the RegoPolicy, except service accounts (`override: Users`)" + ` |
| timeout | 2000 ms |
| Rego | ` + "`bare.rego`" + ` |
`
	if _, section, _ := strings.Cut(text, "## bare"); "## bare"+section != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}
