package shipping

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// second is what the second release has otherwise: something of everything that a release can change, add and drop.
func second(s *v1alpha1.RegoPolicySpec) {
	s.TimeoutMilliseconds = 3000
	s.Match.ExcludeUsers = append(s.Match.ExcludeUsers, "carl")
	module(s, "supersede.rego").Source += "\n# second\n"
	module(s, "helper.rego").Source = "# helper 2"
	s.Modules = append(s.Modules, v1alpha1.PolicyModule{Name: "new.rego", Source: "# new"})
	rows(s, func(t map[string]any) {
		t["Start"] = []any{"Stop"}
		t["Pause"] = []any{"Stop"}
		delete(t, "Evict force")
	})
	parameters(s, func(p map[string]any) { p["limits"] = map[string]any{"most": 3} })
	s.Reads = s.Reads[:1]
}

// third drops what the second release had.
func third(s *v1alpha1.RegoPolicySpec) {
	s.Modules = s.Modules[:1]
	s.Match.ExcludeUsers = []string{"carl"}
	s.Tests = nil
	rows(s, func(t map[string]any) { delete(t, "Start") })
}

// edit is what somebody does to a shipped policy.
type edit struct {
	name string
	do   func(f *fixture)
	// edited is what is said to be edited, right after the edit and after the upgrade to the second release.
	edited, then []string
	// has is what the edit makes of the second release.
	has change
}

func patched(kind, text string) func(*fixture) {
	return func(f *fixture) { f.kubectl("", "patch", "rego", f.name, "--type="+kind, "-p", text) }
}

// exported has the policy as people export it, changed, without what they leave out.
func (f *fixture) exported(how change, without ...string) string {
	f.Helper()
	out, errs, code := f.plane.Kubectl(f.Context(), "get", "rego", f.name, "-o", "yaml")
	if code != 0 {
		f.Fatal(errs)
	}
	p := &v1alpha1.RegoPolicy{}
	f.Must(yaml.Unmarshal([]byte(out), p))
	how(&p.Spec)
	for _, w := range without {
		switch w {
		case "version":
			p.ResourceVersion, p.UID, p.Generation, p.ManagedFields = "", "", 0, nil
		case "spec":
			p.Spec.Parameters = nil
		case "metadata":
			p.Labels, p.Annotations, p.ResourceVersion, p.UID = nil, nil, "", ""
		}
	}
	text, err := yaml.Marshal(p)
	f.Must(err)
	return string(text)
}

func nothing(*v1alpha1.RegoPolicySpec) {}

