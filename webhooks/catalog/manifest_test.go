package catalog_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/catalog"
)

// A manifest has the policy in it, in lines that a person can edit, and means the same.
func TestManifest(t *testing.T) {
	const head = "# METADATA\n# title: a\npackage a\n\n"
	for name, tc := range map[string]struct{ source, want string }{
		"tabs":              {head + "x if {\n\ty\n\n\tz := {\n\t\t\"a\": 1,\n\t}\n}\n", head + "x if {\n  y\n\n  z := {\n    \"a\": 1,\n  }\n}\n"},
		"tabs within lines": {head + "x := 1\t# one\n", head + "x := 1\t# one\n"},
		"tabs that mean something": {
			head + "x if {\n\ty == `a\n\tb`\n}\n", head + "x if {\n\ty == `a\n\tb`\n}\n",
		},
		"no Rego": {"package a\n\nx if {{\n\ty\n}\n", "package a\n\nx if {{\n\ty\n}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			policy := &v1alpha1.RegoPolicy{}
			policy.APIVersion, policy.Kind, policy.Name = v1alpha1.GroupVersion.String(), "RegoPolicy", "a"
			policy.Spec.Modules = []v1alpha1.PolicyModule{{Name: "a.rego", Source: tc.source}}
			policy.Spec.Tests = []v1alpha1.PolicyTest{{Name: "a_test.rego", Source: tc.source}}
			before := policy.DeepCopy()
			text, err := catalog.Manifest(policy)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, policy); diff != "" {
				t.Errorf("it changed the policy:\n%s", diff)
			}
			read := &v1alpha1.RegoPolicy{}
			if err := yaml.UnmarshalStrict(text, read); err != nil {
				t.Fatal(err)
			}
			for _, got := range []string{read.Spec.Modules[0].Source, read.Spec.Tests[0].Source} {
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("Rego (-want +got):\n%s", diff)
				}
			}
			if is := strings.Contains(string(text), "source: |\n"); is != !strings.Contains(tc.want, "\t") {
				t.Errorf("the Rego is a block of text: %v\n%s", is, text)
			}
			if strings.Contains(string(text), "status") {
				t.Errorf("a status was made up:\n%s", text)
			}
		})
	}
}
