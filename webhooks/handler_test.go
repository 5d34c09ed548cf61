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
	admissionv1 "k8s.io/api/admission/v1"

	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/server"
)

func serve(f *fixture, path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	f.handler().ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), http.MethodPost, path, strings.NewReader(body)))
	return w
}

func TestHandlerAnswersReviews(t *testing.T) {
	f := newFixture(t, world{}, policyOf("p", denies("red", "TooRed", 403)))
	w := serve(f, server.ValidatePath, goodReview)
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != http.StatusOK {
		t.Fatalf("got %d %s: %v", w.Code, w.Body, err)
	}
	if answer.Kind != "AdmissionReview" || answer.Response.UID != "r-1" || answer.Response.Allowed {
		t.Errorf("got %+v", answer.Response)
	}
}

// By whatever path a request reaches the endpoint of all policies, all are asked: none would admit everything.
func TestHandlerAsksAllByAnyPath(t *testing.T) {
	f := newFixture(t, world{}, policyOf("p", denies("red", "TooRed", 403)))
	server.Register(f.Decider, f.registry, func(path string, h http.Handler) {
		if path != server.ValidatePath {
			return
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/behind/a/proxy", strings.NewReader(goodReview)))
		if !strings.Contains(w.Body.String(), `"allowed":false`) {
			t.Errorf("got %s", w.Body)
		}
	}, logr.Discard())
}

// What is no review gets HTTP 400 and a metric, and no verdict: the API server follows the failurePolicy.
func TestHandlerRejectsWhatIsNoReview(t *testing.T) {
	for name, tc := range map[string]struct{ body, cause, text string }{
		"empty":                {"", "not_a_review", "not a JSON document"},
		"not JSON":             {"hello", "not_a_review", "not a JSON document"},
		"a list":               {"[]", "not_a_review", "not an AdmissionReview"},
		"no request":           {`{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}`, "not_a_review", "has no request"},
		"null request":         {`{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": null}`, "not_a_review", "has no request"},
		"no uid":               {strings.Replace(goodReview, `"uid": "r-1",`, "", 1), "not_a_review", "no request.uid"},
		"v1beta1":              {strings.Replace(goodReview, "k8s.io/v1", "k8s.io/v1beta1", 1), "not_a_review", "not AdmissionReview of"},
		"another kind":         {strings.Replace(goodReview, `"AdmissionReview"`, `"Pod"`, 1), "not_a_review", "not AdmissionReview of"},
		"duplicate key":        {strings.Replace(goodReview, `"red": true`, `"red": true, "red": false`, 1), "not_a_review", "duplicate"},
		"duplicate in request": {strings.Replace(goodReview, `"operation": "CREATE"`, `"operation": "CREATE", "operation": "DELETE"`, 1), "not_a_review", "duplicate"},
		"another spelling":     {strings.Replace(goodReview, `"request"`, `"Request"`, 1), "not_a_review", "has no request"},
		"two documents":        {goodReview + goodReview, "not_a_review", "after the end of the JSON document"},
		"request of wrong type": {`{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": "x"}`,
			"not_a_review", "not an AdmissionReview"},
		"too large": {`{"x": "` + strings.Repeat("x", 7<<20) + `"}`, "too_large", "too large"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, world{}, policyOf("p", denies("red", "TooRed", 403)))
			w := serve(f, server.ValidatePath, tc.body)
			if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), tc.text) {
				t.Errorf("got %d %.300s, want 400 with %q", w.Code, w.Body, tc.text)
			}
			if n := f.count(t, "sallyport_rejected_reviews_total", tc.cause, decision.Validating); n != 1 {
				t.Errorf("counted %v rejected reviews for cause %s", n, tc.cause)
			}
			if f.recorder.Close(time.Minute); f.records.Len() > 0 {
				t.Errorf("a decision was recorded: %s", f.records.String())
			}
		})
	}
}

func TestHandlerContainsPanics(t *testing.T) {
	f := newFixture(t, world{}, policyOf("p", denies("red", "TooRed", 403)))
	f.now = nil // as if we had a bug outside any policy
	if w := serve(f, server.MutatePath, goodReview); w.Code != http.StatusInternalServerError || strings.Contains(w.Body.String(), "goroutine") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

func TestRequestsAreNotAnsweredTogether(t *testing.T) {
	f := newFixture(t, world{}, policyOf("p", denies("red", "TooRed", 403)))
	calm := strings.Replace(goodReview, `"red": true`, `"red": false`, 1)
	done := make(chan bool)
	for i := range 64 {
		go func() {
			body := goodReview
			if i%2 == 0 {
				body = calm
			}
			w := serve(f, server.ValidatePath, body)
			done <- strings.Contains(w.Body.String(), `"allowed":true`) == (i%2 == 0)
		}()
	}
	for range 64 {
		if !<-done {
			t.Error("a request got another one's answer")
		}
	}
}
