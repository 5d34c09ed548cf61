package replay

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sallyport.dev/sallyport/webhooks/engine"
)

// A policy is answered as it was itself, by the fact of that name first; else as others were, live before from the cache.
func TestPreferred(t *testing.T) {
	answers := []*answer{
		{policy: "other", fact: "a"}, {policy: "other", fact: "a", live: true}, {policy: "guard", fact: "b"}, {policy: "guard", fact: "a"},
	}
	r := &reader{memory: &memory{answers: answers}, policy: "guard"}
	var got []int
	for _, a := range r.preferred(engine.Query{Fact: "a"}) {
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
