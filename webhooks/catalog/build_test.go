package catalog

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/engine"
)

// stored gives a policy what the API server does: a UID and the first generation.
func stored(p v1alpha1.RegoPolicy, uid types.UID) v1alpha1.RegoPolicy {
	p.UID, p.Generation = uid, 1
	return p
}

// lib is a library with one function, made that many minutes after the first one.
func lib(name, pkg, text string, minutes int) v1alpha1.RegoPolicy {
	age := time.Date(2026, 11, 21, 10, minutes, 0, 0, time.UTC)
	return v1alpha1.RegoPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(age)},
		Spec: v1alpha1.RegoPolicySpec{Package: pkg, Library: true, Modules: []v1alpha1.PolicyModule{
			{Name: "l.rego", Source: "package " + pkg + "\n\n" + text + "\n"},
		}},
	}
}

// importing is a policy that warns with what a library's function gives.
func importing(name, ref string) v1alpha1.RegoPolicy {
	p := policy(name, "apps/v1/deployments UPDATE")
	p.Spec.Modules[0].Source = "# METADATA\n# title: T\n# description: D\npackage toy." + name +
		"\n\nvalid_input if true\n\nwarn contains data." + ref + "(1) if true\n"
	return stored(p, types.UID("uid-"+name))
}

// edited has another text, and a higher generation.
func edited(p v1alpha1.RegoPolicy, more string) v1alpha1.RegoPolicy {
	p.Spec.Modules = append([]v1alpha1.PolicyModule(nil), p.Spec.Modules...)
	p.Spec.Modules[0].Source += more
	p.Generation++
	return p
}

const nonsense = "\nx := \n"

// built is a set with its states by name.
type built struct {
	*Set
	states map[string]State
}

func build(t *testing.T, c *Catalog, good map[string]Revision, objects ...v1alpha1.RegoPolicy) built {
	t.Helper()
	set, states := c.Build(t.Context(), objects, good)
	b := built{Set: set, states: map[string]State{}}
	for _, s := range states {
		b.states[s.Name] = s
	}
	return b
}

// compiled is the engine's policy; the same pointer means that nothing was compiled.
func (b built) compiled(t *testing.T, name string) *engine.Policy {
	t.Helper()
	p := b.Policy(name)
	if p == nil || p.Broken() != nil {
		t.Fatalf("%s does not decide: %v", name, b.states[name].Err)
	}
	return p.Policy
}

// who describes in a word what decides for a policy.
func (b built) who(name string) string {
	switch s := b.states[name]; {
	case s.LastGood:
		return "last good"
	case s.Active != nil:
		return "current"
	case b.Policy(name) != nil:
		return "broken"
	default:
		return "nobody"
	}
}

func (b built) check(t *testing.T, name, who string, problem v1alpha1.ConditionReason) {
	t.Helper()
	s := b.states[name]
	if got := b.who(name); got != who || s.Problem != problem || (s.Err == nil) != (problem == "") {
		t.Errorf("%s: %s with problem %q (%v), want %s with %q", name, got, s.Problem, s.Err, who, problem)
	}
	p := b.Policy(name)
	if (s.Active == nil) != (s.ActiveHash == "") || s.Active != nil && (p.Revision() != s.ActiveHash || p.Broken() != nil) {
		t.Errorf("%s: the set has revision %q, the state %q", name, p.Revision(), s.ActiveHash)
	}
}

