package catalog

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/engine"
)

// modeOf is an entry of spec.namespaceModes for the namespaces of a team; "*" means all.
func modeOf(team string, mode v1alpha1.PolicyMode) v1alpha1.NamespaceMode {
	m := v1alpha1.NamespaceMode{Mode: mode}
	if team != "*" {
		m.NamespaceSelector.MatchLabels = map[string]string{"team": team}
	}
	return m
}

// unclear is an entry whose selector nobody can use.
func unclear(mode v1alpha1.PolicyMode) v1alpha1.NamespaceMode {
	return v1alpha1.NamespaceMode{Mode: mode, NamespaceSelector: metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}},
	}}
}

// The first entry that selects the namespace counts, and spec.mode where none does.
func TestModeByNamespace(t *testing.T) {
	blueWarns := []v1alpha1.NamespaceMode{modeOf("blue", "Warn"), modeOf("red", "Audit"), modeOf("blue", "Audit")}
	gone := namespaces{err: errors.New("gone")}
	update := request("apps", "v1", "deployments", "", "UPDATE")
	clusterScoped := request("apps", "v1", "deployments", "", "UPDATE")
	clusterScoped.Namespace = ""
	newNamespace := request("", "v1", "namespaces", "", "CREATE")
	newNamespace.Object = runtime.RawExtension{Raw: []byte(`{"metadata": {"name": "ns", "labels": {"team": "blue"}}}`)}
	for name, tc := range map[string]struct {
		mode    v1alpha1.PolicyMode
		entries []v1alpha1.NamespaceMode
		request *admissionv1.AdmissionRequest
		reader  namespaces
		want    v1alpha1.PolicyMode
		fails   bool
	}{
		"the first that selects":     {"Enforce", blueWarns, update, namespaces{cached: labelled("blue")}, "Warn", false},
		"the second":                 {"Enforce", blueWarns, update, namespaces{cached: labelled("red")}, "Audit", false},
		"none":                       {"Enforce", blueWarns, update, namespaces{cached: labelled("green")}, "Enforce", false},
		"none, tried out":            {"Audit", blueWarns, update, namespaces{cached: labelled("green")}, "Audit", false},
		"stricter in one namespace":  {"Audit", []v1alpha1.NamespaceMode{modeOf("blue", "Enforce")}, update, namespaces{cached: labelled("blue")}, "Enforce", false},
		"not in the cache yet":       {"Enforce", blueWarns, update, namespaces{live: labelled("blue")}, "Warn", false},
		"a namespace without labels": {"Enforce", blueWarns, update, namespaces{cached: map[string]any{"ns": map[string]any{}}}, "Enforce", false},
		"all namespaces, unread":     {"Enforce", []v1alpha1.NamespaceMode{modeOf("*", "Warn")}, update, gone, "Warn", false},
		"none, unread":               {"Audit", nil, update, gone, "Audit", false},
		"cluster-scoped":             {"Enforce", []v1alpha1.NamespaceMode{modeOf("*", "Warn")}, clusterScoped, gone, "Enforce", false},
		"a namespace being made":     {"Enforce", blueWarns, newNamespace, namespaces{}, "Warn", false},
		"unreadable, one is strict":  {"Audit", []v1alpha1.NamespaceMode{modeOf("blue", "Warn"), modeOf("red", "Enforce")}, update, gone, "Enforce", true},
		"unreadable, spec is strict": {"Enforce", blueWarns, update, gone, "Enforce", true},
		"unreadable, none is strict": {"Audit", []v1alpha1.NamespaceMode{modeOf("blue", "Warn")}, update, gone, "Warn", true},
	} {
		t.Run(name, func(t *testing.T) {
			p := policy("p", "apps/v1/deployments UPDATE", "/v1/namespaces CREATE")
			p.Spec.Mode, p.Spec.NamespaceModes = tc.mode, tc.entries
			selected := mustCompile(t, p).Select(t.Context(), tc.request, tc.reader)
			if len(selected) != 1 || selected[0].Mode != tc.want || (selected[0].Err != nil) != tc.fails {
				t.Errorf("got %+v, want mode %s", selected, tc.want)
			}
		})
	}
}

// CVE-2025-46342, a lookup that failed taken for a selector that does not match: what cannot be read is neither a namespace
// without labels nor a reason to let pass.
func TestSwallowedLookupErrorDoesNotLoosenTheMode(t *testing.T) {
	p := policy("p", "apps/v1/deployments UPDATE")
	p.Spec.Mode, p.Spec.NamespaceModes = "Audit", []v1alpha1.NamespaceMode{modeOf("blue", "Enforce")}
	selected := mustCompile(t, p).Select(t.Context(), request("apps", "v1", "deployments", "", "UPDATE"), namespaces{err: errors.New("gone")})
	if len(selected) != 1 || selected[0].Err == nil || selected[0].Mode != v1alpha1.ModeEnforce {
		t.Errorf("got %+v", selected)
	}
}

