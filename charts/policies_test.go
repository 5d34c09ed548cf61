package charts_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/open-policy-agent/opa/v1/format"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/charts"
	"sallyport.dev/sallyport/cmd/sallyport/bundled"
	"sallyport.dev/sallyport/test/support/shipped"
)

// configured gives the policies that the chart ships with values, by name, with the Rego that it refers to.
func configured(t *testing.T, text string) map[string]*v1alpha1.RegoPolicy {
	t.Helper()
	all := map[string]*v1alpha1.RegoPolicy{}
	sources, err := bundled.Sources()
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range rendered[corev1.ConfigMap](t, render(t, text), "ConfigMap", "sallyport-policies").Data {
		policy := &v1alpha1.RegoPolicy{}
		if err := yaml.UnmarshalStrict([]byte(value), policy); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		if key != policy.Name+".yaml" {
			t.Errorf("policy %s has the key %s", policy.Name, key)
		}
		for i, m := range policy.Spec.Modules {
			policy.Spec.Modules[i].Source = cmp.Or(sources[m.Source], m.Source)
		}
		for i, m := range policy.Spec.Tests {
			policy.Spec.Tests[i].Source = cmp.Or(sources[m.Source], m.Source)
		}
		all[policy.Name] = policy
	}
	return all
}

// formatted gives a policy with its Rego as opa fmt would write it.
func formatted(t *testing.T, policy *v1alpha1.RegoPolicy) *v1alpha1.RegoPolicy {
	t.Helper()
	policy = policy.DeepCopy()
	tidy := func(name string, source *string) {
		text, err := format.Source(name, []byte(*source))
		if err != nil {
			t.Fatal(err)
		}
		*source = string(text)
	}
	for i := range policy.Spec.Modules {
		tidy(policy.Spec.Modules[i].Name, &policy.Spec.Modules[i].Source)
	}
	for i := range policy.Spec.Tests {
		tidy(policy.Spec.Tests[i].Name, &policy.Spec.Tests[i].Source)
	}
	return policy
}

// With all features the chart ships the policies as they are in the source, but for how their Rego is indented. By default it does not ship
// those that match or read kinds that the cluster may not have.
func TestShippedPoliciesAreTheSource(t *testing.T) {
	all := configured(t, `{diskImages: {enabled: true}, policies: {kubevirt-definitions: {enabled: true}, kubevirt-machines: {enabled: true}, kubevirt-pools: {enabled: true}, machines-running: {enabled: true}, windows: {enabled: true}}}`)
	byDefault := configured(t, "")
	optional := slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(name string) bool { return byDefault[name] != nil })
	if want := []string{"images-children", "kubevirt-definitions", "kubevirt-machines", "kubevirt-pools", "machines-running", "windows"}; !slices.Equal(optional, want) {
		t.Errorf("by default it does not ship %v, want %v", optional, want)
	}
	shipped := shipped.Policies(t)
	if len(all) != len(shipped) {
		t.Errorf("it ships %v, and there are %d", slices.Sorted(maps.Keys(all)), len(shipped))
	}
	for i := range shipped {
		want := formatted(t, &shipped[i])
		got := all[want.Name]
		if got == nil {
			t.Errorf("it does not ship %s", want.Name)
			continue
		}
		for _, module := range got.Spec.Modules {
			if strings.Contains(module.Source, "\t") {
				t.Errorf("%s: tabs make kubectl edit show one long line", module.Name)
			}
		}
		got = formatted(t, got)
		// As text, parameters may differ by the order of their keys.
		if diff := gocmp.Diff(decoded(t, want), decoded(t, got)); diff != "" {
			t.Errorf("%s (-source +shipped):\n%s", want.Name, diff)
		}
	}
	version := rendered[corev1.ConfigMap](t, render(t, ""), "ConfigMap", "sallyport-policies").Annotations["sallyport.dev/release"]
	if version != chartVersion(t) {
		t.Errorf("the ConfigMap is of release %q", version)
	}
}

