package webhooks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/time/rate"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/double/toys"
	"sallyport.dev/sallyport/test/support/shipped"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/events"
	"sallyport.dev/sallyport/webhooks/facts"
	"sallyport.dev/sallyport/webhooks/grants"
	"sallyport.dev/sallyport/webhooks/record"
	"sallyport.dev/sallyport/webhooks/server"
)

const denyMetadata, goodReview, fullReview = toys.DenyMetadata, toys.GoodReview, toys.FullReview

var denies, policyOf, onErrorAllow = toys.Denies, toys.PolicyOf, toys.OnErrorAllow

func mode(m v1alpha1.PolicyMode) func(*v1alpha1.RegoPolicySpec) {
	return func(s *v1alpha1.RegoPolicySpec) { s.Mode = m }
}

// world answers every fact the same.
type world struct {
	answer any
	err    error
}

func (w world) For(*admissionv1.AdmissionRequest, facts.Subject) engine.Reader { return w }

func (w world) Read(context.Context, engine.Query) (engine.Answer, error) {
	if w.err != nil {
		return engine.Answer{}, w.err
	}
	v, err := engine.ValueOf(w.answer)
	return engine.Answer{Value: v, Live: true}, err
}

// fixture is a gate with its recorder. Its facts and its clock can be replaced.
type fixture struct {
	*decision.Decider
	set      *catalog.Set
	facts    decision.FactSource
	now      func() time.Time
	recorder *record.Recorder
	records  bytes.Buffer
	registry *prometheus.Registry
	events   *events.Writer
	// unwritten has the metric of events.
	unwritten *prometheus.Registry
	once      sync.Once
	mux       *http.ServeMux
}

// For answers with the facts that the fixture has now.
func (f *fixture) For(request *admissionv1.AdmissionRequest, subject facts.Subject) engine.Reader {
	return f.facts.For(request, subject)
}

// Validate asks every policy that the request meets whether it is admitted.
func (f *fixture) Validate(ctx context.Context, review *decision.Review) *admissionv1.AdmissionResponse {
	return validate(ctx, f.Decider, review)
}

// Mutate asks every policy that the request meets what to change in the object.
func (f *fixture) Mutate(ctx context.Context, review *decision.Review) *admissionv1.AdmissionResponse {
	return f.Answer(ctx, &decision.Question{Endpoint: decision.Mutating, Review: review})
}

func validate(ctx context.Context, gate *decision.Decider, review *decision.Review) *admissionv1.AdmissionResponse {
	return gate.Answer(ctx, &decision.Question{Endpoint: decision.Validating, Review: review})
}

// atOnce are limits by which stored objects are read without a delay.
var atOnce = events.Limits{Rate: rate.Inf, Burst: 1, Pending: 128}

// handler returns the endpoints of the gate.
func (f *fixture) handler() *http.ServeMux {
	f.once.Do(func() {
		f.mux = http.NewServeMux()
		server.Register(f.Decider, f.registry, f.mux.Handle, logr.Discard())
	})
	return f.mux
}

// writeEvents lets the gate write events to e.
func (f *fixture) writeEvents(e events.Recorder, limits events.Limits) {
	f.unwritten = prometheus.NewRegistry()
	f.events = events.NewWriter(e, f.unwritten, limits)
	f.recorder.WriteEvents(f.events)
}

