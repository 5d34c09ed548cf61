package policies

import (
	"encoding/json"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"sallyport.dev/sallyport/api/v1alpha1"
)

func TestShipped(t *testing.T) {
	policies, err := Shipped()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range policies {
		names = append(names, p.Name)
		if len(p.Spec.Modules) == 0 || len(p.Spec.Tests) != len(p.Spec.Modules) {
			t.Errorf("%s has %d modules and %d tests, want one for each", p.Name, len(p.Spec.Modules), len(p.Spec.Tests))
		}
	}
	want := []string{"lib-hosts", "lib-machines", "lib-operations", "lib-override", "lib-quantity", "lib-schedule", "lib-shell", "lib-templates", "lib-tenants", "defaults", "deletion-cascade", "deletion-definitions", "deletion-protected", "deletion-references", "images-children", "images-references", "images-sources", "kubevirt-definitions", "kubevirt-machines", "kubevirt-pools", "machines-abandon", "machines-access", "machines-disks", "machines-eviction", "machines-running", "machines-secrets", "operations-applicability", "operations-copies", "operations-supersede", "placement-migration", "policies-self", "pools-scale-down", "scaling-guard", "servers-quota", "servers-tenancy", "templates-release", "templates-tenancy", "windows"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

// What is embedded is chosen by patterns, which a deeper directory would escape.
func TestShippedIsTheWholeTree(t *testing.T) {
	onDisk, err := loadTree(os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	embedded, err := Shipped()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(onDisk, embedded); diff != "" {
		t.Errorf("on disk (-) and embedded (+) differ:\n%s", diff)
	}
}

// What shipped policies read of kinds that are not Sallyport's, only they may read, but for Namespaces. So only with the right to override
// them can their Rego be changed.
func TestReadsOfShippedPoliciesAreReserved(t *testing.T) {
	policies, err := Shipped()
	if err != nil {
		t.Fatal(err)
	}
	reads, reserved := map[string]bool{}, map[string]bool{}
	for _, p := range policies {
		for _, r := range p.Spec.Reads {
			if kind := r.APIVersion + "/" + r.Kind; !strings.HasPrefix(kind, v1alpha1.GroupName+"/") && kind != "v1/Namespace" {
				reads[kind] = true
			}
		}
		if p.Name != "policies-self" {
			continue
		}
		var parameters struct{ Reserved []string }
		if err := json.Unmarshal(p.Spec.Parameters.Raw, &parameters); err != nil {
			t.Fatal(err)
		}
		for _, kind := range parameters.Reserved {
			reserved[kind] = true
		}
	}
	if diff := cmp.Diff(reads, reserved); diff != "" {
		t.Errorf("kinds that shipped policies read (-) and parameters.reserved of policies-self (+):\n%s", diff)
	}
}

// The shipped parameters are read by every request, but the Rego tests never see them.
func TestShippedParameters(t *testing.T) {
	policies, err := Shipped()
	if err != nil {
		t.Fatal(err)
	}
	gentle := []string{"Stop", "Stop force", "Restart", "Restart force"}
	moves := []string{"Migrate", "Migrate force", "Evict", "Evict force"}
	all := append(append([]string{"Start"}, gentle...), moves...)
	want := map[string]map[string]map[string][]string{
		"operations-supersede": {"supersededBy": {
			"Start": {"Stop", "Stop force"},
			"Stop":  {"Stop force", "Restart force"}, "Stop force": {},
			"Restart": {"Stop force", "Restart force"}, "Restart force": {},
			"Migrate": gentle, "Migrate force": gentle, "Evict": gentle, "Evict force": gentle,
		}},
		"operations-applicability": {
			"runPolicies": {
				"AlwaysOn":                      append([]string{"Restart", "Restart force"}, moves...),
				"AlwaysOnUnlessStoppedManually": all,
				"Manual":                        all,
				"AlwaysOff":                     {},
				"Observe":                       {},
			},
			"phases": {
				"Pending": {"Stop", "Stop force", "Restart force"}, "WaitingForImage": {"Stop", "Stop force", "Restart force"},
				"Provisioning": {},
				"Stopped":      {"Start", "Stop", "Stop force", "Restart force"},
				"Starting":     gentle,
				"Running":      append(append([]string{}, gentle...), moves...),
				"Degraded":     gentle,
				"Stopping":     {"Start", "Stop force", "Restart force"},
				"Migrating":    gentle,
				"Paused":       {"Start", "Stop force", "Restart force"},
				"Failed":       {"Stop", "Stop force"}, "Terminating": {},
			},
		},
	}
	got := map[string]map[string]map[string][]string{}
	for _, p := range policies {
		if want[p.Name] == nil && p.Spec.ParametersSchema != nil { // which holds them against a schema
			continue
		}
		if p.Spec.Parameters == nil {
			continue
		}
		var parameters map[string]map[string][]string
		if err := json.Unmarshal(p.Spec.Parameters.Raw, &parameters); err != nil {
			t.Fatalf("%s: %v", p.Name, err)
		}
		got[p.Name] = parameters
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("parameters (-want +got):\n%s", diff)
	}
}

const good = `apiVersion: sallyport.dev/v1alpha1
kind: RegoPolicy
metadata: {name: team-quota}
spec: {package: acme.team.quota, match: {resources: []}}
`

func tree(files map[string]string) fs.FS {
	fsys := fstest.MapFS{}
	for name, text := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return fsys
}

// loadTree gives the policies of a tree that need not be on the disk.
func loadTree(fsys fs.FS) ([]v1alpha1.RegoPolicy, error) {
	loaded, _, err := load(fsys, "", checkPackage)
	return loaded, err
}

func TestLoad(t *testing.T) {
	library := strings.NewReplacer("team-quota", "zzz", "acme.team.quota", "sallyport.lib.zzz", "match: {resources: []}", "library: true").Replace(good)
	policies, err := loadTree(tree(map[string]string{
		"team/quota/policy.yaml":     good,
		"team/quota/quota.rego":      "package acme.team.quota",
		"team/quota/limits.rego":     "package acme.team.quota.limits",
		"team/quota/quota_test.rego": "package acme.team.quota_test",
		"zzz/policy.yaml":            library,
		"zzz/zzz.rego":               "package sallyport.lib.zzz",
		"README.md":                  "not Rego",
		".regal/rules/own.rego":      "package custom.regal.rules",
	}))
	if err != nil {
		t.Fatal(err)
	}
	if len(policies) != 2 || policies[0].Name != "zzz" || policies[1].Name != "team-quota" {
		t.Fatalf("got %d policies, want the library zzz and then team-quota", len(policies))
	}
	want := v1alpha1.RegoPolicySpec{
		Package: "acme.team.quota",
		Match:   &v1alpha1.PolicyMatch{Resources: []v1alpha1.PolicyResources{}},
		Modules: []v1alpha1.PolicyModule{
			{Name: "limits.rego", Source: "package acme.team.quota.limits"},
			{Name: "quota.rego", Source: "package acme.team.quota"},
		},
		Tests: []v1alpha1.PolicyTest{{Name: "quota_test.rego", Source: "package acme.team.quota_test"}},
	}
	if diff := cmp.Diff(want, policies[1].Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
}

func TestLoadAtTheRoot(t *testing.T) {
	policies, err := loadTree(tree(map[string]string{"policy.yaml": good, "quota.rego": "package acme.team.quota"}))
	if err != nil || len(policies) != 1 {
		t.Fatalf("got %d policies and error %v, want one", len(policies), err)
	}
}

func TestLoadErrors(t *testing.T) {
	const rego = "package acme.team.quota"
	for name, tc := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"empty directory": {
			want: []string{"no policy.yaml found"},
		},
		"misspelled field": {
			files: map[string]string{"team/quota/policy.yaml": strings.Replace(good, "match:", "macth:", 1), "team/quota/quota.rego": rego},
			want:  []string{"team/quota/policy.yaml: ", `unknown field "macth"`},
		},
		"field given twice": {
			files: map[string]string{"team/quota/policy.yaml": good + "kind: RegoPolicy\n", "team/quota/quota.rego": rego},
			want:  []string{"team/quota/policy.yaml: ", `"kind" already set`},
		},
		"another kind": {
			files: map[string]string{"team/quota/policy.yaml": strings.Replace(good, "RegoPolicy", "ConfigMap", 1), "team/quota/quota.rego": rego},
			want:  []string{"team/quota/policy.yaml: apiVersion and kind must be sallyport.dev/v1alpha1 and RegoPolicy"},
		},
		"no name": {
			files: map[string]string{"team/quota/policy.yaml": strings.Replace(good, "name: team-quota", "", 1), "team/quota/quota.rego": rego},
			want:  []string{"team/quota/policy.yaml: metadata.name is missing"},
		},
		"Rego without a policy": {
			files: map[string]string{"team/quota/policy.yaml": good, "team/quota/quota.rego": rego, "team/lost.rego": "package acme.team"},
			want:  []string{"team/lost.rego: no policy.yaml in the same directory"},
		},
		"policy without Rego": {
			files: map[string]string{"team/quota/policy.yaml": good, "team/quota/quota_test.rego": rego + "_test"},
			want:  []string{"team/quota/policy.yaml: no Rego module in the same directory"},
		},
		"policy with modules of its own": {
			files: map[string]string{
				"team/quota/policy.yaml": strings.Replace(good, "match:", "modules: [{name: a.rego, source: a}], match:", 1),
				"team/quota/quota.rego":  rego,
			},
			want: []string{"team/quota/policy.yaml: spec.modules and spec.tests must not be set"},
		},
		"package of another directory": {
			files: map[string]string{"team/limits/policy.yaml": good, "team/limits/quota.rego": rego},
			want:  []string{"team/limits/policy.yaml: spec.package is acme.team.quota, but must end in team.limits"},
		},
		"package that only ends in the same letters": {
			files: map[string]string{"am/quota/policy.yaml": good, "am/quota/quota.rego": rego},
			want:  []string{"am/quota/policy.yaml: spec.package is acme.team.quota, but must end in am.quota"},
		},
		"one name for two policies, and another problem": {
			files: map[string]string{
				"a/team/quota/policy.yaml": strings.Replace(good, "acme.team", "a.team", 1), "a/team/quota/quota.rego": rego,
				"b/team/quota/policy.yaml": strings.Replace(good, "acme.team", "b.team", 1), "b/team/quota/quota.rego": rego,
				"c/policy.yaml": good, "c/quota.rego": rego,
			},
			want: []string{
				"b/team/quota/policy.yaml: metadata.name team-quota is already used in a/team/quota/policy.yaml",
				"c/policy.yaml: spec.package is acme.team.quota",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := loadTree(tree(tc.files))
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
}

func TestShippedNames(t *testing.T) {
	for name, tc := range map[string]struct{ dir, name, pkg, want string }{
		"as the directory": {"operations/supersede", "operations-supersede", "sallyport.operations.supersede", ""},
		"another prefix":   {"operations/supersede", "operations-supersede", "acme.operations.supersede", "spec.package is acme.operations.supersede, but must be sallyport.operations.supersede"},
		"with a dash":      {"pools/scaledown", "pools-scale-down", "sallyport.pools.scaledown", ""},
		"another name":     {"operations/supersede", "supersede", "sallyport.operations.supersede", "metadata.name is supersede, but must be operations-supersede"},
	} {
		t.Run(name, func(t *testing.T) {
			policy := &v1alpha1.RegoPolicy{}
			policy.Name, policy.Spec.Package = tc.name, tc.pkg
			got := ""
			if err := checkShipped(tc.dir, policy); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
