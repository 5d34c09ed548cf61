package webhooks

import (
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/decision"
)

// While the gate is open, requests about other kinds are admitted with a warning and are recorded, and their objects are not changed.
// Requests about Sallyport's own kinds are judged.
func TestOpenGate(t *testing.T) {
	f := newFixture(t, world{}, policyOf("colour", denies("red", "TooRed", 403)+reds, func(s *v1alpha1.RegoPolicySpec) {
		r := &s.Match.Resources[0]
		r.APIGroups, r.APIVersions, r.Resources = append(r.APIGroups, v1alpha1.GroupName), append(r.APIVersions, "v1alpha1"), append(r.Resources, "virtualmachines")
	}), policyOf("broken", "warn contains \"w\" if to_number(input.request.object.spec.name) == 1\n"))
	until := time.Now().Add(time.Hour)
	f.OpenBy(func(time.Time) *decision.Opening { return &decision.Opening{Until: until, Reason: "ticket 42"} })
	ask := func(endpoint, policy string, change func(*admissionv1.AdmissionRequest)) *admissionv1.AdmissionResponse {
		review := reviewOf(t, admissionv1.Create, `{"name": "x", "red": true}`, change)
		return f.Answer(t.Context(), &decision.Question{Endpoint: endpoint, Only: policy, Review: review})
	}
	foreign := func(*admissionv1.AdmissionRequest) {}
	for _, policy := range []string{"colour", "broken"} {
		got := ask(decision.Validating, policy, foreign)
		if !got.Allowed || len(got.Warnings) < 2 || !strings.HasPrefix(got.Warnings[0], "Sallyport's policies are not enforced: the gate is open until ") ||
			!strings.HasSuffix(got.Warnings[0], "(ticket 42)") || !strings.HasPrefix(got.Warnings[1], "["+policy+"/") {
			t.Errorf("%s: got %+v", policy, got)
		}
	}
	if got := ask(decision.Mutating, "colour", foreign); !got.Allowed || got.Patch != nil || len(got.Warnings) != 1 {
		t.Errorf("its object is changed: %+v", got)
	}
	own := func(r *admissionv1.AdmissionRequest) {
		r.Resource.Group, r.Resource.Version, r.Resource.Resource = v1alpha1.GroupName, "v1alpha1", "virtualmachines"
	}
	if got := ask(decision.Validating, "colour", own); got.Allowed {
		t.Errorf("an own kind is admitted: %+v", got)
	}
	f.OpenBy(func(time.Time) *decision.Opening { return nil })
	if got := ask(decision.Validating, "colour", foreign); got.Allowed || len(got.Warnings) > 0 {
		t.Errorf("the gate is closed again: %+v", got)
	}
	f.recorder.Close(time.Minute)
	if n := strings.Count(f.records.String(), `"gateOpen":{"until":"`+until.Format(time.RFC3339Nano)[:19]); n != 3 {
		t.Errorf("%d records say that the gate was open, want 3:\n%s", n, f.records.String())
	}
}