// An edit compiles what it concerns and nothing else.
func TestOnlyWhatChangedIsCompiled(t *testing.T) {
	c := &Catalog{}
	one := lib("one", "sallyport.lib.one", "f(_) := \"1\"", 0)
	two := lib("two", "sallyport.lib.two", "g(x) := data.sallyport.lib.one.f(x)", 0)
	spare := lib("spare", "sallyport.lib.spare", "h(_) := \"s\"", 0)
	alone := stored(policy("alone", "apps/v1/deployments UPDATE"), "uid-alone")
	near, far := importing("near", "sallyport.lib.one.f"), importing("far", "sallyport.lib.two.g")
	names := []string{"alone", "near", "far"}
	world := map[string]v1alpha1.RegoPolicy{"one": one, "two": two, "spare": spare, "alone": alone, "near": near, "far": far}
	all := func() built {
		var objects []v1alpha1.RegoPolicy
		for _, o := range world {
			objects = append(objects, o)
		}
		return build(t, c, nil, objects...)
	}
	before := all()
	for _, step := range []struct {
		what     string
		change   func()
		compiled string
		moved    bool // the hash of the set
	}{
		{"nothing", func() {}, "", false},
		{"a policy's text", func() { world["alone"] = edited(alone, "# edited\n") }, "alone", true},
		{"a policy's tests", func() {
			p := world["alone"]
			p.Spec.Tests = []v1alpha1.PolicyTest{{Name: "x_test.rego", Source: "package x"}}
			world["alone"] = p
		}, "", false},
		{"a policy's mode", func() {
			p := world["alone"]
			p.Spec.Mode = v1alpha1.ModeAudit
			world["alone"] = p
		}, "", true},
		{"a library that one imports", func() { world["two"] = edited(two, "# edited\n") }, "far", true},
		{"a library that all import", func() { world["one"] = edited(one, "# edited\n") }, "near far", true},
		{"a library that nobody imports", func() { world["spare"] = edited(spare, "# edited\n") }, "", false},
		{"a broken library that nobody imports", func() { world["spare"] = edited(spare, nonsense) }, "", false},
		{"a library that is gone, but not needed", func() { delete(world, "spare") }, "", false},
		{"a policy that is gone", func() { delete(world, "alone"); names = names[1:] }, "", true},
	} {
		step.change()
		after := all()
		var compiled []string
		for _, name := range names {
			if after.compiled(t, name) != before.compiled(t, name) {
				compiled = append(compiled, name)
			}
		}
		if got := strings.Join(compiled, " "); got != step.compiled {
			t.Errorf("%s: compiled %q, want %q", step.what, got, step.compiled)
		}
		if moved := after.Hash() != before.Hash(); moved != step.moved {
			t.Errorf("%s: the hash changed: %v", step.what, moved)
		}
		before = after
	}
	if got := c.compiled; len(got.last) != 4 || len(c.outlines.last) != 4 {
		t.Errorf("%d compiled and %d parsed are remembered, of 2 policies and 2 libraries", len(got.last), len(c.outlines.last))
	}
}

// The order in which objects are given is none of a set's business, and neither is who compiled it.
func TestRevisionsAreTheSameEverywhere(t *testing.T) {
	objects := []v1alpha1.RegoPolicy{
		lib("b", "sallyport.lib.b", "f(_) := \"1\"", 1), lib("a", "sallyport.lib.a", "f(x) := data.sallyport.lib.b.f(x)", 0),
		importing("p", "sallyport.lib.a.f"),
	}
	first := build(t, &Catalog{}, nil, objects...)
	second := build(t, &Catalog{}, nil, objects[2], objects[1], objects[0])
	if first.Hash() != second.Hash() || first.states["p"].ActiveHash != second.states["p"].ActiveHash {
		t.Errorf("got %v and %v", first.states["p"], second.states["p"])
	}
	text, err := first.states["p"].Active.Encode()
	if err != nil {
		t.Fatal(err)
	}
	revision, err := Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	broken := build(t, &Catalog{}, map[string]Revision{"p": revision}, edited(objects[2], nonsense))
	broken.check(t, "p", "last good", v1alpha1.ReasonCompileFailed)
	if broken.states["p"].ActiveHash != first.states["p"].ActiveHash {
		t.Errorf("what was stored is revision %s, not %s", broken.states["p"].ActiveHash, first.states["p"].ActiveHash)
	}
}

