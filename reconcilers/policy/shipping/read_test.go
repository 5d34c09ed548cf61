package shipping

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/shipped"
)

func configMap(release string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "cm", Annotations: map[string]string{ReleaseAnnotation: release}}, Data: data,
	}
}

func TestReadGivesLibrariesFirst(t *testing.T) {
	shipped := shipped.Policies(t)
	data, want := map[string]string{}, []string{}
	for _, p := range shipped {
		text, err := yaml.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		data[p.Name+".yaml"] = string(text)
		want = append(want, p.Name)
	}
	read, err := Read(configMap("1.0.0", data), nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range read {
		got = append(got, p.Name)
		if p.Labels[Label] != "true" || p.Annotations[ReleaseAnnotation] != "1.0.0" || p.Spec.Mode == "" || p.Spec.OnError == "" || p.Spec.TimeoutMilliseconds == 0 {
			t.Errorf("%s is %+v", p.Name, p)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("it gives %v and not %v", got, want)
	}
}

func TestReadRefuses(t *testing.T) {
	const head = "apiVersion: sallyport.dev/v1alpha1\nkind: RegoPolicy\nmetadata: {name: p}\n"
	for name, tc := range map[string]struct{ release, key, text, want string }{
		"a key":           {"1", "p.json", head, "ConfigMap ns/cm, key p.json: a key must end in .yaml"},
		"another name":    {"1", "q.yaml", head, "ConfigMap ns/cm, key q.yaml: metadata.name is p, so the key must be p.yaml"},
		"no name":         {"1", "p.yaml", "apiVersion: sallyport.dev/v1alpha1\nkind: RegoPolicy\n", "ConfigMap ns/cm, key p.yaml: metadata.name is missing"},
		"another kind":    {"1", "p.yaml", "apiVersion: v1\nkind: Pod\n", "ConfigMap ns/cm, key p.yaml: apiVersion and kind must be sallyport.dev/v1alpha1 and RegoPolicy"},
		"a field":         {"1", "p.yaml", head + "spec: {mod: Warn}\n", `ConfigMap ns/cm, key p.yaml: error unmarshaling JSON: while decoding JSON: json: unknown field "mod"`},
		"a line":          {"1", "p.yaml", head + "spec:\n\tmode: Warn\n", "ConfigMap ns/cm, key p.yaml: error converting YAML to JSON: yaml: line 5: "},
		"a field twice":   {"1", "p.yaml", head + "spec:\n  mode: Warn\n  mode: Audit\n", "ConfigMap ns/cm, key p.yaml: error converting YAML to JSON: yaml: "},
		"a module twice":  {"1", "p.yaml", head + "spec: {modules: [{name: a.rego, source: x}, {name: a.rego, source: y}]}\n", "ConfigMap ns/cm, key p.yaml: "},
		"another build":   {"1", "p.yaml", head + "spec: {modules: [{name: a.rego, source: \"" + reference("package a") + "\"}]}\n", "ConfigMap ns/cm, key p.yaml: spec.modules.a.rego: this program does not contain the file sha256:"},
		"no release":      {"", "p.yaml", head, "ConfigMap ns/cm: annotation sallyport.dev/release must be the version of the release"},
		"an odd release":  {"reset", "p.yaml", head, "ConfigMap ns/cm: annotation sallyport.dev/release must be the version of the release"},
		"nothing at all":  {"1", "p.yaml", "", "ConfigMap ns/cm, key p.yaml: apiVersion and kind must be"},
		"two documents":   {"1", "p.yaml", head + "---\n" + head, "ConfigMap ns/cm, key p.yaml: must be a single YAML document"},
		"what is correct": {"1", "p.yaml", head, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Read(configMap(tc.release, map[string]string{tc.key: tc.text}), nil)
			if tc.want == "" && err == nil {
				return
			}
			if err == nil || !strings.HasPrefix(err.Error(), tc.want) || tc.want == "" {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

// A reference stands for the file that was referred to, and Rego that is written out stays as it is.
func TestReferencesAreResolved(t *testing.T) {
	shipped := shipped.Policies(t)
	sources := NewSources(shipped)
	want := shipped[len(shipped)-1]
	want.Spec.Modules = append(want.Spec.Modules, v1alpha1.PolicyModule{Name: "helper.rego", Source: "package helper"})
	referring := want.DeepCopy()
	Refer(referring)
	referring.Spec.Modules[len(referring.Spec.Modules)-1].Source = "package helper"
	text, err := yaml.Marshal(referring)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "deny contains") {
		t.Errorf("there is Rego in what refers to it:\n%s", text)
	}
	got, err := ReadPolicy(configMap("1", map[string]string{want.Name + ".yaml": string(text)}), want.Name, sources)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.Spec.Modules, got.Spec.Modules); diff != "" {
		t.Errorf("modules (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want.Spec.Tests, got.Spec.Tests); diff != "" {
		t.Errorf("tests (-want +got):\n%s", diff)
	}
}