var edits = []edit{
	{"nobody", func(*fixture) {}, nil, nil, nothing},
	{
		"a mode is patched", patched("merge", `{"spec":{"mode":"Audit"}}`), []string{"spec.mode"}, []string{"spec.mode"},
		func(s *v1alpha1.RegoPolicySpec) { s.Mode = "Audit" },
	},
	{
		"a changing row is patched", patched("merge", `{"spec":{"parameters":{"supersededBy":{"Start":["Restart"]}}}}`),
		[]string{"spec.parameters.supersededBy.Start"}, []string{"spec.parameters.supersededBy.Start"},
		func(s *v1alpha1.RegoPolicySpec) { rows(s, func(t map[string]any) { t["Start"] = []any{"Restart"} }) },
	},
	{
		"rows are removed", patched("merge", `{"spec":{"parameters":{"supersededBy":{"Start":null,"Stop force":null}}}}`),
		[]string{"spec.parameters.supersededBy.Start", "spec.parameters.supersededBy[Stop force]"},
		[]string{"spec.parameters.supersededBy.Start", "spec.parameters.supersededBy[Stop force]"},
		func(s *v1alpha1.RegoPolicySpec) {
			rows(s, func(t map[string]any) { delete(t, "Start"); delete(t, "Stop force") })
		},
	},
	{
		"a row that the release drops is changed", patched("merge", `{"spec":{"parameters":{"supersededBy":{"Evict force":["Stop"]}}}}`),
		[]string{"spec.parameters.supersededBy[Evict force]"}, []string{"spec.parameters.supersededBy[Evict force]"},
		func(s *v1alpha1.RegoPolicySpec) {
			rows(s, func(t map[string]any) { t["Evict force"] = []any{"Stop"} })
		},
	},
	{
		"a row is added that the release adds otherwise", patched("merge", `{"spec":{"parameters":{"supersededBy":{"Pause":["Start"]}}}}`),
		[]string{"spec.parameters.supersededBy.Pause"}, []string{"spec.parameters.supersededBy.Pause"},
		func(s *v1alpha1.RegoPolicySpec) {
			rows(s, func(t map[string]any) { t["Pause"] = []any{"Start"} })
		},
	},
	{
		"a row is added that the release adds too", patched("merge", `{"spec":{"parameters":{"supersededBy":{"Pause":["Stop"]}}}}`),
		[]string{"spec.parameters.supersededBy.Pause"}, nil, nothing,
	},
	{
		"a list becomes a map that the release changes as a list",
		patched("json", `[{"op":"replace","path":"/spec/parameters/supersededBy/Start","value":{"Stop":true}}]`),
		[]string{"spec.parameters.supersededBy.Start"}, []string{"spec.parameters.supersededBy.Start"},
		func(s *v1alpha1.RegoPolicySpec) {
			rows(s, func(t map[string]any) { t["Start"] = map[string]any{"Stop": true} })
		},
	},
	{
		"the table becomes a text", patched("json", `[{"op":"replace","path":"/spec/parameters/supersededBy","value":"none"}]`),
		[]string{"spec.parameters.supersededBy"}, []string{"spec.parameters.supersededBy"},
		func(s *v1alpha1.RegoPolicySpec) { parameters(s, func(p map[string]any) { p["supersededBy"] = "none" }) },
	},
	{
		"the table is emptied", patched("json", `[{"op":"replace","path":"/spec/parameters/supersededBy","value":{}}]`),
		[]string{"spec.parameters.supersededBy"}, []string{"spec.parameters.supersededBy"},
		func(s *v1alpha1.RegoPolicySpec) {
			parameters(s, func(p map[string]any) { p["supersededBy"] = map[string]any{} })
		},
	},
	{
		"parameters are removed", patched("json", `[{"op":"remove","path":"/spec/parameters"}]`), []string{"spec.parameters"}, []string{"spec.parameters"},
		func(s *v1alpha1.RegoPolicySpec) { s.Parameters = nil },
	},
	{
		"a user is no longer excluded", patched("merge", `{"spec":{"match":{"excludeUsers":["bob"]}}}`),
		[]string{"spec.match.excludeUsers[ann]"}, []string{"spec.match.excludeUsers[ann]"},
		func(s *v1alpha1.RegoPolicySpec) { s.Match.ExcludeUsers = drop(s.Match.ExcludeUsers, "ann") },
	},
	{
		"nobody is excluded any more", patched("merge", `{"spec":{"match":{"excludeUsers":null}}}`),
		[]string{"spec.match.excludeUsers"}, []string{"spec.match.excludeUsers"},
		func(s *v1alpha1.RegoPolicySpec) { s.Match.ExcludeUsers = nil },
	},
	{
		"a user is excluded, and a module added", patched("json", `[{"op":"add","path":"/spec/match/excludeUsers/-","value":"zoe"},
			{"op":"add","path":"/spec/modules/-","value":{"name":"mine.rego","source":"# mine"}}]`),
		[]string{"spec.match.excludeUsers[zoe]", "spec.modules[mine.rego]"}, []string{"spec.match.excludeUsers[zoe]", "spec.modules[mine.rego]"},
		func(s *v1alpha1.RegoPolicySpec) {
			s.Match.ExcludeUsers = append(s.Match.ExcludeUsers, "zoe")
			s.Modules = append(s.Modules, v1alpha1.PolicyModule{Name: "mine.rego", Source: "# mine"})
		},
	},
	{
		"a module is removed", patched("json", `[{"op":"remove","path":"/spec/modules/1"}]`),
		[]string{"spec.modules[helper.rego]"}, []string{"spec.modules[helper.rego]"},
		func(s *v1alpha1.RegoPolicySpec) {
			s.Modules = slices.DeleteFunc(s.Modules, func(m v1alpha1.PolicyModule) bool { return m.Name == "helper.rego" })
		},
	},
	{
		"tests are removed, and the index of what is read", patched("json", `[{"op":"remove","path":"/spec/tests"},{"op":"remove","path":"/spec/reads/0/indexes"}]`),
		[]string{"spec.reads[sallyport.dev/v1alpha1 VirtualMachineOperation].indexes", "spec.tests"},
		[]string{"spec.reads[sallyport.dev/v1alpha1 VirtualMachineOperation].indexes", "spec.tests"},
		func(s *v1alpha1.RegoPolicySpec) { s.Tests, s.Reads[0].Indexes = nil, nil },
	},
	{
		"an edit in the editor", func(f *fixture) {
			f.Setenv("EDITOR", `sed -i -e "s/^  mode: Enforce/  mode: Warn/" -e "s/# helper/# my helper/"`)
			f.kubectl("", "edit", "rego", f.name)
		},
		[]string{"spec.mode", "spec.modules[helper.rego].source"}, []string{"spec.mode", "spec.modules[helper.rego].source"},
		func(s *v1alpha1.RegoPolicySpec) { s.Mode, module(s, "helper.rego").Source = "Warn", "# my helper" },
	},
	{
		"a changed export is applied", func(f *fixture) {
			f.kubectl(f.exported(func(s *v1alpha1.RegoPolicySpec) {
				s.Mode = "Warn"
				rows(s, func(t map[string]any) { delete(t, "Start") })
			}, "version"), "apply", "-f", "FILE")
		},
		[]string{"spec.mode"}, []string{"spec.mode"}, // the first kubectl apply removes nothing
		func(s *v1alpha1.RegoPolicySpec) { s.Mode = "Warn" },
	},
	{
		"a changed export replaces it", func(f *fixture) {
			f.kubectl(f.exported(func(s *v1alpha1.RegoPolicySpec) {
				s.Mode = "Warn"
				rows(s, func(t map[string]any) { delete(t, "Start") })
			}), "replace", "-f", "FILE")
		},
		[]string{"spec.mode", "spec.parameters.supersededBy.Start"}, []string{"spec.mode", "spec.parameters.supersededBy.Start"},
		func(s *v1alpha1.RegoPolicySpec) {
			s.Mode = "Warn"
			rows(s, func(t map[string]any) { delete(t, "Start") })
		},
	},
	{
		"a file without our labels and annotations replaces it", func(f *fixture) {
			f.kubectl(f.exported(func(s *v1alpha1.RegoPolicySpec) {
				s.Mode = "Warn"
				rows(s, func(t map[string]any) { delete(t, "Start") })
			}, "metadata"), "replace", "-f", "FILE")
		},
		[]string{"spec.mode", "spec.parameters.supersededBy.Start"},
		[]string{"spec.mode", "spec.parameters.supersededBy.Start"},
		func(s *v1alpha1.RegoPolicySpec) {
			s.Mode = "Warn"
			rows(s, func(t map[string]any) { delete(t, "Start") })
		},
	},
	{
		"another manager applies some fields", func(f *fixture) {
			f.kubectl("{apiVersion: sallyport.dev/v1alpha1, kind: RegoPolicy, metadata: {name: "+f.name+"}, spec: {mode: Warn, timeoutMilliseconds: 2000}}",
				"apply", "--server-side", "--force-conflicts", "--field-manager=gitops", "-f", "FILE")
		},
		[]string{"spec.mode"}, []string{"spec.mode", "spec.timeoutMilliseconds"},
		func(s *v1alpha1.RegoPolicySpec) { s.Mode, s.TimeoutMilliseconds = "Warn", 2000 },
	},
	{
		"another manager applies all of it", func(f *fixture) {
			f.kubectl(f.exported(nothing, "version"), "apply", "--server-side", "--field-manager=gitops", "-f", "FILE")
		},
		nil, []string{
			"spec.modules[helper.rego].source", "spec.modules[supersede.rego].source", "spec.parameters.supersededBy.Start",
			"spec.parameters.supersededBy[Evict force]", "spec.reads[sallyport.dev/v1alpha1 VirtualMachine]", "spec.timeoutMilliseconds",
		},
		func(s *v1alpha1.RegoPolicySpec) {
			// What is new comes, what is changed and dropped stays.
			s.TimeoutMilliseconds = 2000
			module(s, "helper.rego").Source = "# helper"
			m := module(s, "supersede.rego")
			m.Source = strings.TrimSuffix(m.Source, "\n# second\n")
			rows(s, func(t map[string]any) {
				t["Start"] = []any{"Stop", "Stop force"}
				t["Evict force"] = []any{"Stop", "Stop force", "Restart", "Restart force"}
			})
			s.Reads = append(s.Reads, v1alpha1.PolicyRead{
				APIVersion: "sallyport.dev/v1alpha1", Kind: "VirtualMachine", Freshness: v1alpha1.ReadCached,
			})
		},
	},
	{
		"the label is removed", patched("merge", `{"metadata":{"labels":null}}`), nil, nil, nothing,
	},
	{
		"an edit is taken back by hand", func(f *fixture) {
			patched("merge", `{"spec":{"mode":"Audit","timeoutMilliseconds":100}}`)(f)
			patched("merge", `{"spec":{"mode":"Enforce","timeoutMilliseconds":2000}}`)(f)
		},
		nil, []string{"spec.timeoutMilliseconds"},
		func(s *v1alpha1.RegoPolicySpec) { s.TimeoutMilliseconds = 2000 },
	},
}