func TestEncodeKeepsWhatDecidesOnly(t *testing.T) {
	p := importing("p", "sallyport.lib.a.f")
	p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
	p.Annotations = map[string]string{"a": "b"}
	p.Spec.Tests = []v1alpha1.PolicyTest{{Name: "x_test.rego", Source: "package x"}}
	p.Status.ActiveRevision = "r"
	a := lib("a", "sallyport.lib.a", "f(_) := \"1\"", 0)
	a.Spec.Modules = append(a.Spec.Modules, v1alpha1.PolicyModule{Name: "unused.rego", Source: "package sallyport.lib.a.unused\n"})
	state := build(t, &Catalog{}, nil, p, a, lib("unused", "sallyport.lib.unused", "f(_) := \"1\"", 0)).states["p"]
	text, err := state.Active.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, no := range []string{"managed", "annotations", "tests", "status", "unused", "creationTimestamp"} {
		if strings.Contains(string(text), no) {
			t.Errorf("it has %s: %s", no, text)
		}
	}
	got, err := Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(*state.Active, got); diff != "" {
		t.Errorf("(-encoded +decoded):\n%s", diff)
	}
	for _, bad := range []string{"", "{}", `{"policy":{"metadata":{"name":"p"},"spec":{}}}`, `{"policy":{"metadata":{"name":"p","uid":"u"},"spec":{}}}`} {
		if _, err := Decode([]byte(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

// What decides where the object does not compile.
func TestLastGood(t *testing.T) {
	first := stored(policy("p", "apps/v1/deployments UPDATE"), "uid-1")
	second, third := edited(first, "# second\n"), edited(edited(first, "# third\n"), nonsense)
	broken := edited(first, nonsense)
	revisionOf := func(p v1alpha1.RegoPolicy) map[string]Revision { return map[string]Revision{"p": {Policy: bare(&p)}} }
	hash := func(p v1alpha1.RegoPolicy) string { return build(t, &Catalog{}, nil, p).states["p"].ActiveHash }
	recreated := stored(broken, "uid-2")
	for name, tc := range map[string]struct {
		seen   []v1alpha1.RegoPolicy
		object v1alpha1.RegoPolicy
		good   map[string]Revision
		who    string
		hash   string
	}{
		"from memory":                           {[]v1alpha1.RegoPolicy{first}, broken, nil, "last good", hash(first)},
		"from memory, twice broken":             {[]v1alpha1.RegoPolicy{first, broken}, third, nil, "last good", hash(first)},
		"what was stored, after a restart":      {nil, broken, revisionOf(first), "last good", hash(first)},
		"what was stored is younger":            {[]v1alpha1.RegoPolicy{first}, third, revisionOf(second), "last good", hash(second)},
		"what was stored is older":              {[]v1alpha1.RegoPolicy{second}, third, revisionOf(first), "last good", hash(second)},
		"what was stored does not compile here": {[]v1alpha1.RegoPolicy{first}, third, revisionOf(broken), "last good", hash(first)},
		"none":                                  {nil, broken, nil, "broken", ""},
		"none that compiles":                    {nil, broken, revisionOf(broken), "broken", ""},
		"made again, broken from the beginning": {[]v1alpha1.RegoPolicy{first}, recreated, revisionOf(first), "broken", ""},
		"of another policy":                     {nil, broken, map[string]Revision{"q": {Policy: bare(&first)}}, "broken", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := &Catalog{}
			for _, p := range tc.seen {
				build(t, c, nil, p)
			}
			got := build(t, c, tc.good, tc.object)
			got.check(t, "p", tc.who, v1alpha1.ReasonCompileFailed)
			if got.states["p"].ActiveHash != tc.hash {
				t.Errorf("revision %q decides, want %q", got.states["p"].ActiveHash, tc.hash)
			}
			if err := got.states["p"].Err; err == nil || !strings.Contains(err.Error(), "p/p.rego:") {
				t.Errorf("the error does not say where: %v", err)
			}
			again := build(t, c, nil, tc.object) // what was stored is not needed twice
			again.check(t, "p", tc.who, v1alpha1.ReasonCompileFailed)
			repaired := build(t, c, tc.good, edited(second, "# repaired\n"))
			repaired.check(t, "p", "current", "")
		})
	}
}

// A policy that is deleted is forgotten.
func TestDeletedPoliciesAreForgotten(t *testing.T) {
	c := &Catalog{}
	p := stored(policy("p", "apps/v1/deployments UPDATE"), "uid-1")
	build(t, c, nil, p)
	if gone := build(t, c, nil); len(gone.Policies()) != 0 || gone.Hash() == build(t, &Catalog{}, nil, p).Hash() {
		t.Errorf("got %v", gone.Policies())
	}
	build(t, c, nil, edited(p, nonsense)).check(t, "p", "broken", v1alpha1.ReasonCompileFailed)
}

// What is wrong with a library concerns those that import it.
func TestLibraries(t *testing.T) {
	one := lib("one", "sallyport.lib.one", "f(_) := \"1\"", 0)
	two := lib("two", "sallyport.lib.two", "g(x) := data.sallyport.lib.one.f(x)", 1)
	twin := lib("twin", "sallyport.lib.one", "f(_) := \"2\"", 2)
	inside := lib("inside", "sallyport.lib.one.f", "g(_) := \"3\"", 2)
	elsewhere := lib("elsewhere", "sallyport.lib.elsewhere", "", 0)
	elsewhere.Spec.Modules[0].Source = "package sallyport.lib.one\n\nf(_) := \"4\"\n"
	alone := stored(policy("alone", "apps/v1/deployments UPDATE"), "uid-alone")
	near, far := importing("near", "sallyport.lib.one.f"), importing("far", "sallyport.lib.two.g")
	type expectation struct {
		who     string
		problem v1alpha1.ConditionReason
	}
	current := expectation{"current", ""}
	for name, tc := range map[string]struct {
		libraries []v1alpha1.RegoPolicy
		problems  map[string]v1alpha1.ConditionReason
		near, far expectation
		says      string // near's error
	}{
		"all in order":              {[]v1alpha1.RegoPolicy{one, two}, nil, current, current, ""},
		"no parse":                  {[]v1alpha1.RegoPolicy{edited(one, nonsense), two}, map[string]v1alpha1.ConditionReason{"one": v1alpha1.ReasonCompileFailed, "two": v1alpha1.ReasonCompileFailed}, expectation{"broken", v1alpha1.ReasonCompileFailed}, expectation{"broken", v1alpha1.ReasonCompileFailed}, "one/l.rego:6:"},
		"no compile":                {[]v1alpha1.RegoPolicy{edited(one, "y := unknown_function(1)\n"), two}, map[string]v1alpha1.ConditionReason{"one": v1alpha1.ReasonCompileFailed, "two": v1alpha1.ReasonCompileFailed}, expectation{"broken", v1alpha1.ReasonCompileFailed}, expectation{"broken", v1alpha1.ReasonCompileFailed}, "one/l.rego:4:"},
		"no parse, further out":     {[]v1alpha1.RegoPolicy{one, edited(two, nonsense)}, map[string]v1alpha1.ConditionReason{"two": v1alpha1.ReasonCompileFailed}, current, expectation{"broken", v1alpha1.ReasonCompileFailed}, ""},
		"against the contract":      {[]v1alpha1.RegoPolicy{edited(one, "y := input.request\n"), two}, map[string]v1alpha1.ConditionReason{"one": v1alpha1.ReasonContractBroken}, expectation{"broken", v1alpha1.ReasonContractBroken}, expectation{"broken", v1alpha1.ReasonContractBroken}, "one/l.rego:4:"},
		"missing":                   {[]v1alpha1.RegoPolicy{two}, map[string]v1alpha1.ConditionReason{"two": v1alpha1.ReasonLibraryMissing}, expectation{"broken", v1alpha1.ReasonLibraryMissing}, expectation{"broken", v1alpha1.ReasonLibraryMissing}, "data.sallyport.lib.one.f"},
		"the same names":            {[]v1alpha1.RegoPolicy{twin, one, two}, map[string]v1alpha1.ConditionReason{"twin": v1alpha1.ReasonLibraryConflict}, current, current, ""},
		"a rule where a package is": {[]v1alpha1.RegoPolicy{inside, one, two}, map[string]v1alpha1.ConditionReason{"inside": v1alpha1.ReasonLibraryConflict}, current, current, ""},
		"in another's package":      {[]v1alpha1.RegoPolicy{elsewhere, one, two}, map[string]v1alpha1.ConditionReason{"elsewhere": v1alpha1.ReasonContractBroken}, current, current, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := build(t, &Catalog{}, nil, append(tc.libraries, alone, near, far)...)
			got.check(t, "alone", "current", "")
			got.check(t, "near", tc.near.who, tc.near.problem)
			got.check(t, "far", tc.far.who, tc.far.problem)
			if err := got.states["near"].Err; tc.says != "" && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("near: %v\nwithout %q", err, tc.says)
			}
			for _, l := range tc.libraries {
				s := got.states[l.Name]
				if !s.Library || s.Problem != tc.problems[l.Name] || (s.Err != nil) != (s.Problem != "") || s.Active != nil {
					t.Errorf("%s: %+v, want problem %q", l.Name, s, tc.problems[l.Name])
				}
			}
			if s := got.states["near"]; s.Active != nil && (len(s.Active.Libraries) != 1 || s.Active.Libraries[0].Name != "one") {
				t.Errorf("near is made of %+v", s.Active.Libraries)
			}
		})
	}
	conflict := build(t, &Catalog{}, nil, one, twin).states["twin"].Err
	if want := "library twin: package sallyport.lib.one is also in library one, which is older"; !strings.Contains(conflict.Error(), want) {
		t.Errorf("got %v\nwant %s", conflict, want)
	}
	twin.CreationTimestamp = one.CreationTimestamp // then the names decide
	if s := build(t, &Catalog{}, nil, twin, one).states; s["one"].Err != nil || s["twin"].Err == nil {
		t.Errorf("got %v", s)
	}
}

// A broken library leaves those that import it on their last good revision, with the library as it was.
func TestLastGoodKeepsItsLibraries(t *testing.T) {
	c := &Catalog{}
	one, p := lib("one", "sallyport.lib.one", "f(_) := \"1\"", 0), importing("p", "sallyport.lib.one.f")
	before := build(t, c, nil, one, p)
	for _, l := range [][]v1alpha1.RegoPolicy{{edited(one, nonsense)}, {}} {
		after := build(t, c, nil, append(l, p)...)
		if after.who("p") != "last good" || after.compiled(t, "p") != before.compiled(t, "p") {
			t.Errorf("got %+v", after.states["p"])
		}
	}
	newer := build(t, &Catalog{}, nil, edited(one, "# younger\n"), p).states["p"]
	after := build(t, c, map[string]Revision{"p": *newer.Active}, edited(one, nonsense), p)
	if after.states["p"].ActiveHash != newer.ActiveHash {
		t.Error("the revision with the younger library does not decide")
	}
}

// A copy of a policy can be tried out beside it.
func TestPoliciesOfOnePackage(t *testing.T) {
	p := policy("p", "apps/v1/deployments UPDATE")
	copied := policy("p", "apps/v1/deployments UPDATE")
	copied.Name = "copy"
	got := build(t, &Catalog{}, nil, p, copied)
	got.check(t, "p", "current", "")
	got.check(t, "copy", "current", "")
}

// What reads are lacking decides over what becomes active, and when.
func TestReads(t *testing.T) {
	lacking := map[string]*Lack{}
	c := &Catalog{Reads: func(_ context.Context, _ string, reads []engine.Read) *Lack {
		for _, r := range reads {
			if lacking[r.Kind] != nil {
				l := *lacking[r.Kind]
				return &l
			}
		}
		return nil
	}}
	pending := &Lack{Problem: v1alpha1.ReasonReadsNotSynced, Err: errors.New("not synced yet")}
	forbidden := &Lack{Problem: v1alpha1.ReasonReadsForbidden, Err: errors.New("no"), Missing: []Grant{{Resource: "secrets", Verbs: []string{"list"}}}}
	reading := func(p v1alpha1.RegoPolicy, kind string) v1alpha1.RegoPolicy {
		p = edited(p, "# reads "+kind+"\n")
		p.Spec.Reads = []v1alpha1.PolicyRead{{APIVersion: "v1", Kind: kind}}
		return p
	}
	first := stored(policy("p", "apps/v1/deployments UPDATE"), "uid")
	other := stored(policy("other", "apps/v1/deployments UPDATE"), "uid-o")
	check := func(object v1alpha1.RegoPolicy, who string, problem v1alpha1.ConditionReason) {
		t.Helper()
		got := build(t, c, nil, object, other)
		got.check(t, "p", who, problem)
		got.check(t, "other", "current", "")
	}
	secrets := reading(first, "Service")
	lacking["Service"] = pending
	check(secrets, "nobody", v1alpha1.ReasonReadsNotSynced) // as if it were written later
	lacking["Service"] = forbidden
	check(secrets, "broken", v1alpha1.ReasonReadsForbidden)
	lacking["Service"] = pending
	check(secrets, "broken", v1alpha1.ReasonReadsNotSynced) // it was in force before
	lacking["Service"] = forbidden
	if s := build(t, c, nil, secrets, other).states["p"]; len(s.Missing) != 1 || s.Missing[0].String() != `{"apiGroups":[""],"resources":["secrets"],"verbs":["list"]}` {
		t.Errorf("got %+v", s.Missing)
	}
	check(first, "current", "")
	check(secrets, "last good", v1alpha1.ReasonReadsForbidden)
	lacking["Service"] = pending
	check(secrets, "last good", v1alpha1.ReasonReadsNotSynced)
	delete(lacking, "Service")
	check(secrets, "current", "")
	lacking["Pod"] = pending
	check(reading(secrets, "Pod"), "last good", v1alpha1.ReasonReadsNotSynced)
	delete(lacking, "Pod")
	check(reading(secrets, "Pod"), "current", "")
	if got := build(t, c, nil, reading(secrets, "Pod")).Reads(); len(got) != 1 || got[0].Kind != "Pod" {
		t.Errorf("the set reads %v", got)
	}
}

// A Composer that is used again knows the modules of the last call, and not those that were edited.
func TestComposerFollowsEdits(t *testing.T) {
	one, two := lib("one", "sallyport.lib.one", "f(_) := \"1\"", 0), lib("two", "sallyport.lib.two", "f(_) := \"2\"", 0)
	p := importing("p", "sallyport.lib.one.f")
	onTwo := edited(p, "\nwarn contains data.sallyport.lib.two.f(1) if true\n")
	c := &Composer{}
	for i, world := range [][]v1alpha1.RegoPolicy{{one, two, p}, {one, two, p}, {one, two, onTwo}, {two, onTwo}, {edited(one, nonsense), two, p}, {one, two, p}} {
		module := modulesOf(&two)[0]
		before, _ := c.catalog.outlines.get(module)
		got, want := c.Compose(world), Compose(world)
		for name := range want {
			if diff := cmp.Diff(want[name].Libraries, got[name].Libraries); diff != "" || len(got) != len(want) {
				t.Errorf("world %d, %s: (-want +got)\n%s", i, name, diff)
			}
		}
		if after, _ := c.catalog.outlines.get(module); after == nil || before != nil && before != after {
			t.Errorf("world %d: a module that did not change was parsed again", i)
		}
	}
	if libraries := c.Compose([]v1alpha1.RegoPolicy{one, two, onTwo})["p"].Libraries; len(libraries) != 2 {
		t.Errorf("an edit that imports another library has the libraries %v", libraries)
	}
}
