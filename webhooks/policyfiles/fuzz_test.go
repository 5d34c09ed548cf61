package policyfiles_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/bundled"
	"sallyport.dev/sallyport/policies"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/offline"
	"sallyport.dev/sallyport/webhooks/policyfiles"
)

// readText gives the policies of a file, as commands do.
func readText(t *testing.T, text string) (*policyfiles.Collection, string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policies.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	collection, err := bundled.Release.Read(&offline.Files{}, file)
	return collection, file, err
}

// Whatever a file has in it, it is policies, each once and with a name; or the error says that it is this file. As manifests they are the same
// when they are read again.
func FuzzPolicyFile(f *testing.F) {
	shipped, err := policies.Shipped()
	if err != nil {
		f.Fatal(err)
	}
	var all []string
	for i := range shipped {
		text, err := catalog.Manifest(&shipped[i])
		if err != nil {
			f.Fatal(err)
		}
		all = append(all, string(text))
	}
	const small = "apiVersion: sallyport.dev/v1alpha1\nkind: RegoPolicy\nmetadata: {name: a}\nspec: {package: a, modules: [{name: a.rego, source: \"package a\\n\\tx := 1\"}]}\n"
	for _, text := range []string{
		strings.Join(all[:2], "---\n"), small, small + "---\n" + small, small + "--- # more\n" + strings.Replace(small, "name: a}", "name: b}", 1), "", "---\n---\n", "[]", "7",
		"apiVersion: v1\nkind: List\nitems:\n- " + strings.ReplaceAll(strings.TrimSpace(small), "\n", "\n  "), `{"apiVersion": "sallyport.dev/v1alpha1", "kind": "RegoPolicy"}`,
		strings.Replace(small, "spec:", "status: {conditions: []}\nspec:", 1), strings.Replace(small, "package: a,", "package: a, mode: [Audit],", 1),
		strings.Replace(small, "package: a,", "package: a, package: b,", 1), strings.Replace(small, "name: a}", "name: a, annotations: {a: \"\\u2028\"}}", 1),
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		collection, file, err := readText(t, text)
		if err != nil {
			if !strings.Contains(err.Error(), file) {
				t.Errorf("the file is not named: %v", err)
			}
			return
		}
		names := map[string]bool{}
		for _, o := range collection.Objects {
			if o.Name == "" || names[o.Name] || o.Kind != "RegoPolicy" {
				t.Errorf("read is %s %q, after %v", o.Kind, o.Name, names)
			}
			names[o.Name] = true
		}
		if _, err := collection.Check(t.Context()); err != nil {
			t.Errorf("checking: %v", err)
		}
		packed := strings.Join(slices.Collect(maps.Values(meaning(t, collection))), "---\n")
		again, _, err := readText(t, packed)
		if err != nil {
			t.Fatalf("what was packed cannot be read: %v\n%s", err, packed)
		}
		if diff := cmp.Diff(meaning(t, collection), meaning(t, again)); diff != "" {
			t.Errorf("read (-) and read again (+):\n%s", diff)
		}
	})
}

// meaning gives the manifests of policies, by name, without what only a cluster sets.
func meaning(t *testing.T, c *policyfiles.Collection) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, o := range c.Objects {
		text, err := catalog.Manifest(&v1alpha1.RegoPolicy{
			TypeMeta: o.TypeMeta, ObjectMeta: metav1.ObjectMeta{Name: o.Name, Labels: o.Labels, Annotations: o.Annotations}, Spec: o.Spec,
		})
		if err != nil {
			t.Fatal(err)
		}
		all[o.Name] = string(text)
	}
	return all
}
