package webhooks

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
	"sallyport.dev/sallyport/webhooks/server"
)

// Classes of attacks that other admission webhooks have been open to. docs/security.md lists them.

// endless is a body that goes on for as long as somebody reads it.
type endless struct {
	text string
	read int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.text)
	e.text = e.text[n:]
	for ; n < len(p); n++ {
		p[n] = ' '
	}
	e.read += n
	return n, nil
}

// "Unbounded request body", CVE-2026-44247: whoever reaches the webhook has it read, and keep, so much and no more.
func TestUnboundedRequestBody(t *testing.T) {
	for name, text := range map[string]string{
		"of nothing":              "",
		"of a text":               `{"apiVersion": "`,
		"after a review":          goodReview,
		"as more and more fields": `{"a": {"a": {"a": [[[[[`,
	} {
		for _, path := range []string{server.ValidatePath, server.MutatePath, server.ValidatePolicyPath + "p", server.MutatePolicyPath + "p"} {
			f := newFixture(t, world{}, policyOf("p", denies("red", "TooRed", 403)))
			body := &endless{text: text}
			w := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, body)
			r.ContentLength = -1 // it is not said how long it is
			f.handler().ServeHTTP(w, r)
			if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "too large") {
				t.Errorf("%s, %s: got %d %.200s", name, path, w.Code, w.Body)
			}
			if body.read > 7<<20+1 {
				t.Errorf("%s, %s: %d bytes were read", name, path, body.read)
			}
			endpoint := strings.Split(path, "/")[1]
			if n := f.count(t, "sallyport_rejected_reviews_total", "too_large", endpoint); n != 1 {
				t.Errorf("%s, %s: counted %v times", name, path, n)
			}
		}
	}
}

// "Webhook redirect", CVE-2020-8561: an API server that asks Sallyport is never sent to ask somebody else with its rights, whatever the path and
// the body say.
func TestWebhookRedirect(t *testing.T) {
	f := newFixture(t, world{}, policyOf("p", denies("red", "TooRed", 403)))
	mux := f.handler()
	for _, path := range []string{
		"/validate", "/validate/policies", "//validate", "//other.example.com/validate", "/validate/policies//other.example.com", "/validate/policies/../../mutate",
		"/\\other.example.com/validate", "/validate/policies/https:%2f%2fother.example.com", "/validate?next=https://other.example.com", "/",
	} {
		for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodConnect} {
			r := httptest.NewRequestWithContext(t.Context(), method, "https://sallyport/", strings.NewReader(goodReview))
			r.URL.Path, r.URL.RawQuery, _ = strings.Cut(path, "?")
			r.Header.Set("X-Forwarded-Host", "other.example.com")
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, r)
			to, err := url.Parse(w.Header().Get("Location"))
			if err != nil || to.Host != "" {
				t.Errorf("%s %s: sent to %q", method, path, w.Header().Get("Location"))
			}
		}
	}
}

// "Swallowed lookup error": whatever cannot be found out about a request follows onError, for each thing that is asked.
func TestSwallowedLookupErrorAdmitsNothing(t *testing.T) {
	selecting := func(s *v1alpha1.RegoPolicySpec) {
		s.Match.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "blue"}}
	}
	asking := func(fact string) string {
		return "facts.x := " + fact + "\n\n" + denies("red", "TooRed", 403) + "warn contains \"w\" if input.facts.x == 7\n"
	}
	gone := world{err: errors.New("gone")}
	for name, tc := range map[string]struct {
		world  world
		policy v1alpha1.RegoPolicy
	}{
		"the labels of the namespace":    {gone, policyOf("p", denies("red", "TooRed", 403), selecting)},
		"the namespace, which is not":    {world{}, policyOf("p", denies("red", "TooRed", 403), selecting)},
		"the mode of the namespace":      {gone, policyOf("p", denies("red", "TooRed", 403), inStage("test", v1alpha1.ModeAudit))},
		"the mode of one which is not":   {world{}, policyOf("p", denies("red", "TooRed", 403), inStage("test", v1alpha1.ModeAudit))},
		"objects":                        {gone, policyOf("p", asking(`{"apiVersion": "v1", "kind": "Service", "namespace": "ns"}`))},
		"one object":                     {gone, policyOf("p", asking(`{"apiVersion": "v1", "kind": "Service", "namespace": "ns", "name": "x"}`))},
		"the rights of the requester":    {gone, policyOf("p", asking(`{"access": {"verb": "get", "resource": "secrets"}}`))},
		"the parent":                     {gone, policyOf("p", asking(`{"parent": true}`))},
		"objects that are not there yet": {world{err: facts.ErrNotSynced}, policyOf("p", asking(`{"apiVersion": "v1", "kind": "Service", "namespace": "ns"}`))},
	} {
		t.Run(name, func(t *testing.T) {
			for _, operation := range []admissionv1.Operation{admissionv1.Create, admissionv1.Update, admissionv1.Delete} {
				got := newFixture(t, tc.world, tc.policy).Validate(t.Context(), reviewOf(t, operation, harmless))
				if got.Allowed || got.Result.Reason != "FactUnavailable" {
					t.Errorf("%s: got %+v", operation, got)
				}
			}
		})
	}
}

// "Policy-driven denial of service": a policy that never ends, that panics or that cannot be read costs what it is about, and no other policy
// anything.
func TestPolicyDrivenDenialOfService(t *testing.T) {
	impatient := func(s *v1alpha1.RegoPolicySpec) { s.TimeoutMilliseconds = 20 }
	const endlessly = "warn contains \"w\" if { xs := split(input.request.object.spec.text, \"\"); some a in xs; some b in xs; some c in xs; some d in xs; " +
		"concat(\"\", [a, b, c, d]) == \"never\" }\n"
	spec := `{"name": "x", "red": true, "text": "` + strings.Repeat("x", 5000) + `"}`
	for name, bad := range map[string]v1alpha1.RegoPolicy{
		"endless":         policyOf("bad", endlessly, impatient),
		"with a panic":    policyOf("bad", "facts.x := {\"apiVersion\": \"v1\", \"kind\": \"Service\"}\n\nwarn contains \"w\" if input.facts.x\n"),
		"without a match": policyOf("bad", endlessly, func(s *v1alpha1.RegoPolicySpec) { s.Match = nil }),
		"of no resources": policyOf("bad", endlessly, func(s *v1alpha1.RegoPolicySpec) { s.Match.Resources = nil }),
		"that is no Rego": policyOf("bad", "x := \n"),
		"of nothing":      {ObjectMeta: metav1.ObjectMeta{Name: "bad"}},
	} {
		t.Run(name, func(t *testing.T) {
			var c catalogOf
			f := newFixture(t, world{})
			f.facts = panicking{}
			f.Swap(c.build(t, bad, policyOf("good", denies("red", "TooRed", 403))))
			for range 3 {
				got := f.Validate(t.Context(), reviewOf(t, admissionv1.Create, spec))
				if got.Allowed || !strings.Contains(got.Result.Message, "[good/TooRed] x has red") {
					t.Errorf("got %+v", got.Result)
				}
			}
		})
	}
}

// panicking is a world in which whoever asks meets a bug of ours.
type panicking struct{}

func (panicking) For(*admissionv1.AdmissionRequest, facts.Subject) engine.Reader { return panicking{} }

func (panicking) Read(context.Context, engine.Query) (engine.Answer, error) {
	var none *engine.Answer
	return *none, nil
}