// count returns the value of a counter, with labels in the order of their names.
func (f *fixture) count(t *testing.T, name string, labels ...string) (n float64) {
	t.Helper()
	families, err := prometheus.Gatherers{f.registry, f.unwritten}.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var values []string
			for _, l := range m.GetLabel() {
				values = append(values, l.GetValue())
			}
			if family.GetName() == name && (len(labels) == 0 || slices.Equal(values, labels)) {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

func newFixture(t *testing.T, w world, policies ...v1alpha1.RegoPolicy) *fixture {
	t.Helper()
	return fixtureOf(t, new(catalog.Sets), w, policies)
}

// shippedSets are those of the tests that ask the shipped policies, which take long to compile with the race detector.
var shippedSets catalog.Sets

// newShippedFixture has the shipped policies, or those of a list that begins with them.
func newShippedFixture(t *testing.T, w world, policies ...v1alpha1.RegoPolicy) *fixture {
	t.Helper()
	if len(policies) == 0 {
		policies = shipped.Policies(t)
	}
	return fixtureOf(t, &shippedSets, w, policies)
}

func fixtureOf(t *testing.T, sets *catalog.Sets, w world, policies []v1alpha1.RegoPolicy) *fixture {
	t.Helper()
	set, err := sets.Compile(policies, grants.Patchable{Kinds: grants.Kinds{"configmaps": grants.All, "pods": grants.Metadata, "secrets": grants.All}})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{set: set, facts: w, registry: prometheus.NewRegistry(), unwritten: prometheus.NewRegistry()}
	f.now = func() time.Time { return time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC) }
	f.recorder = record.NewRecorder(f.registry, &f.records, false)
	f.Decider = decision.NewDecider(set, f, f.recorder, func() time.Time { return f.now() })
	return f
}

// reviewOf a ConfigMap whose spec is the text; options of the API server's calls can be changed.
func reviewOf(t *testing.T, operation admissionv1.Operation, spec string, change ...func(*admissionv1.AdmissionRequest)) *decision.Review {
	t.Helper()
	object := runtime.RawExtension{Raw: []byte(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cm", "namespace": "ns", "uid": "u-1"}, "spec": ` + spec + `}`)}
	request := &admissionv1.AdmissionRequest{
		UID: "r-1", Operation: operation, Namespace: "ns", Name: "cm",
		Kind:     metav1.GroupVersionKind{Version: "v1", Kind: "ConfigMap"},
		Resource: metav1.GroupVersionResource{Version: "v1", Resource: "configmaps"},
	}
	if operation != admissionv1.Delete {
		request.Object = object
	}
	if operation != admissionv1.Create {
		request.OldObject = object
	}
	for _, c := range change {
		c(request)
	}
	return toys.Review(t, request)
}

func TestDenialsOfAllPoliciesInOneResponse(t *testing.T) {
	f := newFixture(t, world{},
		policyOf("colour", denies("red", "TooRed", 409)),
		policyOf("size", denies("big", "TooBig", 403)))
	got := f.Validate(t.Context(), reviewOf(t, admissionv1.Create, `{"name": "x", "red": true, "big": true}`))
	if got.Allowed || got.UID != "r-1" {
		t.Fatalf("got %+v", got)
	}
	want := &metav1.Status{
		Status: "Failure", Code: 403, Reason: "Forbidden",
		Message: "[colour/TooRed] x has red\n[size/TooBig] x has big",
		Details: &metav1.StatusDetails{Kind: "ConfigMap", Name: "cm", UID: "u-1", Causes: []metav1.StatusCause{
			{Type: "colour/TooRed", Message: "[colour/TooRed] x has red"}, {Type: "size/TooBig", Message: "[size/TooBig] x has big"},
		}},
	}
	if diff := cmp.Diff(want, got.Result); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if got.AuditAnnotations["verdict"] != "denied" || !strings.Contains(got.AuditAnnotations["policies"], "colour@") {
		t.Errorf("got audit annotations %v", got.AuditAnnotations)
	}
	for key := range got.AuditAnnotations {
		if strings.Contains(key, "/") || len(key) > 63 {
			t.Errorf("the API server refuses the audit annotation key %q", key)
		}
	}
}

func TestCodeFitsTheRequest(t *testing.T) {
	serverSideApply := func(r *admissionv1.AdmissionRequest) {
		r.Object.Raw = bytes.Replace(r.Object.Raw, []byte(`"uid"`), []byte(`"managedFields": [{"manager": "kubectl", "operation": "Apply"}], "uid"`), 1)
	}
	for name, tc := range map[string]struct {
		operation admissionv1.Operation
		code      int
		change    func(*admissionv1.AdmissionRequest)
		want      int32
	}{
		"409 on CREATE":                     {admissionv1.Create, 409, nil, 409},
		"422 on CREATE":                     {admissionv1.Create, 422, nil, 422},
		"429 is for evictions only":         {admissionv1.Create, 429, nil, 403},
		"409 on UPDATE would retry a PATCH": {admissionv1.Update, 409, nil, 403},
		"409 on a CREATE by apply":          {admissionv1.Create, 409, serverSideApply, 403},
	} {
		t.Run(name, func(t *testing.T) {
			var change []func(*admissionv1.AdmissionRequest)
			if tc.change != nil {
				change = append(change, tc.change)
			}
			f := newFixture(t, world{}, policyOf("p", denies("red", "TooRed", tc.code)))
			got := f.Validate(t.Context(), reviewOf(t, tc.operation, `{"name": "x", "red": true}`, change...))
			if got.Allowed || got.Result.Code != tc.want || got.Result.Reason != "TooRed" {
				t.Errorf("got %+v, want code %d", got.Result, tc.want)
			}
		})
	}
}

func TestModes(t *testing.T) {
	red := denies("red", "TooRed", 403)
	const broken = "warn contains \"w\" if to_number(input.request.object.spec.name) == 1\n"
	for name, tc := range map[string]struct {
		policy   v1alpha1.RegoPolicy
		allowed  bool
		warnings []string
		verdict  string
	}{
		"Enforce":                   {policyOf("p", red), false, nil, "denied"},
		"Warn":                      {policyOf("p", red, mode(v1alpha1.ModeWarn)), true, []string{"[p/TooRed] would be denied: x has red"}, "warned"},
		"Audit":                     {policyOf("p", red, mode(v1alpha1.ModeAudit)), true, nil, "audited"},
		"an error, Enforce":         {policyOf("p", broken), false, nil, "error_denied"},
		"an error, Audit":           {policyOf("p", broken, mode(v1alpha1.ModeAudit)), true, nil, "error_allowed"},
		"an error, Enforce, Allow":  {policyOf("p", broken, onErrorAllow), true, []string{"[p/EvaluationFailed]"}, "error_allowed"},
		"an error, Warn, Deny":      {policyOf("p", broken, mode(v1alpha1.ModeWarn)), true, []string{"[p/EvaluationFailed] would be denied: "}, "error_allowed"},
		"a warning of its own":      {policyOf("p", "warn contains \"careful\" if true\n"), true, []string{"careful"}, "allowed"},
		"a warning in mode Audit":   {policyOf("p", "warn contains \"careful\" if true\n", mode(v1alpha1.ModeAudit)), true, nil, "allowed"},
		"a warning beside a denial": {policyOf("p", red+"warn contains \"careful\" if true\n", mode(v1alpha1.ModeWarn)), true, []string{"[p/TooRed] would be denied: x has red", "careful"}, "warned"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, world{}, tc.policy)
			got := f.Validate(t.Context(), reviewOf(t, admissionv1.Create, `{"name": "x", "red": true}`))
			if got.Allowed != tc.allowed || len(got.Warnings) != len(tc.warnings) {
				t.Fatalf("got allowed %v, warnings %q, result %+v", got.Allowed, got.Warnings, got.Result)
			}
			for i, w := range tc.warnings {
				if !strings.HasPrefix(got.Warnings[i], w) {
					t.Errorf("got warning %q, want %q", got.Warnings[i], w)
				}
			}
			if record := f.only(t); record.Policies[0].Verdict != tc.verdict || record.Allowed != tc.allowed {
				t.Errorf("got record %+v, want verdict %s", record, tc.verdict)
			}
		})
	}
}

// only gives the one record that was written. The fixture records no more after it.
func (f *fixture) only(t *testing.T) record.Record {
	t.Helper()
	f.recorder.Close(time.Minute)
	var written record.Record
	if err := json.Unmarshal(f.records.Bytes(), &written); err != nil {
		t.Fatalf("reading the record %q: %v", f.records.String(), err)
	}
	return written
}

func TestErrorsAreNamedAndFollowOnError(t *testing.T) {
	const asks = `facts.secrets := {"apiVersion": "v1", "kind": "Service", "namespace": "ns"}

warn contains "w" if count(input.facts.secrets) == 7
`
	for name, tc := range map[string]struct {
		err    error
		code   int32
		reason metav1.StatusReason
		text   string
	}{
		"unreadable": {errors.New("connection refused"), 500, "FactUnavailable", "[p/FactUnavailable] policy evaluation failed: facts.secrets: connection refused"},
		"not synced": {fmt.Errorf("Service: %w", facts.ErrNotSynced), 503, "FactUnavailable", "facts.secrets: Service: not synced yet"},
	} {
		t.Run(name, func(t *testing.T) {
			got := newFixture(t, world{err: tc.err}, policyOf("p", asks)).Validate(t.Context(), reviewOf(t, admissionv1.Create, `{}`))
			if got.Allowed || got.Result.Code != tc.code || got.Result.Reason != tc.reason || !strings.Contains(got.Result.Message, tc.text) {
				t.Errorf("got %+v", got.Result)
			}
			if !newFixture(t, world{err: tc.err}, policyOf("p", asks, onErrorAllow)).Validate(t.Context(), reviewOf(t, admissionv1.Create, `{}`)).Allowed {
				t.Error("onError Allow did not let the request pass")
			}
		})
	}
}

func TestOneBrokenPolicyDoesNotSilenceAnother(t *testing.T) {
	f := newFixture(t, world{},
		policyOf("broken", "warn contains \"w\" if to_number(\"x\") == 1\n", onErrorAllow),
		policyOf("good", denies("red", "TooRed", 403)))
	got := f.Validate(t.Context(), reviewOf(t, admissionv1.Create, `{"name": "x", "red": true}`))
	if got.Allowed || got.Result.Message != "[good/TooRed] x has red" {
		t.Errorf("got %+v", got)
	}
}

func TestMutationJoinsPatches(t *testing.T) {
	add := func(path string) string {
		return fmt.Sprintf("patch contains {\"op\": \"add\", \"path\": %q, \"value\": input.now} if true\n", path)
	}
	f := newFixture(t, world{}, policyOf("a", add("/spec/first")), policyOf("b", add("/spec/second")))
	got := f.Mutate(t.Context(), reviewOf(t, admissionv1.Create, `{}`))
	want := `[{"op":"add","path":"/spec/first","value":"2026-11-20T10:00:00.000000000Z"},{"op":"add","path":"/spec/second","value":"2026-11-20T10:00:00.000000000Z"}]`
	if !got.Allowed || string(got.Patch) != want || *got.PatchType != admissionv1.PatchTypeJSONPatch {
		t.Errorf("got %s", got.Patch)
	}
	f = newFixture(t, world{}, policyOf("a", add("/nothing/here")))
	got = f.Mutate(t.Context(), reviewOf(t, admissionv1.Create, `{}`))
	if got.Allowed || got.Patch != nil || !strings.HasPrefix(got.Result.Message, "[a/ContractViolated] policy evaluation failed: applying its patch") {
		t.Errorf("got %+v for a patch that does not apply", got.Result)
	}
	got = f.Mutate(t.Context(), reviewOf(t, admissionv1.Delete, `{}`))
	if got.Allowed || !strings.Contains(got.Result.Message, "the request has no object") {
		t.Errorf("got %+v for a patch of nothing", got.Result)
	}
	f = newFixture(t, world{}, policyOf("a", denies("red", "TooRed", 403)))
	if got = f.Mutate(t.Context(), reviewOf(t, admissionv1.Create, `{"name": "x", "red": true}`)); !got.Allowed {
		t.Errorf("a deny rule refused on the mutating endpoint: %+v", got.Result)
	}
}

func TestExclusionsAndOtherResourcesMeetNoPolicy(t *testing.T) {
	exclude := func(s *v1alpha1.RegoPolicySpec) {
		s.Match.ExcludeNamespaces, s.Match.ExcludeUsers, s.Match.ExcludeGroups = []string{"calm"}, []string{"root"}, []string{"admins"}
	}
	f := newFixture(t, world{}, policyOf("p", denies("red", "TooRed", 403), exclude))
	for name, change := range map[string]func(*admissionv1.AdmissionRequest){
		"namespace":     func(r *admissionv1.AdmissionRequest) { r.Namespace = "calm" },
		"user":          func(r *admissionv1.AdmissionRequest) { r.UserInfo.Username = "root" },
		"group":         func(r *admissionv1.AdmissionRequest) { r.UserInfo.Groups = []string{"a", "admins"} },
		"resource":      func(r *admissionv1.AdmissionRequest) { r.Resource.Resource = "secrets" },
		"subresource":   func(r *admissionv1.AdmissionRequest) { r.SubResource = "status" },
		"group of kind": func(r *admissionv1.AdmissionRequest) { r.Resource.Group = "apps" },
		"version":       func(r *admissionv1.AdmissionRequest) { r.Resource.Version = "v2" },
	} {
		if got := f.Validate(t.Context(), reviewOf(t, admissionv1.Create, `{"name": "x", "red": true}`, change)); !got.Allowed {
			t.Errorf("%s: got %+v", name, got.Result)
		}
	}
	if f.Validate(t.Context(), reviewOf(t, admissionv1.Create, `{"name": "x", "red": true}`)).Allowed {
		t.Error("the policy does not deny at all")
	}
}

func TestRecordsKeepNoSecrets(t *testing.T) {
	secret := map[string]any{"apiVersion": "v1", "kind": "Secret", "data": map[string]any{"password": "aHVudGVyMg=="}}
	const asks = `facts.secrets := {"apiVersion": "v1", "kind": "Service", "namespace": "ns"}

warn contains "w" if count(input.facts.secrets) == 7
`
	f := newFixture(t, world{answer: []any{secret}}, policyOf("p", asks))
	f.Validate(t.Context(), reviewOf(t, admissionv1.Create, `{"metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "hunter2", "a": "kept"}}}`))
	record := f.only(t)
	text := f.records.String()
	if strings.Contains(text, "aHVudGVyMg") || strings.Contains(text, "hunter2") || !strings.Contains(text, "kept") {
		t.Errorf("got record %s", text)
	}
	if record.Policies[0].Facts["secrets"].Value == nil {
		t.Error("the record has lost the fact itself")
	}
}

// By default only what somebody may ask about is recorded: what a policy denies or warns of, in any mode, what it could not decide, and overrides.
func TestNotableDecisionsAreRecorded(t *testing.T) {
	red := denies("red", "TooRed", 403)
	for name, tc := range map[string]struct {
		spec, rules string
		mode        v1alpha1.PolicyMode
		records     int
	}{
		"allowed":           {"blue", red, v1alpha1.ModeEnforce, 0},
		"denied":            {"red", red, v1alpha1.ModeEnforce, 1},
		"warned of by mode": {"red", red, v1alpha1.ModeWarn, 1},
		"audited":           {"red", red, v1alpha1.ModeAudit, 1},
		"a warning":         {"blue", "warn contains \"w\" if true\n", v1alpha1.ModeEnforce, 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := policyOf("p", tc.rules)
			p.Spec.Mode = tc.mode
			f := newFixture(t, world{}, p)
			var records bytes.Buffer
			recorder := record.NewRecorder(prometheus.NewRegistry(), &records, true)
			validate(t.Context(), decision.NewDecider(f.set, world{}, recorder, time.Now), reviewOf(t, admissionv1.Create, fmt.Sprintf(`{"name": "n", %q: true}`, tc.spec)))
			recorder.Close(time.Minute)
			if got := strings.Count(records.String(), "\n"); got != tc.records {
				t.Errorf("%d records", got)
			}
		})
	}
}

