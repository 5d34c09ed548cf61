package policies

import (
	"io/fs"
	"path"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Whatever a folder has in it, it is one policy of just the texts that are there, in the package that the folder stands for; or the error says
// which file is to blame.
func FuzzLoad(f *testing.F) {
	f.Add("team/quota", good, "package acme.team.quota", "package acme.team.quota_test", "policy.yaml")
	f.Add(".", good, "package acme.team.quota", "", "README.md")
	f.Add("team/quota", "", "", "", "policy.yaml")
	f.Add("am/quota", good, "x", "y", "other.rego")
	f.Add("team/quota", strings.Replace(good, "match:", "modules: [{name: a.rego, source: a}], match:", 1), "package a", "", "x")
	f.Add("a", "apiVersion: sallyport.dev/v1alpha1\nkind: RegoPolicy\nmetadata: {name: &n x}\nspec: {package: *n}", "", "", ".hidden.rego")
	f.Add("quota", good+"---\n"+good, "package quota", "", "deep/er/x.rego")
	f.Add(".quota", good, "package quota", "", "policy.yaml")
	f.Add("b", "{apiVersion: sallyport.dev/v1alpha1, kind: RegoPolicy, metadata: {name: x, labels: {a: 1}}, spec: {package: [b]}}", "", "", "x_test.rego")
	f.Fuzz(func(t *testing.T, dir, manifest, module, test, beside string) {
		files := map[string]string{
			path.Join(dir, ManifestFile): manifest, path.Join(dir, "a.rego"): module, path.Join(dir, "a_test.rego"): test, path.Join(dir, beside): "beside",
		}
		fsys := fstest.MapFS{}
		for name, text := range files {
			if !fs.ValidPath(name) {
				t.Skip()
			}
			for other := range files { // a file is no folder
				if strings.HasPrefix(other, name+"/") {
					t.Skip()
				}
			}
			fsys[name] = &fstest.MapFile{Data: []byte(text)}
		}
		loaded, err := loadTree(fsys)
		if err != nil {
			named := strings.Contains(err.Error(), "no "+ManifestFile+" found") // if it is hidden
			for name := range files {
				named = named || strings.Contains(err.Error(), name)
			}
			if !named {
				t.Errorf("no file is named: %v", err)
			}
			return
		}
		if len(loaded) != 1 {
			t.Fatalf("loaded are %d policies", len(loaded))
		}
		p := loaded[0]
		if p.Name == "" || p.APIVersion != v1alpha1.GroupVersion.String() || p.Kind != "RegoPolicy" {
			t.Errorf("loaded is %s %s %q", p.APIVersion, p.Kind, p.Name)
		}
		if clean := path.Clean(dir); clean != "." && p.Spec.Package != dotted(clean) && !strings.HasSuffix(p.Spec.Package, "."+dotted(clean)) {
			t.Errorf("package %s in folder %s", p.Spec.Package, clean)
		}
		got := map[string]string{}
		for _, m := range p.Spec.Modules {
			got[m.Name] = m.Source
		}
		for _, m := range p.Spec.Tests {
			got[m.Name] = m.Source
		}
		want := map[string]string{}
		for name, text := range files {
			if path.Dir(name) == path.Clean(dir) && path.Ext(name) == ".rego" {
				want[path.Base(name)] = text
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("Rego (-in the folder +loaded):\n%s", diff)
		}
	})
}