// An upgrade changes what nobody edited, adds what is new, drops what is dropped, and leaves edits as they are.
func TestUpgradeKeepsEdits(t *testing.T) {
	for _, e := range edits {
		t.Run(e.name, func(t *testing.T) {
			f := newFixture(t)
			one, two := f.release("1.0.0"), f.release("2.0.0", second)
			f.ship(one)
			f.edited(one)
			e.do(f)
			f.edited(one, e.edited...)
			f.ship(one) // a record that is gone is put back
			f.edited(one, e.edited...)
			f.ship(two)
			f.is(two, e.has)
			f.edited(two, e.then...)
			three := f.release("3.0.0", second, third)
			f.ship(three)
			f.reset(three)
		})
	}
}

// A release that makes something else of a map does not take it from somebody who has a part of it, also not one with the same
// value: the API server would not call that a conflict.
func TestUpgradeThatChangesWhatHasParts(t *testing.T) {
	limits := func(to any) change {
		return func(s *v1alpha1.RegoPolicySpec) { parameters(s, func(p map[string]any) { p["limits"] = to }) }
	}
	for name, tc := range map[string]struct {
		theirs string
		stays  bool
	}{
		"nobody's": {"{}", false}, "the same": {"{limits: {most: 3}}", true}, "another part": {"{limits: {least: 1}}", true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			one, two := f.release("1.0.0", limits(map[string]any{"most": 3})), f.release("2.0.0", limits([]any{3}))
			f.ship(one)
			f.kubectl("{apiVersion: sallyport.dev/v1alpha1, kind: RegoPolicy, metadata: {name: "+f.name+"}, spec: {parameters: "+tc.theirs+"}}",
				"apply", "--server-side", "--field-manager=gitops", "-f", "FILE")
			f.ship(two)
			if stays := strings.Contains(string(f.policy().Spec.Parameters.Raw), `"limits":{`); stays != tc.stays {
				t.Errorf("the parameters are %s", f.policy().Spec.Parameters.Raw)
			}
			if tc.stays {
				f.edited(two, "spec.parameters.limits")
			} else {
				f.edited(two)
			}
			f.reset(two)
		})
	}
}

