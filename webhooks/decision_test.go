package webhooks

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/record"
)

func encoded(t *testing.T, results []record.PolicyDecision) string {
	t.Helper()
	text, err := json.Marshal(results)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Whatever is made of a decision, and whatever the caller does with it, the decision and its question stay the same.
func TestDecisionsDoNotChange(t *testing.T) {
	f, _, e := overridable(t)
	f.OpenBy(func(time.Time) *decision.Opening { return &decision.Opening{Reason: "drill"} })
	question := &decision.Question{Endpoint: decision.Validating, Review: verified(reviewOf(t, admissionv1.Update, red, by("bob")))}
	if f.Answer(t.Context(), question); question.Open != nil || !question.At.IsZero() {
		t.Errorf("the question became %+v", question)
	}
	d, err := f.Decide(t.Context(), question)
	if err != nil {
		t.Fatal(err)
	}
	response, results := d.Response(), record.PoliciesOf(d)
	d.Verdicts()[0].Mode = v1alpha1.ModeAudit
	f.recorder.Record(d, d.Response())
	f.events.Write(d, false)
	if diff := cmp.Diff(response, d.Response()); diff != "" || d.Allowed() {
		t.Errorf("the response became\n%s", diff)
	}
	if diff := cmp.Diff(encoded(t, results), encoded(t, record.PoliciesOf(d))); diff != "" {
		t.Errorf("the results became\n%s", diff)
	}
	if len(e.events) == 0 {
		t.Error("no event was written")
	}
}