// counted counts how often it is asked.
type counted struct {
	namespaces
	times *int
}

func (c counted) Read(ctx context.Context, q engine.Query) (engine.Answer, error) {
	*c.times++
	return c.namespaces.Read(ctx, q)
}

// All policies judge by the same labels, whenever they change.
func TestLabelsAreReadOnceForARequest(t *testing.T) {
	var all []v1alpha1.RegoPolicy
	for _, name := range []string{"a", "b", "c"} {
		p := policy(name, "apps/v1/deployments UPDATE")
		p.Spec.Match.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "blue"}}
		p.Spec.NamespaceModes = []v1alpha1.NamespaceMode{modeOf("red", "Audit"), modeOf("blue", "Warn")}
		all = append(all, p)
	}
	times := 0
	reader := counted{namespaces{cached: labelled("blue")}, &times}
	selected := mustCompile(t, all...).Select(t.Context(), request("apps", "v1", "deployments", "", "UPDATE"), reader)
	if len(selected) != 3 || selected[2].Mode != v1alpha1.ModeWarn || times != 1 {
		t.Errorf("got %+v, and asked %d times", selected, times)
	}
}

func TestNamespaceModesReadNamespaces(t *testing.T) {
	p := policy("p", "apps/v1/deployments UPDATE")
	for name, tc := range map[string]struct {
		entries []v1alpha1.NamespaceMode
		reads   int
	}{
		"none":           {nil, 0},
		"all namespaces": {[]v1alpha1.NamespaceMode{modeOf("*", "Warn")}, 0},
		"some":           {[]v1alpha1.NamespaceMode{modeOf("*", "Warn"), modeOf("blue", "Warn")}, 1},
	} {
		p.Spec.NamespaceModes = tc.entries
		if reads := mustCompile(t, p).Reads(); len(reads) != tc.reads || tc.reads == 1 && reads[0].Kind != "Namespace" {
			t.Errorf("%s: the set reads %v", name, reads)
		}
	}
}

func TestUnusableNamespaceModesDoNotCompile(t *testing.T) {
	p := policy("p", "apps/v1/deployments UPDATE")
	p.Spec.NamespaceModes = []v1alpha1.NamespaceMode{modeOf("blue", "Warn"), unclear("Audit")}
	const want = "policy p: spec.namespaceModes[1].namespaceSelector: "
	if _, err := Compile([]v1alpha1.RegoPolicy{p}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v", err)
	}
	if err := Sources([]v1alpha1.RegoPolicy{p})[0].Check(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v", err)
	}
}

// The object of a broken policy says in which modes its last good revision decides.
func TestNamespaceModesOfABrokenObjectDecide(t *testing.T) {
	list := func(entries ...v1alpha1.NamespaceMode) []v1alpha1.NamespaceMode { return entries }
	type modes struct{ blue, red v1alpha1.PolicyMode }
	for name, tc := range map[string]struct {
		mode   v1alpha1.PolicyMode
		was    []v1alpha1.NamespaceMode
		is     []v1alpha1.NamespaceMode
		isMode v1alpha1.PolicyMode
		want   modes
	}{
		"nothing":                         {"Enforce", list(modeOf("blue", "Warn")), list(modeOf("blue", "Warn")), "Enforce", modes{"Warn", "Enforce"}},
		"a namespace let go":              {"Enforce", nil, list(modeOf("blue", "Audit")), "Enforce", modes{"Audit", "Enforce"}},
		"another namespace let go":        {"Enforce", list(modeOf("blue", "Warn")), list(modeOf("red", "Warn")), "Enforce", modes{"Enforce", "Warn"}},
		"entries taken out":               {"Enforce", list(modeOf("blue", "Warn")), nil, "Enforce", modes{"Enforce", "Enforce"}},
		"entries taken out, let all go":   {"Enforce", list(modeOf("blue", "Enforce")), nil, "Audit", modes{"Audit", "Audit"}},
		"let all go but where it says so": {"Enforce", list(modeOf("blue", "Enforce")), list(modeOf("blue", "Enforce")), "Audit", modes{"Enforce", "Audit"}},
		"tightened":                       {"Warn", list(modeOf("blue", "Audit")), list(modeOf("blue", "Enforce")), "Enforce", modes{"Enforce", "Enforce"}},
		"an invalid selector":             {"Warn", list(modeOf("blue", "Enforce")), list(unclear("Warn"), modeOf("blue", "Audit")), "Audit", modes{"Enforce", "Warn"}},
	} {
		t.Run(name, func(t *testing.T) {
			good := policy("p", "apps/v1/deployments UPDATE")
			good.Spec.Mode, good.Spec.NamespaceModes = tc.mode, tc.was
			good = stored(good, "uid")
			c := &Catalog{}
			build(t, c, nil, good)
			broken := edited(good, nonsense)
			broken.Spec.Mode, broken.Spec.NamespaceModes = tc.isMode, tc.is
			got := build(t, c, nil, broken)
			got.check(t, "p", "last good", v1alpha1.ReasonCompileFailed)
			for team, want := range map[string]v1alpha1.PolicyMode{"blue": tc.want.blue, "red": tc.want.red} {
				selected := got.Select(t.Context(), request("apps", "v1", "deployments", "", "UPDATE"), namespaces{cached: labelled(team)})
				if len(selected) != 1 || selected[0].Mode != want {
					t.Errorf("%s: got %+v, want %s", team, selected, want)
				}
			}
		})
	}
}