func chartVersion(t *testing.T) string {
	t.Helper()
	text, err := charts.Files.ReadFile("sallyport/Chart.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var about struct{ Version string }
	if err := yaml.Unmarshal(text, &about); err != nil {
		t.Fatal(err)
	}
	return about.Version
}

// decoded gives an object as maps and lists.
func decoded(t *testing.T, object any) map[string]any {
	t.Helper()
	text, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]any{}
	if err := yaml.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// at gives what is at a path.
func at(value any, path ...string) any {
	for _, key := range path {
		fields, _ := value.(map[string]any)
		value = fields[key]
	}
	return value
}

func TestValuesChangePolicies(t *testing.T) {
	const changes = `
policies:
  defaults: null
  servers-tenancy: {mode: null, onError: null, match: null, modules: null, tests: null, parameters: null}
  operations-applicability:
    mode: Audit
    namespaceModes: [{mode: Enforce, namespaceSelector: {matchLabels: {stage: test}}}, {mode: Warn, namespaceSelector: {}}]
    override: Nobody
    match:
      resources: [{apiGroups: [""], apiVersions: ["*"], resources: [pods], operations: [DELETE]}]
      namespaceSelector: {matchLabels: {a: b}}
      excludeNamespaces: [quiet]
      excludeUsers: [u]
      excludeGroups: [g]
    parameters: {runPolicies: none, phases: {Running: {deep: [a]}}}
  operations-supersede:
    onError: Allow
    timeoutMilliseconds: 300
    parameters:
      supersededBy: {Stop: [Start], Restart: [], Migrate: 0, Evict: false, Migrate force: {a: b}, Evict force: null}
      added: {deep: {a: 1}}
      digits: 1234567890
      version: "1.10"
      text: "a\n\tb\n\n"
      example.com/a: b
`
	list := func(words ...any) any { return append([]any{}, words...) }
	before, after := configured(t, ""), configured(t, changes)
	for _, untouched := range []string{"defaults", "servers-tenancy", "lib-operations"} {
		if diff := gocmp.Diff(before[untouched], after[untouched]); diff != "" {
			t.Errorf("%s changed:\n%s", untouched, diff)
		}
	}
	for _, test := range []struct {
		what, policy, path string // as in a/b/c
		want               any
	}{
		{"mode", "operations-applicability", "mode", "Audit"},
		{"modes by namespace", "operations-applicability", "namespaceModes", list(
			map[string]any{"mode": "Enforce", "namespaceSelector": map[string]any{"matchLabels": map[string]any{"stage": "test"}}},
			map[string]any{"mode": "Warn", "namespaceSelector": map[string]any{}},
		)},
		{"who may override it", "operations-applicability", "override", "Nobody"},
		{"onError beside it", "operations-applicability", "onError", "Deny"},
		{"resources", "operations-applicability", "match/resources", list(map[string]any{
			"apiGroups": list(""), "apiVersions": list("*"), "resources": list("pods"), "operations": list("DELETE"),
		})},
		{"labels of namespaces", "operations-applicability", "match/namespaceSelector/matchLabels/a", "b"},
		{"excluded namespaces", "operations-applicability", "match/excludeNamespaces", list("quiet")},
		{"excluded users", "operations-applicability", "match/excludeUsers", list("u")},
		{"excluded groups", "operations-applicability", "match/excludeGroups", list("g")},
		{"a map by a text", "operations-applicability", "parameters/runPolicies", "none"},
		{"a list by a map", "operations-applicability", "parameters/phases/Running/deep", list("a")},
		{"onError", "operations-supersede", "onError", "Allow"},
		{"timeout", "operations-supersede", "timeoutMilliseconds", 300.0},
		{"what is beside it stays", "operations-supersede", "parameters/supersededBy/Start", list("Stop", "Stop force")},
		{"a list by a list", "operations-supersede", "parameters/supersededBy/Stop", list("Start")},
		{"by an empty one", "operations-supersede", "parameters/supersededBy/Restart", list()},
		{"by zero", "operations-supersede", "parameters/supersededBy/Migrate", 0.0},
		{"by false", "operations-supersede", "parameters/supersededBy/Evict", false},
		{"by a map", "operations-supersede", "parameters/supersededBy/Migrate force/a", "b"},
		{"null removes", "operations-supersede", "parameters/supersededBy/Evict force", nil},
		{"a map is added", "operations-supersede", "parameters/added/deep/a", 1.0},
		{"a number with many digits", "operations-supersede", "parameters/digits", 1234567890.0},
		{"a text that looks like a number", "operations-supersede", "parameters/version", "1.10"},
		{"a text of several lines", "operations-supersede", "parameters/text", "a\n\tb\n\n"},
	} {
		if diff := gocmp.Diff(test.want, at(decoded(t, after[test.policy])["spec"], strings.Split(test.path, "/")...)); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", test.what, test.path, diff)
		}
	}
	if got := at(decoded(t, after["operations-supersede"]), "spec", "parameters", "example.com/a"); got != "b" {
		t.Errorf("a key with a dot and a slash: %v", got)
	}
}

func TestPolicyThatIsNotEnabledIsNotShipped(t *testing.T) {
	if got := configured(t, "policies: {servers-tenancy: {enabled: false, mode: Warn}}"); got["servers-tenancy"] != nil {
		t.Error("it is shipped")
	}
	if got := configured(t, "policies: {servers-tenancy: {enabled: true}}"); got["servers-tenancy"] == nil {
		t.Error("it is not shipped")
	}
}

