package testrun

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// told is a finding in a line for each thing that was found.
func told(f *Finding) string {
	var lines []string
	for _, p := range f.Problems {
		lines = append(lines, string(p.Kind)+" "+p.String())
	}
	for _, t := range f.Tests.Failed {
		lines = append(lines, "test "+t.String())
	}
	for _, b := range f.Breaks {
		lines = append(lines, "breaks "+b.Policy+": "+b.Message)
	}
	for _, m := range f.Missing {
		lines = append(lines, "missing "+m)
	}
	for _, u := range f.Untested {
		lines = append(lines, "untested "+u)
	}
	for _, u := range f.Unpatchable {
		lines = append(lines, "unpatchable "+u)
	}
	for _, u := range f.Ungranted {
		lines = append(lines, fmt.Sprintf("ungranted %v of %s: %s", u.Verbs, u.Resource, f.Grant))
	}
	if f.Tests.Passed > 0 {
		lines = append(lines, fmt.Sprintf("%d passed", f.Tests.Passed))
	}
	return strings.Join(lines, "\n")
}

func TestFindings(t *testing.T) {
	selector := toy("a")
	selector.Spec.Match.ExcludeNamespaces = nil
	with := func(p *v1alpha1.RegoPolicy, change func(*v1alpha1.RegoPolicySpec)) *v1alpha1.RegoPolicy {
		change(&p.Spec)
		return p
	}
	const loud, quiet = `say(x) := upper(x)`, `whisper(x) := lower(x)`
	for name, tc := range map[string]struct {
		world     []*v1alpha1.RegoPolicy
		candidate *v1alpha1.RegoPolicy
		deleted   string
		want      string
	}{
		"in order": {candidate: toy("a"), want: "2 passed"},
		"a typo": {candidate: toy("a", "x := "), want: "CompileFailed a/a.rego:18:0: unexpected eof token\n" +
			"CompileFailed a/a.rego:18:0: unexpected eof token: expected rule value term (e.g., x := <VALUE> { ... })"},
		"an unsafe builtin":       {candidate: toy("a", `x if http.send({})`), want: "CompileFailed a/a.rego:17:6: undefined function http.send: Sallyport withholds this builtin; use facts, which read objects of the cluster (facts.NAME := {...}, with the kind in spec.reads)"},
		"a fact that is not read": {candidate: toy("a", `x if input.facts.y`), want: "ContractBroken a/a.rego:17:6: input.facts.y is read but there is no rule facts.y"},
		"parameters that are not valid": {
			candidate: toy("a", "\n# METADATA\n# description: Two is two.\nvalid_parameters if data.parameters.two == 2"),
			want:      "ParametersInvalid a/a.rego:20:1: spec.parameters are not valid; required: Two is two.",
		},
		"parameters against their schema": {candidate: with(toy("a"), func(s *v1alpha1.RegoPolicySpec) {
			s.Parameters = &runtime.RawExtension{Raw: []byte(`{"two": "2"}`)}
			s.ParametersSchema = &runtime.RawExtension{Raw: []byte(`{"type": "object", "properties": {"two": {"type": "integer"}}}`)}
		}), want: `ParametersInvalid a: spec.parameters.two: Invalid value: "string": two in body must be of type integer: "string"`},
		"no tests":             {candidate: with(toy("a"), func(s *v1alpha1.RegoPolicySpec) { s.Tests = nil }), want: "TestsMissing a: spec.tests has no rule test_..."},
		"tests without a test": {candidate: tested(toy("a"), "todo_test_x if input.x"), want: "TestsMissing a: spec.tests has no rule test_..."},
		"a test that fails": {candidate: tested(toy("a"), "test_x if true\n\ntest_y if {\n\tprint(\"seen\", 1)\n\tdata.toy.a._word == \"that\"\n}"),
			want: "test a/a_test.rego:5: test toy.a_test.test_y: failed; a/a_test.rego:7: data.toy.a._word == \"that\": got \"it\", want \"that\"; seen 1\n1 passed"},
		"rows that fail": {candidate: tested(toy("a"), `test_x[n] if { some n, v in {"one": 1, "two": 2, "three": 3}; v > 2 }`),
			want: `test a/a_test.rego:3: test toy.a_test.test_x: failed, in its rows ["one" "two"]; ` +
				`"one": a/a_test.rego:3: v > 2: got 1, want more than 2; "two": a/a_test.rego:3: v > 2: got 2, want more than 2`},
		"a table without rows": {candidate: tested(toy("a"), `test_x[n] if { some n in array.slice([1], 1, 1) }`), want: "test a/a_test.rego:3: test toy.a_test.test_x: the table has no rows"},
		"a rule against its own tests": {candidate: with(toy("a"), func(s *v1alpha1.RegoPolicySpec) {
			s.Modules[0].Source = strings.Replace(s.Modules[0].Source, "== true", "!= true", 1)
		}), want: "test a/a_test.rego:5: test toy.a_test.test_marked: failed; " +
			"a/a_test.rego:5: count(policy.deny) == 1 with input.request.object.marked as true: got 0, want 1\n" +
			`test a/a_test.rego:7: test toy.a_test.test_others: failed, in its rows ["a text" "no"]; ` +
			`"a text": a/a_test.rego:9: count(policy.deny) == 0 with input.request.object.marked as mark: got 1, want 0; ` +
			`"no": a/a_test.rego:9: count(policy.deny) == 0 with input.request.object.marked as mark: got 1, want 0`},
		"a test that does not compile": {candidate: tested(toy("a"), "test_x if y"), want: "CompileFailed a/a_test.rego:3:11: var y is unsafe"},
		"a test outside": {candidate: with(toy("a"), func(s *v1alpha1.RegoPolicySpec) { s.Tests[0].Source = "package toy.a\n\ntest_x if true\n" }),
			want: "ContractBroken a/a_test.rego:1:1: tests of toy.a must be in a package that ends in _test, not in toy.a"},
		"a match that selects by nonsense": {candidate: with(toy("a"), func(s *v1alpha1.RegoPolicySpec) { s.Match.Resources = nil }),
			want: "CompileFailed a: policy a: spec.match: resources: at least one is required"},

		"an edit among others":       {world: []*v1alpha1.RegoPolicy{toy("a", "x := "), toy("b", "x := ")}, candidate: toy("a"), want: "2 passed"},
		"with a library":             {world: []*v1alpha1.RegoPolicy{library("loud", loud, 0)}, candidate: importing("a", "loud.say"), want: "2 passed"},
		"a library that is missing":  {candidate: importing("a", "loud.say"), want: "missing sallyport.lib.loud.say"},
		"a library that is broken":   {world: []*v1alpha1.RegoPolicy{library("loud", "x := ", 0)}, candidate: importing("a", "loud.say"), want: "CompileFailed a/a.rego:16:10: data.sallyport.lib.loud.say is neither a parameter nor in this policy or a library\nCompileFailed loud/loud.rego:4:0: unexpected eof token\nCompileFailed loud/loud.rego:4:0: unexpected eof token: expected rule value term (e.g., x := <VALUE> { ... })"},
		"a new library":              {world: []*v1alpha1.RegoPolicy{importing("a", "loud.say")}, candidate: library("loud", loud, 0), want: "1 passed"},
		"a library of a taken name":  {world: []*v1alpha1.RegoPolicy{library("loud", loud, 0)}, candidate: func() *v1alpha1.RegoPolicy { p := library("loud", loud, 1); p.Name = "copy"; return p }(), want: "LibraryConflict copy: library copy: package sallyport.lib.loud is also in library loud, which is older and takes precedence: rename one of them, or delete one of the libraries"},
		"a library that reads input": {candidate: library("loud", "say(_) := input.request", 0), want: "ContractBroken loud/loud.rego:3:11: a library must not read input.request: pass values as arguments"},
		"a library's edit": {
			world:     []*v1alpha1.RegoPolicy{library("loud", loud, 0), importing("a", "loud.say"), toy("b", "x := ")},
			candidate: library("loud", loud+"\n\nmore := 1", 0), want: "1 passed",
		},
		"a library's edit that breaks a policy": {
			world:     []*v1alpha1.RegoPolicy{library("loud", loud, 0), importing("a", "loud.say"), importing("b", "loud.tell"), toy("c")},
			candidate: library("loud", quiet, 0),
			want:      "breaks a: a/a.rego:16:10: undefined function data.sallyport.lib.loud.say\n1 passed",
		},
		"a library's edit that fails a policy's tests": {
			world: []*v1alpha1.RegoPolicy{
				library("loud", loud, 0), tested(importing("a", "loud.say"), `test_says if data.toy.a._word == "IT"`),
				tested(importing("b", "loud.say"), `test_never if data.toy.b._word == "that"`),
			},
			candidate: library("loud", `say(x) := lower(x)`, 0),
			want:      "breaks a: its tests would fail: a/a_test.rego:3: test toy.a_test.test_says: failed; a/a_test.rego:3: data.toy.a._word == \"IT\": got \"it\", want \"IT\"\n1 passed",
		},
		"a library that takes another one's place": {
			world: []*v1alpha1.RegoPolicy{library("quiet", quiet, 0), library("loud", loud, 5), importing("a", "loud.say")},
			candidate: func() *v1alpha1.RegoPolicy {
				p := library("quiet", quiet, 0)
				p.Spec.Modules = append(p.Spec.Modules, v1alpha1.PolicyModule{Name: "more.rego", Source: "package sallyport.lib.quiet.more\n\nx := 1\n"})
				return p
			}(),
			want: "1 passed",
		},
		"a library that goes and is needed": {
			world: []*v1alpha1.RegoPolicy{library("loud", loud, 0), importing("a", "loud.say")}, deleted: "loud",
			want: "breaks a: a/a.rego:16:10: data.sallyport.lib.loud.say is neither a parameter nor in this policy or a library",
		},
		"a library that goes and is not": {world: []*v1alpha1.RegoPolicy{library("loud", loud, 0), toy("a"), importing("b", "quiet.say")}, deleted: "loud"},
		"a library that becomes a policy": {
			world:     []*v1alpha1.RegoPolicy{func() *v1alpha1.RegoPolicy { p := library("loud", loud, 0); p.Name = "a"; return p }(), importing("b", "loud.say")},
			candidate: toy("a"), want: "breaks b: b/b.rego:16:10: data.sallyport.lib.loud.say is neither a parameter nor in this policy or a library\n2 passed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			run := &Run{World: world(tc.world...), Candidate: tc.candidate, Deleted: tc.deleted}
			if diff := cmp.Diff(tc.want, told(run.Run(t.Context(), time.Minute, nil))); diff != "" {
				t.Errorf("found (-want +got):\n%s", diff)
			}
			run.trim()
			if diff := cmp.Diff(tc.want, told(run.Run(t.Context(), time.Minute, nil))); diff != "" {
				t.Errorf("found of what a child is given (-want +got):\n%s", diff)
			}
		})
	}
}

