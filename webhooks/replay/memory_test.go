package replay

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/record"
)

// A policy is answered as it was itself, by the fact of that name first; else as others were, live before from the cache.
func TestPreferred(t *testing.T) {
	answers := []*answer{
		{policy: "other", fact: "a"}, {policy: "other", fact: "a", live: true}, {policy: "guard", fact: "b"}, {policy: "guard", fact: "a"},
	}
	r := &reader{memory: &memory{answers: answers}, policy: "guard"}
	var got []int
	for _, a := range r.byPreference(engine.Query{Fact: "a"}) {
		for i := range answers {
			if answers[i] == a {
				got = append(got, i)
			}
		}
	}
	if diff := cmp.Diff([]int{3, 2, 1, 0}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A record that has only a part of the objects of a list answers whoever reads no more, and nobody who would take what is missing for absent.
func TestAnswersOfWhichARecordHasAPart(t *testing.T) {
	part := func(text string) (p *engine.Part) {
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	recorded := &record.Record{Policies: []record.PolicyDecision{{Policy: "guard", Facts: map[string]record.Fact{"all": {
		Query: &engine.Query{APIVersion: "v1", Kind: "Pod"}, Live: true, Part: part(`{"metadata":{"name":true},"spec":{"a":true}}`),
		Value: []any{map[string]any{"metadata": map[string]any{"name": "x"}, "spec": map[string]any{"a": "b"}}},
	}}}}}
	m := &memory{}
	m.remember("guard", recorded.Policies[0].Facts)
	for name, tc := range map[string]struct {
		query engine.Query
		want  bool
	}{
		"the same":        {engine.Query{APIVersion: "v1", Kind: "Pod", Part: part(`{"metadata":{"name":true},"spec":{"a":true}}`)}, true},
		"less":            {engine.Query{APIVersion: "v1", Kind: "Pod", Part: part(`{"spec":{"a":true}}`)}, true},
		"more":            {engine.Query{APIVersion: "v1", Kind: "Pod", Part: part(`{"spec":{"b":true}}`)}, false},
		"all of it":       {engine.Query{APIVersion: "v1", Kind: "Pod"}, false},
		"a narrower list": {engine.Query{APIVersion: "v1", Kind: "Pod", Labels: map[string]string{"a": "b"}, Part: part(`{"spec":{"a":true}}`)}, false},
		"one by name":     {engine.Query{APIVersion: "v1", Kind: "Pod", Name: "x"}, false},
	} {
		r := &reader{memory: m, policy: "guard"}
		if answer, err := r.Read(t.Context(), tc.query); (err == nil) != tc.want || tc.want && len(answer.Value.Elements()) != 1 {
			t.Errorf("%s: got %+v, %v", name, answer, err)
		}
	}
}
