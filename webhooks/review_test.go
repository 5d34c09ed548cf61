package webhooks

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"

	"sallyport.dev/sallyport/webhooks/decision"
)

// mangled gives a text with one thing in it replaced, left out, or repeated.
func mangled(r *rand.Rand, text string) string {
	pieces := strings.FieldsFunc(text, func(c rune) bool { return strings.ContainsRune(" ,:\n\t", c) })
	for range 1 + r.IntN(3) {
		old := pieces[r.IntN(len(pieces))]
		others := []string{"null", "true", "7", `""`, `"x"`, "{}", "[]", "", `"uid"`, `{"group": 1}`, "\xff", pieces[r.IntN(len(pieces))], old + "," + old}
		text = strings.Replace(text, old, others[r.IntN(len(others))], 1)
	}
	return text
}

// A review is taken for what a decoder takes it for, and refused where it is.
func TestReviewsAreDecodedAsByADecoder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	counts := map[bool]int{}
	reviews := 20_000
	if testing.Short() {
		reviews = 4_000
	}
	for i := range reviews {
		body := fullReview
		if i > 0 {
			body = mangled(r, body)
		}
		var want admissionv1.AdmissionReview
		err := json.Unmarshal([]byte(body), &want)
		is := err == nil && want.Kind == "AdmissionReview" && want.APIVersion == "admission.k8s.io/v1" && want.Request != nil && want.Request.UID != ""
		counts[is]++
		got, err := decision.Decode([]byte(body))
		if is != (err == nil) {
			t.Fatalf("got %v, want an error: %t, for\n%s", err, !is, body)
		}
		if !is {
			continue
		}
		if diff := cmp.Diff(want.Request, got.Request); diff != "" {
			t.Fatalf("of %s\nwant -, got +\n%s", body, diff)
		}
		text, err := got.Document.MarshalJSON()
		if err != nil || len(text) == 0 {
			t.Fatalf("the document of %s: %v", body, err)
		}
	}
	if counts[true] < reviews/20 || counts[false] < reviews/20 {
		t.Errorf("too few of %v", counts)
	}
}