// Tests of others are for what time is left.
func TestOthersTestsHaveToWait(t *testing.T) {
	loud := library("loud", `say(x) := upper(x)`, 0)
	run := &Run{World: world(loud, importing("a", "loud.say"), importing("b", "loud.say")), Candidate: library("loud", `say(x) := lower(x)`, 0)}
	if diff := cmp.Diff("untested a\nuntested b\n1 passed", told(run.Run(t.Context(), 0, nil))); diff != "" {
		t.Errorf("found (-want +got):\n%s", diff)
	}
}

func TestAPolicyIsTriedStepByStep(t *testing.T) {
	var steps []string
	(&Run{Candidate: toy("a")}).Run(t.Context(), time.Minute, func(what string) { steps = append(steps, what) })
	want := []string{"compiling", "preparing the tests of a", "running test toy.a_test.test_marked (a/a_test.rego:5)", "running test toy.a_test.test_others (a/a_test.rego:7)"}
	if diff := cmp.Diff(want, steps); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
}

// A finding becomes part of a denial: however much is wrong, it stays short, and its lists are lists.
func TestFindingsAreBounded(t *testing.T) {
	var failing strings.Builder
	long := &Finding{}
	for i := range 50 {
		long.Problems = append(long.Problems, Problem{Kind: "K", File: "f", Line: i, Message: "m"})
		fmt.Fprintf(&failing, "test_%d if { print(%q); false }\n\n", i, strings.Repeat("é", 3000))
	}
	long.truncate()
	if n := len(long.Problems); n != maxListed || long.Problems[n-1].String() != "f: and 31 more problems" {
		t.Errorf("%d problems, the last one %s", n, long.Problems[n-1])
	}
	fmt.Fprintf(&failing, "test_rows[n] if { some n in split(%q, \"\"); false }", strings.Repeat("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", 2))
	f := (&Run{Candidate: tested(toy("a"), failing.String())}).Run(t.Context(), time.Minute, nil)
	if f.Tests.Failures != 51 || len(f.Tests.Failed) != maxListed || len(f.Tests.Failed[0].Output) > maxText+10 {
		t.Errorf("%d failures, %d shown, %d bytes of output", f.Tests.Failures, len(f.Tests.Failed), len(f.Tests.Failed[0].Output))
	}
	if err := f.Refused(); err == nil || !strings.HasSuffix(err.Error(), "and 31 more tests") {
		t.Errorf("refused because of %v", err)
	}
	empty := &Finding{}
	empty.truncate()
	text, err := json.Marshal(empty)
	want := `{"problems":[],"tests":{"passed":0,"failures":0,"failed":[]},"breaks":[],"missing":[],"untested":[],"unserved":[],"unpatchable":[],"ungranted":[],"took":""}`
	if err != nil || string(text) != want {
		t.Errorf("got %s, %v", text, err)
	}
}

