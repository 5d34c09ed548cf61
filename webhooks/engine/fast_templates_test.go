package engine

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What is filled in is what evaluation gives, for requests of any shape.
func TestTemplatesAreWhatEvaluationGives(t *testing.T) {
	src := policy(`valid_input if true

facts.one := {"apiVersion": "toy/v1", "kind": "Loan", "namespace": input.request.a, "name": input.request.b.a}

facts.two := {
	"apiVersion": "toy/v1", "kind": "Loan", "fields": {"book": input.request.b.c},
	"labels": {"x": input.request.c, "y": "z", "w": input.request.a}, "except": {"state": ["back"]},
}

facts.three := {"apiVersion": "toy/v1", "kind": "Loan", "freshness": "live"}

facts.four := {"access": {"verb": "get", "resource": "loans", "name": input.request.a}}

facts.five := null

warn contains "w" if input.facts.one == input.facts.two
`)
	filling, evaluating := mustCompile(t, src), mustCompile(t, src)
	if acceleratorOf(t, filling).templates == nil {
		t.Fatal("it has no templates")
	}
	acceleratorOf(t, evaluating).templates = nil
	r := rand.New(rand.NewPCG(1, 2))
	leaf := func() any {
		if r.IntN(16) > 0 {
			return "te\u00e9xt\n\""
		}
		return []any{"", nil, 7, true, []any{"a"}, map[string]any{"a": "b"}}[r.IntN(6)]
	}
	object := func(names ...string) any {
		made := map[string]any{}
		for _, name := range names {
			if r.IntN(32) > 0 {
				made[name] = leaf()
			}
		}
		return made
	}
	counts := map[bool]int{}
	for range 1000 {
		made := object("a", "c").(map[string]any)
		if made["b"] = object("a", "c"); r.IntN(16) == 0 {
			made["b"] = leaf()
		}
		text, err := json.Marshal(made)
		if err != nil {
			t.Fatal(err)
		}
		for _, in := range []Input{{Request: takenApart(t, text)}, {Request: Text(text)}, {Request: mustText(t, text)}} {
			got, err := filling.fast.wanted(t.Context(), in)
			want, wantErr := evaluating.fast.wanted(t.Context(), in)
			if (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
				t.Fatalf("%s: got %v, want %v", text, err, wantErr)
			}
			if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b Value) bool { return a.Equal(b) })); diff != "" {
				t.Fatalf("%s: evaluated -, filled in +\n%s", text, diff)
			}
			counts[err == nil]++
		}
	}
	if counts[true] < 500 || counts[false] < 500 {
		t.Errorf("too few of %v", counts)
	}
}

func mustText(t *testing.T, text []byte) Value {
	t.Helper()
	v, err := ParseValue(text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// What has to be evaluated is.
func TestWhatIsNoTemplate(t *testing.T) {
	for name, fact := range map[string]string{
		"a body":          `{"apiVersion": "toy/v1", "kind": "Loan", "name": x} if x := input.request.a`,
		"a call":          `{"apiVersion": "toy/v1", "kind": "Loan", "name": lower(input.request.a)}`,
		"a variable name": `{"apiVersion": "toy/v1", "kind": "Loan", "name": input.request[input.request.a]}`,
		"time":            `{"apiVersion": "toy/v1", "kind": "Loan", "name": input.now}`,
	} {
		p := mustCompile(t, policy("valid_input if true\n\nfacts.x := "+fact+"\n\nwarn contains \"w\" if input.facts.x\n"))
		if acceleratorOf(t, p).templates != nil {
			t.Errorf("%s is a template", name)
		}
	}
}
