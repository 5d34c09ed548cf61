package engine

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sallyport.dev/sallyport/webhooks/engine/plan"
)

const wantsOne = "valid_input if true\n\nwarn contains \"w\" if input.request.x == 1\n"

// withProgram returns a policy that has the program of another.
func withProgram(t *testing.T, rules, other string) *Policy {
	t.Helper()
	if isInterpreted {
		t.Skip("there are no programs")
	}
	p := mustCompile(t, policy(rules))
	p.queries[admit].program = mustCompile(t, policy(other)).queries[admit].program
	return p
}

// A wrong program is found by a check, and is not used again.
func TestChecksFindOut(t *testing.T) {
	p := withProgram(t, wantsOne, strings.ReplaceAll(wantsOne, "1", "2"))
	var heard []string
	in := input(t, `{"x": 1}`)
	in.Checked = func(policy, difference string) { heard = append(heard, policy+": "+difference) }
	for range 2 {
		d, err := p.Decide(t.Context(), in, nil)
		if err != nil || len(d.Warnings) != 1 {
			t.Errorf("got %+v, %v", d, err)
		}
	}
	want := []string{`p: the program: [null,null,null,null]; topdown: [null,["w"],null,null]`}
	if diff := cmp.Diff(want, heard); diff != "" {
		t.Errorf("heard (-want +got):\n%s", diff)
	}
}

// So is a program that panics.
func TestProgramsThatPanicAreNotUsed(t *testing.T) {
	p := withProgram(t, wantsOne, wantsOne)
	p.decided.Store(1) // so that it is not checked
	p.queries[admit].program = new(plan.Program)
	var heard []string
	in := input(t, `{"x": 1}`)
	in.Checked = func(_, difference string) { heard = append(heard, difference) }
	for range 2 {
		d, err := p.Decide(t.Context(), in, nil)
		if err != nil || len(d.Warnings) != 1 {
			t.Errorf("got %+v, %v", d, err)
		}
	}
	if len(heard) != 1 || !strings.HasPrefix(heard[0], "the program panics: ") {
		t.Errorf("heard %q", heard)
	}
}

func TestChecksAgree(t *testing.T) {
	p := withProgram(t, silentPolicy, silentPolicy)
	checks := 0
	in := input(t, `{"branch": "n", "book": "b"}`)
	in.Checked = func(_, difference string) {
		checks++
		if difference != "" {
			t.Error("there is a difference: " + difference)
		}
	}
	for range 2 * checkedShare {
		if _, err := p.Decide(t.Context(), in, sharing{facts: map[string]any{"loans": []any{}}}); err != nil {
			t.Fatal(err)
		}
	}
	if checks != 2 {
		t.Errorf("checked %d times", checks)
	}
}

// A check finds whatever differs, and a failure is another one if it says something else.
func TestWhatACheckCompares(t *testing.T) {
	said, other := mustValue(t, "x"), mustValue(t, "y")
	failure := func(text string) error { return errorf(EvaluationFailed, "%s", text) }
	answers := []struct {
		d   *Decision
		err error
	}{
		{d: &Decision{}},
		{d: &Decision{Denials: []Denial{{Reason: "R", Message: "m"}}}},
		{d: &Decision{Denials: []Denial{{Reason: "R", Message: "n"}}}},
		{d: &Decision{Warnings: []string{"m"}}},
		{d: &Decision{Warnings: []string{"m", "n"}}},
		{d: &Decision{Patches: []Patch{{Op: "add", Path: "/a", Value: &said}}}},
		{d: &Decision{Patches: []Patch{{Op: "add", Path: "/a", Value: &other}}}},
		{d: &Decision{Outcome: said}},
		{d: &Decision{Outcome: other}},
		{err: failure("a")},
		{err: failure("b")},
	}
	for i, a := range answers {
		for j, b := range answers {
			if got := difference(a.d, a.err, b.d, b.err); (got == "") != (i == j) {
				t.Errorf("%+v and %+v: difference %q", a, b, got)
			}
		}
	}
}

// A check that does not end in time says nothing, and the decision stands.
func TestACheckThatTakesTooLongIsNone(t *testing.T) {
	p := withProgram(t, wantsOne, wantsOne)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	in := input(t, `{"x": 2}`)
	in.Checked = func(string, string) { t.Error("it was heard of") }
	decision := &Decision{}
	d, err := p.check(ctx, admit, in, nil, decision, nil)
	if err != nil || d != decision || p.interpreted.Load() {
		t.Errorf("got %+v, %v", d, err)
	}
}