// The manager ends its recorder while a last request may still be under way.
func TestDecisionsAfterTheRecorderHasEnded(t *testing.T) {
	f := newFixture(t, world{}, policyOf("p", denies("red", "TooRed", 403)))
	f.recorder.Close(time.Minute)
	if f.Validate(t.Context(), reviewOf(t, admissionv1.Create, `{"name": "x", "red": true}`)).Allowed {
		t.Error("admitted")
	}
}

func TestMetricsCountVerdicts(t *testing.T) {
	f := newFixture(t, world{}, policyOf("p", denies("red", "TooRed", 403)))
	f.Validate(t.Context(), reviewOf(t, admissionv1.Create, `{"name": "x", "red": true}`))
	f.Validate(t.Context(), reviewOf(t, admissionv1.Create, `{"name": "x"}`))
	want := `# HELP sallyport_decisions_total Policy decisions on admission requests, by policy, mode, verdict and reason. A decision counts once for each of its denials.
# TYPE sallyport_decisions_total counter
sallyport_decisions_total{mode="Enforce",policy="p",reason="",verdict="allowed",webhook="validate"} 1
sallyport_decisions_total{mode="Enforce",policy="p",reason="TooRed",verdict="denied",webhook="validate"} 1
`
	if err := testutil.GatherAndCompare(f.registry, strings.NewReader(want), "sallyport_decisions_total"); err != nil {
		t.Error(err)
	}
}