func TestRegoIsReplacedByName(t *testing.T) {
	all := configured(t, `
policies:
  operations-supersede:
    modules: [{name: supersede.rego, source: "package a"}, {name: more.rego, source: "package b"}, {name: another.rego, source: "package c"}]
    tests: [{name: supersede_test.rego, source: "package a_test"}]
  lib-operations:
    modules: [{name: operations.rego, source: "package d"}]
`)
	spec := all["operations-supersede"].Spec
	want := []v1alpha1.PolicyModule{{Name: "supersede.rego", Source: "package a"}, {Name: "another.rego", Source: "package c"}, {Name: "more.rego", Source: "package b"}}
	if diff := gocmp.Diff(want, spec.Modules); diff != "" {
		t.Errorf("modules (-want +got):\n%s", diff)
	}
	if diff := gocmp.Diff([]v1alpha1.PolicyTest{{Name: "supersede_test.rego", Source: "package a_test"}}, spec.Tests); diff != "" {
		t.Errorf("tests (-want +got):\n%s", diff)
	}
	if got := all["lib-operations"].Spec.Modules; len(got) != 1 || got[0].Source != "package d" {
		t.Errorf("modules of the library: %+v", got)
	}
}

// Who is excluded is excluded from every policy that can refuse, beside whom the policy itself excludes.
func TestExclusions(t *testing.T) {
	all := configured(t, `
exclusions: {namespaces: [quiet], users: [robot], groups: [admins, admins-too]}
policies: {operations-supersede: {match: {excludeUsers: [other, robot]}}}
`)
	for name, policy := range all {
		match := policy.Spec.Match
		if policy.Spec.Library {
			continue
		}
		want := *match.DeepCopy()
		want.ExcludeNamespaces, want.ExcludeUsers, want.ExcludeGroups = []string{"quiet"}, []string{"robot"}, []string{"admins", "admins-too"}
		switch name {
		case "operations-supersede":
			want.ExcludeUsers = []string{"other", "robot"}
		case "machines-access", "machines-secrets": // Sallyport creates what the author of a pool may create
			want.ExcludeUsers = []string{"system:serviceaccount:" + namespace + ":sallyport", "robot"}
		case "defaults", // refuses nothing, and without it an operation would not be carried out
			"policies-self": // or who is excluded could rewrite every policy
			want.ExcludeNamespaces, want.ExcludeUsers, want.ExcludeGroups = nil, nil, nil
		}
		if diff := gocmp.Diff(want, *match); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// The account of the release, whatever its name, may delete Pods that somebody has protected, so that machines can be moved.
func TestOwnAccountDeletesPods(t *testing.T) {
	for values, account := range map[string]string{"": "sallyport", "serviceAccount: {name: mover}": "mover"} {
		var parameters struct {
			Exempt []struct{ Resources, Users []string }
		}
		if err := yaml.Unmarshal(configured(t, values)["deletion-protected"].Spec.Parameters.Raw, &parameters); err != nil {
			t.Fatal(err)
		}
		var may []string
		for _, row := range parameters.Exempt {
			if slices.Contains(row.Users, "system:serviceaccount:"+namespace+":"+account) {
				may = append(may, row.Resources...)
			}
		}
		if !slices.Equal(may, []string{"pods"}) {
			t.Errorf("%q: the account %s may delete protected %v, want pods", values, account, may)
		}
	}
}

// A mode for all is that of each policy that sets none, except of those without which the gate itself does not work.
func TestModeOfAllPolicies(t *testing.T) {
	all := configured(t, `policies: {defaultMode: Warn, defaultNamespaceModes: [{mode: Enforce, namespaceSelector: {}}], servers-tenancy: {mode: Audit, namespaceModes: []}}`)
	for name, p := range all {
		want, namespaces := v1alpha1.ModeWarn, 1
		switch {
		case p.Spec.Library, name == "defaults", name == "policies-self":
			want, namespaces = p.Spec.Mode, 0
			if want != "" && want != v1alpha1.ModeEnforce {
				t.Errorf("%s has mode %s", name, want)
			}
		case name == "servers-tenancy":
			want, namespaces = v1alpha1.ModeAudit, 0
		}
		if p.Spec.Mode != want || len(p.Spec.NamespaceModes) != namespaces {
			t.Errorf("%s has mode %s and modes %v", name, p.Spec.Mode, p.Spec.NamespaceModes)
		}
	}
}

// Replicas that run while a release becomes read-only follow the annotation of the configuration.
func TestReadOnlyIsAnnotated(t *testing.T) {
	for _, readOnly := range []bool{true, false} {
		c := rendered[admissionregistrationv1.ValidatingWebhookConfiguration](t, render(t, fmt.Sprintf("readOnly: %t", readOnly)), "ValidatingWebhookConfiguration", "sallyport-policies")
		if got := c.Annotations[v1alpha1.AnnotationReadOnly] == "true"; got != readOnly {
			t.Errorf("readOnly %t: annotated are %v", readOnly, c.Annotations)
		}
	}
}