// What a policy is enforced like, and what is known of it, is no part of a test run.
func TestRunsOfTheSameAreTheSame(t *testing.T) {
	text := func(run *Run) string {
		run.trim()
		encoded, err := json.Marshal(run)
		if err != nil {
			t.Fatal(err)
		}
		return string(encoded)
	}
	loud := library("loud", `say(x) := upper(x)`, 0)
	before := text(&Run{World: world(loud, toy("b"), toy("a")), Candidate: toy("a")})
	other := toy("a")
	other.Spec.Mode, other.Spec.OnError, other.Spec.TimeoutMilliseconds = v1alpha1.ModeAudit, v1alpha1.OnErrorAllow, 7
	other.Labels, other.Generation, other.UID, other.Status.ActiveRevision = map[string]string{"a": "b"}, 4, "u", "r"
	same := loud.DeepCopy()
	same.UID, same.Spec.Tests = "v", nil
	if diff := cmp.Diff(before, text(&Run{World: world(toy("c"), same), Candidate: other})); diff != "" {
		t.Errorf("another test run:\n%s", diff)
	}
	for what, different := range map[string]*Run{
		"another text":    {World: world(loud), Candidate: toy("a", "x := 1")},
		"another library": {World: world(library("loud", `say(x) := lower(x)`, 0)), Candidate: toy("a")},
		"other tests":     {World: world(loud), Candidate: tested(toy("a"), "test_x if true")},
		"no library":      {World: nil, Candidate: toy("a")},
	} {
		if before == text(different) {
			t.Errorf("%s is the same test run", what)
		}
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	endless := tested(toy("a"), endlessTest)
	f := (&Run{Candidate: endless}).Run(ctx, time.Minute, func(what string) {
		if strings.HasPrefix(what, "running test") {
			time.AfterFunc(10*time.Millisecond, cancel)
		}
	})
	if f == nil || ctx.Err() == nil {
		t.Errorf("got %+v", f)
	}
}

// endlessTest looks for a cancel, and else never ends in anybody's time. It makes no values, of which there may only be so many.
const endlessTest = `_n := [i | some i in split("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "")]

test_endless if { some a in _n; some b in _n; some c in _n; some d in _n; some e in _n; some f in _n; some g in _n; g == "b" }`
