package webhooks

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionv1 "k8s.io/api/admission/v1"

	"sallyport.dev/sallyport/webhooks/engine"
)

// Of a large request the record tells who asked for what, and no more; it costs no more than its text.
func TestRecordsOfLargeRequests(t *testing.T) {
	for name, spec := range map[string]string{
		"many bytes":  `{"name": "x", "red": true, "text": "` + strings.Repeat("y", recordedBytes) + `"}`,
		"many values": `{"name": "x", "red": true, "list": [` + strings.Repeat("{},", recordedValues) + `0]}`,
	} {
		f := newFixture(t, world{}, policyOf("p", denies("red", "TooRed", 403)))
		review := reviewOf(t, admissionv1.Update, spec, func(r *admissionv1.AdmissionRequest) { r.UserInfo.Username = "ann" })
		f.Validate(t.Context(), review)
		record := f.only(t)
		text, err := json.Marshal(record.Request)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{`"digest":"sha256:`, `"username":"ann"`, `"operation":"UPDATE"`, `"kind":"ConfigMap"`, `"uid":"u-1"`, `"name":"cm"`, `"namespace":"ns"`} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s: no %s in %s", name, want, text)
			}
		}
		if !record.TooLarge || len(text) > 4096 || len(record.Policies) != 1 || record.Policies[0].Verdict != "denied" {
			t.Errorf("%s: got %d bytes, %+v", name, len(text), record.Policies)
		}
		again, err := record.ReviewOf()
		if err != nil || again.Request.UserInfo.Username != "ann" || again.Subject().UID != "u-1" && again.Subject().Name != "cm" {
			t.Errorf("%s: read back as %+v: %v", name, again, err)
		}
	}
}

// What waits to be written is bounded in bytes, and given free when it is written.
func TestRecordsThatWaitAreBounded(t *testing.T) {
	blocked, out := make(chan struct{}), &bytes.Buffer{}
	recorder := NewRecorder(prometheus.NewRegistry(), writerFunc(func(p []byte) (int, error) {
		<-blocked
		return out.Write(p)
	}), false)
	f := newFixture(t, world{}, policyOf("p", denies("red", "TooRed", 403)))
	gate := NewGate(f.set.Load(), world{}, recorder, f.now)
	review := reviewOf(t, admissionv1.Create, `{"name": "x", "text": "`+strings.Repeat("y", recordedBytes/2)+`"}`)
	for range queued {
		gate.Validate(t.Context(), review)
	}
	if waits := recorder.queue.Size(); waits > queuedBytes || waits < queuedBytes/2 {
		t.Errorf("%d bytes wait", waits)
	}
	if lost := testutil.ToFloat64(recorder.metrics.lost); lost < queued/4 {
		t.Errorf("%v records are lost", lost)
	}
	close(blocked)
	recorder.Close(time.Minute)
	if waits := recorder.queue.Size(); waits != 0 || out.Len() == 0 {
		t.Errorf("%d bytes wait after all were written", waits)
	}
}

// If the decisions about one namespace are more than can be recorded, its own records are lost, and not those of another namespace.
func TestRecordsTakeTurns(t *testing.T) {
	blocked, out := make(chan struct{}), &bytes.Buffer{}
	recorder := NewRecorder(prometheus.NewRegistry(), writerFunc(func(p []byte) (int, error) {
		<-blocked
		return out.Write(p)
	}), false)
	f := newFixture(t, world{}, policyOf("p", denies("red", "TooRed", 403)))
	gate := NewGate(f.set.Load(), world{}, recorder, f.now)
	for range 2 * queued {
		gate.Validate(t.Context(), reviewOf(t, admissionv1.Create, harmless, requestedBy("mallory", "hostile")))
	}
	gate.Validate(t.Context(), reviewOf(t, admissionv1.Create, harmless, requestedBy("alice", "honest")))
	close(blocked)
	recorder.Close(time.Minute)
	lines := strings.Split(out.String(), "\n")
	at := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, `"alice"`) })
	if at < 0 || at > 2 {
		t.Errorf("%d records, the one of the other namespace at %d", len(lines), at)
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
		if value, tooLarge := recordedFact(v); !tooLarge || value != nil {
			t.Errorf("%s: it is recorded", name)
		}
	}
	for name, v := range map[string]engine.Value{"null": {}, "a list": engine.List(each[:10]), "text": engine.Text([]byte(`{"a": [1, true, null]}`))} {
		if _, tooLarge := recordedFact(v); tooLarge {
			t.Errorf("%s: a small one is left out", name)
		}
	}
}
