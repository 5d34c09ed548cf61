package webhooks

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	admissionv1 "k8s.io/api/admission/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// The trace of a request has a span for each policy that decided, and no names of objects or users.
func TestTraceOfADecision(t *testing.T) {
	f := newFixture(t, world{}, policyOf("strict", denies("red", "TooRed", 403)), policyOf("lenient", denies("red", "Reddish", 403), mode(v1alpha1.ModeWarn)))
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	ctx, span := provider.Tracer("test").Start(t.Context(), "review")
	f.Validate(ctx, reviewOf(t, admissionv1.Create, `{"red": true}`, func(r *admissionv1.AdmissionRequest) { r.Name, r.UserInfo.Username = "hidden-name", "hidden-user" }))
	span.End()

	got := map[string]map[string]string{}
	for _, s := range spans.Ended() {
		is := map[string]string{}
		for _, a := range s.Attributes() {
			is[strings.TrimPrefix(string(a.Key), "sallyport.")] = a.Value.String()
			if strings.Contains(a.Value.String(), "hidden") {
				t.Errorf("%s is %s", a.Key, a.Value.String())
			}
		}
		got[s.Name()+" "+is["policy"]] = is
		if s.Name() == "policy" && (s.Parent().SpanID() != span.SpanContext().SpanID() || s.EndTime().Before(s.StartTime())) {
			t.Errorf("the span of policy %s is not within that of the review", is["policy"])
		}
	}
	want := map[string]map[string]string{
		"review ":        {"endpoint": "validate", "operation": "CREATE", "group": "", "resource": "configmaps", "subresource": "", "allowed": "false"},
		"policy strict":  {"policy": "strict", "mode": "Enforce", "verdict": "denied", "reasons": `["TooRed"]`},
		"policy lenient": {"policy": "lenient", "mode": "Warn", "verdict": "warned", "reasons": `["Reddish"]`},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
}