// is holds the spec against a release with an edit.
func (f *fixture) is(shipped *v1alpha1.RegoPolicy, edited change) {
	f.Helper()
	want := shipped.DeepCopy()
	edited(&want.Spec)
	if diff := cmp.Diff(ordered(f, want), ordered(f, f.policy())); diff != "" {
		f.Errorf("it is not as wanted (-want +got):\n%s", diff)
	}
}

// ordered gives a policy as text, without the order of lists that have none.
func ordered(f *fixture, p *v1alpha1.RegoPolicy) string {
	p = p.DeepCopy()
	slices.SortFunc(p.Spec.Modules, func(a, b v1alpha1.PolicyModule) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(p.Spec.Reads, func(a, b v1alpha1.PolicyRead) int { return strings.Compare(a.Kind, b.Kind) })
	slices.Sort(p.Spec.Match.ExcludeUsers)
	return spec(f, p)
}

// reset gives the policy back, and looks whether it is what is shipped, ours alone, and has not been anything else meanwhile.
func (f *fixture) reset(shipped *v1alpha1.RegoPolicy) {
	f.Helper()
	before := f.live()
	f.Must(Reset(f.Context(), f.api, shipped))
	live := f.live()
	want, err := fieldsOfPolicy(shipped)
	f.Must(err)
	if diff := cmp.Diff(want.content["spec"], live.Object["spec"]); diff != "" {
		f.Errorf("the spec is not what is shipped (-want +got):\n%s", diff)
	}
	if live.GetGeneration() > before.GetGeneration()+1 {
		f.Errorf("the spec was something else meanwhile: generation %d, then %d", before.GetGeneration(), live.GetGeneration())
	}
	for _, e := range live.GetManagedFields() {
		set, err := decode(&e)
		f.Must(err)
		if _, parts := below(set, fieldpath.MakePathOrDie("spec")); !ours(&e) && !parts.Empty() {
			f.Errorf("%s still holds %s", e.Manager, parts)
		}
	}
	f.edited(shipped)
	step, err := Next(live, shipped)
	if f.Must(err); step != nil {
		f.Error("there is more to do after a reset")
	}
}