// So does it for who may override them.
func TestOverrideOfABrokenObjectDecides(t *testing.T) {
	const nobody, users, everybody = v1alpha1.OverrideNobody, v1alpha1.OverrideUsers, v1alpha1.OverrideEverybody
	for _, tc := range []struct{ was, is, want v1alpha1.PolicyOverride }{
		{"", "", users}, {nobody, nobody, nobody}, {nobody, "", users}, {users, nobody, nobody}, {"", everybody, everybody}, {everybody, nobody, nobody},
	} {
		good := policy("p", "apps/v1/deployments UPDATE")
		good.Spec.Override = tc.was
		good = stored(good, "uid")
		c := &Catalog{}
		build(t, c, nil, good)
		broken := edited(good, nonsense)
		broken.Spec.Override = tc.is
		if got := build(t, c, nil, broken).Policy("p"); got.Override != tc.want || got.UID() != "uid" {
			t.Errorf("from %q to %q: got %s of policy %s, want %s", tc.was, tc.is, got.Override, got.UID(), tc.want)
		}
	}
}

// A policy that never was good follows what is written in it, and says how it is taken out of the way.
func TestNamespaceModesOfABrokenPolicy(t *testing.T) {
	p := policy("p", "apps/v1/deployments UPDATE")
	p = edited(stored(p, "uid"), nonsense)
	for _, tc := range []struct {
		modes     []v1alpha1.NamespaceMode
		blue, red v1alpha1.PolicyMode
	}{
		{[]v1alpha1.NamespaceMode{modeOf("blue", "Audit")}, "Audit", "Enforce"},
		{[]v1alpha1.NamespaceMode{modeOf("blue", "Audit"), unclear("Warn")}, "Enforce", "Enforce"},
	} {
		p.Spec.NamespaceModes = tc.modes
		got := build(t, &Catalog{}, nil, p)
		got.check(t, "p", "broken", v1alpha1.ReasonCompileFailed)
		for team, want := range map[string]v1alpha1.PolicyMode{"blue": tc.blue, "red": tc.red} {
			selected := got.Select(t.Context(), request("apps", "v1", "deployments", "", "UPDATE"), namespaces{cached: labelled(team)})
			if len(selected) != 1 || selected[0].Mode != want || selected[0].Err == nil ||
				!strings.Contains(selected[0].Err.Error(), "set its spec.mode to Audit and remove its spec.namespaceModes to let requests pass") {
				t.Errorf("%s: got %+v", team, selected)
			}
		}
	}
}

func TestHashTellsHowPoliciesAreEnforced(t *testing.T) {
	var hashes []string
	for _, change := range []func(*v1alpha1.RegoPolicySpec){
		func(*v1alpha1.RegoPolicySpec) {},
		func(s *v1alpha1.RegoPolicySpec) { s.Mode = "Warn" },
		func(s *v1alpha1.RegoPolicySpec) { s.Override = "Nobody" },
		func(s *v1alpha1.RegoPolicySpec) { s.NamespaceModes = []v1alpha1.NamespaceMode{modeOf("blue", "Warn")} },
		func(s *v1alpha1.RegoPolicySpec) { s.NamespaceModes = []v1alpha1.NamespaceMode{modeOf("blue", "Audit")} },
		func(s *v1alpha1.RegoPolicySpec) { s.NamespaceModes = []v1alpha1.NamespaceMode{modeOf("red", "Audit")} },
		func(s *v1alpha1.RegoPolicySpec) {
			s.NamespaceModes = []v1alpha1.NamespaceMode{modeOf("red", "Audit"), modeOf("blue", "Audit")}
		},
	} {
		p := policy("p", "apps/v1/deployments UPDATE")
		change(&p.Spec)
		hash := mustCompile(t, p).Hash()
		if slices.Contains(hashes, hash) {
			t.Errorf("two sets that decide differently have the hash %s: %+v", hash, p.Spec)
		}
		hashes = append(hashes, hash)
	}
}
