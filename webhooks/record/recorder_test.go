package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/double/toys"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/engine"
)

// gateTo returns a gate that denies red objects.
func gateTo(t *testing.T, recorder *Recorder) *decision.Decider {
	t.Helper()
	set, err := catalog.Compile([]v1alpha1.RegoPolicy{toys.PolicyOf("p", toys.Denies("red", "TooRed", 403))})
	if err != nil {
		t.Fatal(err)
	}
	return decision.NewDecider(set, toys.World{}, recorder, time.Now)
}

// ask reports whether the gate admits a review with replaced texts.
func ask(t *testing.T, gate *decision.Decider, replaced ...string) bool {
	t.Helper()
	review, err := decision.Decode([]byte(strings.NewReplacer(replaced...).Replace(toys.GoodReview)))
	if err != nil {
		t.Fatal(err)
	}
	return gate.Answer(t.Context(), &decision.Question{Endpoint: decision.Validating, Review: review}).Allowed
}

// What waits to be written is bounded in bytes, and given free when it is written.
func TestRecordsThatWaitAreBounded(t *testing.T) {
	blocked, out := make(chan struct{}), &bytes.Buffer{}
	recorder := NewRecorder(prometheus.NewRegistry(), writerFunc(func(p []byte) (int, error) {
		<-blocked
		return out.Write(p)
	}), false)
	gate := gateTo(t, recorder)
	for range queued {
		ask(t, gate, `"red": true`, `"text": "`+strings.Repeat("y", recordedBytes/2)+`"`)
	}
	if lost := testutil.ToFloat64(recorder.metrics.lost); lost < queued/4 {
		t.Errorf("%v records are lost", lost)
	}
	close(blocked)
	recorder.Close(time.Minute)
	if !recorder.bytes.TryAcquire(queuedBytes) || out.Len() < queuedBytes/2 {
		t.Errorf("%d bytes are written, and not all of them are free again", out.Len())
	}
}

// Who looks into the log sees why records are lost, and not a line for each of them.
func TestLostRecordsAreReported(t *testing.T) {
	full := errors.New("no space left on device")
	var causes []error
	recorder := NewRecorder(prometheus.NewRegistry(), writerFunc(func([]byte) (int, error) { return 0, full }), false)
	recorder.OnLost(func(cause error) { causes = append(causes, cause) })
	gate := gateTo(t, recorder)
	for range 3 {
		ask(t, gate)
	}
	recorder.Close(time.Minute)
	if lost := testutil.ToFloat64(recorder.metrics.lost); lost != 3 || len(causes) != 1 || !errors.Is(causes[0], full) {
		t.Errorf("%v records are lost, reported: %v", lost, causes)
	}
}

// Whoever is to report the bug sees both results.
func TestDifferencesAreReported(t *testing.T) {
	registry := prometheus.NewRegistry()
	recorder := NewRecorder(registry, nil, false)
	var reported []string
	recorder.OnDifference(func(policy, difference string) { reported = append(reported, policy+": "+difference) })
	recorder.Checked("p", "")
	recorder.Checked("p", "the program: 1; topdown: 2")
	if diff := cmp.Diff([]string{"p: the program: 1; topdown: 2"}, reported); diff != "" {
		t.Errorf("reported (-want +got):\n%s", diff)
	}
	for result, want := range map[string]float64{"same": 1, "differs": 1} {
		if got := testutil.ToFloat64(recorder.metrics.checks.WithLabelValues("p", result)); got != want {
			t.Errorf("%s: counted %v times", result, got)
		}
	}
}

// A policy that is deleted leaves no metrics.
func TestMetricsOfDeletedPolicies(t *testing.T) {
	registry := prometheus.NewRegistry()
	gate := gateTo(t, NewRecorder(registry, nil, false))
	ask(t, gate)
	count := func() (n int) {
		n, err := testutil.GatherAndCount(registry, "sallyport_decisions_total", "sallyport_decision_duration_seconds")
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if got := count(); got != 2 {
		t.Errorf("a policy that decided has %d metrics", got)
	}
	other, err := catalog.Compile([]v1alpha1.RegoPolicy{toys.PolicyOf("q", toys.Denies("red", "TooRed", 403))})
	if err != nil {
		t.Fatal(err)
	}
	gate.Swap(other)
	if got := count(); got != 0 {
		t.Errorf("%d metrics are left", got)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// A fact that is large is left out, too, however it is held.
func TestRecordsOfLargeFacts(t *testing.T) {
	many := make([]any, 10_000)
	each := make([]engine.Value, len(many))
	for i := range many {
		many[i] = map[string]any{"metadata": map[string]any{"name": "a-pod-of-many", "namespace": "ns"}}
		each[i] = engine.Text([]byte(`{"metadata": {"name": "a-pod-of-many", "namespace": "ns"}}`))
	}
	terms, err := engine.ValueOf(many)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(many)
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]engine.Value{"a list": engine.List(each), "terms": terms, "text": engine.Text(text)} {
		if value, tooLarge := factValue(v); !tooLarge || value != nil {
			t.Errorf("%s: it is recorded", name)
		}
	}
	for name, v := range map[string]engine.Value{"null": {}, "a list": engine.List(each[:10]), "text": engine.Text([]byte(`{"a": [1, true, null]}`))} {
		if _, tooLarge := factValue(v); tooLarge {
			t.Errorf("%s: a small one is left out", name)
		}
	}
}

// Whoever takes the records may stall for good: decisions go on, and what is lost is counted.
func TestStalledRecordsHoldNobodyUp(t *testing.T) {
	stalled, writer := io.Pipe() // nobody reads
	defer stalled.Close()
	recorder := NewRecorder(prometheus.NewRegistry(), writer, false)
	gate := gateTo(t, recorder)
	const requests = queued + 10
	for range requests {
		if ask(t, gate) {
			t.Fatal("admitted")
		}
	}
	if lost := testutil.ToFloat64(recorder.metrics.lost); lost < requests-queued-1 {
		t.Errorf("%v records are counted as lost", lost)
	}
}
