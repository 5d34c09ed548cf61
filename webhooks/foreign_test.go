package webhooks

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"

	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/server"
)

const reds = `patch contains {"op": "add", "path": "/spec/seen", "value": true} if input.request.object.spec.red` + "\n\n"

// answer is what one path says of a review.
func answer(t *testing.T, f *fixture, path, body string) *admissionv1.AdmissionResponse {
	t.Helper()
	w := serve(f, path, body)
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%s: got %d %s: %v", path, w.Code, w.Body, err)
	}
	return answer.Response
}

// A path of a policy asks that policy and no other.
func TestOnePolicyIsAsked(t *testing.T) {
	f := newFixture(t, world{}, policyOf("colour", denies("red", "TooRed", 403)), policyOf("size", denies("red", "TooBig", 403)+reds))
	for path, want := range map[string]string{
		server.ValidatePolicyPath + "colour": "[colour/TooRed] x has red", server.ValidatePolicyPath + "size": "[size/TooBig] x has red",
		server.ValidatePolicyPath + "gone": "", server.ValidatePolicyPath: "", server.ValidatePolicyPath + "colour/x": "", server.MutatePolicyPath + "colour": "", server.MutatePolicyPath + "gone": "",
	} {
		got := answer(t, f, path, goodReview)
		message := ""
		if got.Result != nil {
			message = got.Result.Message
		}
		if got.Allowed != (want == "") || message != want || len(got.Warnings) > 0 || len(got.Patch) > 0 {
			t.Errorf("%s: %+v, want %q", path, got, want)
		}
	}
	if got := answer(t, f, server.MutatePolicyPath+"size", goodReview); !got.Allowed || !strings.Contains(string(got.Patch), "/spec/seen") {
		t.Errorf("got %+v", got)
	}
	if n := f.count(t, "sallyport_decisions_total", "Enforce", "colour", "TooRed", "denied", decision.Validating); n != 1 {
		t.Errorf("colour has denied %v times", n)
	}
	f.recorder.Close(time.Minute)
	for line := range strings.Lines(f.records.String()) {
		if strings.Contains(line, `"colour"`) && strings.Contains(line, `"size"`) {
			t.Errorf("both were asked: %s", line)
		}
	}
}

// Deletions have no object, and whoever asks about another version is asked about the one that the policy matches.
func TestOnePolicyIsAskedAboutEveryOperation(t *testing.T) {
	f := newFixture(t, world{}, policyOf("kept", strings.ReplaceAll(denies("red", "Kept", 403), "input.request.object.", "input.request.oldObject.")))
	deletion := func(change func(*admissionv1.AdmissionRequest)) *decision.Review {
		return reviewOf(t, admissionv1.Delete, `{"name": "x", "red": true}`, change)
	}
	if got := f.Answer(t.Context(), &decision.Question{Endpoint: decision.Validating, Only: "kept", Review: deletion(func(*admissionv1.AdmissionRequest) {})}); got.Allowed || got.Result.Code != http.StatusForbidden {
		t.Errorf("a deletion: got %+v", got)
	}
	converted := deletion(func(r *admissionv1.AdmissionRequest) {
		kind, resource := r.Kind, r.Resource
		kind.Group, resource.Group = "old.example.com", "old.example.com"
		r.RequestKind, r.RequestResource = &kind, &resource
	})
	if got := f.Answer(t.Context(), &decision.Question{Endpoint: decision.Validating, Only: "kept", Review: converted}); got.Allowed {
		t.Errorf("by another name: got %+v", got)
	}
	excluded := deletion(func(r *admissionv1.AdmissionRequest) { r.Resource.Resource = "secrets" })
	if got := f.Answer(t.Context(), &decision.Question{Endpoint: decision.Validating, Only: "kept", Review: excluded}); !got.Allowed {
		t.Errorf("what it does not match: got %+v", got)
	}
}

// A replica that has no policies yet says so, and no verdict is made up.
func TestNoPolicyIsLoaded(t *testing.T) {
	f := newFixture(t, world{})
	f.Swap(nil)
	for _, path := range []string{server.ValidatePolicyPath + "p", server.MutatePolicyPath + "p"} {
		if w := serve(f, path, goodReview); w.Code != http.StatusServiceUnavailable {
			t.Errorf("%s: got %d %s", path, w.Code, w.Body)
		}
	}
}

// Paths are as many as there are policies, and metrics are by what they begin with.
func TestPathsAreBounded(t *testing.T) {
	f := newFixture(t, world{})
	var paths []string
	server.Register(f.Decider, prometheus.NewRegistry(), func(path string, _ http.Handler) { paths = append(paths, path) }, logr.Discard())
	if len(paths) != 4 {
		t.Errorf("registered are %q", paths)
	}
	mux := f.handler()
	for _, path := range []string{"/validate/policies", "/validate/other", "/mutate/policies"} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), http.MethodPost, path, strings.NewReader(goodReview)))
		if w.Code == http.StatusOK {
			t.Errorf("%s answers %s", path, w.Body)
		}
	}
}
