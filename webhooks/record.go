package webhooks

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/fair"
	"sallyport.dev/sallyport/webhooks/engine"
)

// RecordVersion is the version of written records. Adding fields does not change it.
const RecordVersion = 1

// Record is a decision with all its input, so that the same policies give the same decision when it is replayed. It omits the data
// of Secrets and the last-applied annotation.
type Record struct {
	// Version is [RecordVersion]. It is the first field of every record, and of no other line of a log.
	Version  int       `json:"decisionRecord"`
	ID       types.UID `json:"id"`
	Time     string    `json:"time"`
	Endpoint string    `json:"endpoint"`
	// Only is the name of the only policy that was evaluated.
	Only string `json:"only,omitempty"`
	// GateOpen is set if the gate was open for the request.
	GateOpen *Opening `json:"gateOpen,omitempty"`
	Allowed  bool     `json:"allowed"`
	DryRun   bool     `json:"dryRun,omitempty"`
	// Verified reports whether the request, with its user, is from a verified API server or from Sallyport. Any client that reaches
	// the port can forge other requests.
	Verified bool `json:"verified"`
	// Request is the AdmissionRequest as policies saw it. If TooLarge is set, large parts are replaced by [Omitted], and the
	// decision cannot be replayed.
	Request  any              `json:"request"`
	TooLarge bool             `json:"tooLarge,omitempty"`
	Policies []PolicyDecision `json:"policies"`
	// Facts are the answers to queries that were not of policies: the namespace if policies select by its labels, and those for
	// checking an override.
	Facts    map[string]FactRecord `json:"facts,omitempty"`
	Warnings []string              `json:"warnings,omitempty"`
}

// PolicyDecision is the result of one policy.
type PolicyDecision struct {
	Policy   string `json:"policy"`
	Revision string `json:"revision"`
	PolicySaid
	Confirmation engine.Confirmation `json:"confirmation,omitempty"`
	// Override is set if the request was admitted in spite of Denials or Error.
	Override *Override `json:"override,omitempty"`
	// Outcome is the result that a reconciler acts on.
	Outcome      any                   `json:"outcome,omitempty"`
	Facts        map[string]FactRecord `json:"facts,omitempty"`
	Milliseconds float64               `json:"milliseconds"`
}

// PolicySaid is the result of a policy and its effect.
type PolicySaid struct {
	Mode v1alpha1.PolicyMode `json:"mode"`
	// Verdict is allowed, denied, warned, audited, overridden, error_denied or error_allowed.
	Verdict  string          `json:"verdict"`
	Denials  []engine.Denial `json:"denials,omitempty"`
	Warnings []string        `json:"warnings,omitempty"`
	Patches  []engine.Patch  `json:"patches,omitempty"`
	// Cause and Error are set if the policy could not be evaluated.
	Cause engine.Cause `json:"cause,omitempty"`
	Error string       `json:"error,omitempty"`
}

// FactRecord is a fact and the source of its value.
type FactRecord struct {
	Query *engine.Query `json:"query,omitempty"`
	// Document is the digest of the document that was test-run.
	Document        string `json:"document,omitempty"`
	Live            bool   `json:"live,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Part lists the fields that the value has of each object of a list; it is nil if the objects are complete.
	Part  *engine.Part `json:"part,omitempty"`
	Value any          `json:"value"`
	// TooLarge reports whether the value was too large, and is omitted.
	TooLarge bool `json:"tooLarge,omitempty"`
}

// Question returns the recorded question about review, which [Record.ReviewOf] returns. The caller sets its Facts.
func (r *Record) Question(review *Review) (*Question, error) {
	at, err := time.Parse(engine.TimeFormat, r.Time)
	if err != nil {
		return nil, fmt.Errorf("time: %w", err)
	}
	if r.Endpoint != Validating && r.Endpoint != Mutating && r.Endpoint != Arbitrating {
		return nil, fmt.Errorf("endpoint: %q is not %s, %s or %s", r.Endpoint, Validating, Mutating, Arbitrating)
	}
	return &Question{Endpoint: r.Endpoint, Review: review, Only: r.Only, Open: r.GateOpen, At: at}, nil
}

// ReviewOf returns the request of a record.
func (r *Record) ReviewOf() (*Review, error) {
	members, ok := r.Request.(map[string]any)
	if !ok {
		return nil, errors.New("request: not an object")
	}
	document, err := engine.ValueOf(members)
	if err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	request, bare := &admissionv1.AdmissionRequest{}, maps.Clone(members)
	objects := map[string]*runtime.RawExtension{"object": &request.Object, "oldObject": &request.OldObject, "options": &request.Options}
	maps.DeleteFunc(bare, func(name string, _ any) bool { return objects[name] != nil })
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(bare, request); err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	for name, is := range objects {
		if object, ok := members[name].(map[string]any); ok {
			is.Object = &unstructured.Unstructured{Object: object}
		}
	}
	return &Review{Request: request, Document: document, Verified: r.Verified}, nil
}

// queued and queuedBytes limit the decisions that wait to be written. The reader of the records may stall, but requests must not.
// Namespaces and users take turns, so that one with many requests does not displace the records of others.
const queued, queuedBytes = 256, 16 << 20

// Recorder counts decisions and writes each as a line of JSON.
type Recorder struct {
	metrics     *metrics
	eventWriter *eventWriter // nil if no events are recorded
	putOff      func(pod types.NamespacedName)
	denied      bool
	out         io.Writer
	queue       *fair.Buffer[line]
	closing     chan struct{}
	written     chan struct{}
}

// line encodes a decision. The decision must not change any more.
type line func() ([]byte, error)

// NewRecorder returns a recorder and registers its metrics. With a nil writer no records are written; deniedOnly skips admitted
// requests. Close writes the remaining records.
func NewRecorder(registry prometheus.Registerer, out io.Writer, deniedOnly bool) *Recorder {
	r := &Recorder{
		metrics: newMetrics(registry), denied: deniedOnly, out: out,
		queue: fair.NewBuffer[line](queued, queuedBytes), closing: make(chan struct{}), written: make(chan struct{}),
	}
	go r.write()
	return r
}

// TellBy sets the recorder of events about denials, including those in modes Warn and Audit, and about overrides. Events are on the
// object; those about overrides also on the policy. Call it before the first request.
func (r *Recorder) TellBy(events EventRecorder) {
	r.eventWriter = newEventWriter(events, r.metrics, r.closing)
}

// PutOffBy sets the function that is called for each Pod whose eviction is postponed because the Pod is a machine. The request may
// be forged by any client that reaches the port. The function must not block. Call PutOffBy before the first request.
func (r *Recorder) PutOffBy(tell func(pod types.NamespacedName)) { r.putOff = tell }

// Close returns when all decisions so far are written, or after patience if the writer stalls. Records of later requests are lost;
// the requests are still answered.
func (r *Recorder) Close(patience time.Duration) {
	close(r.closing)
	select {
	case <-r.written:
	case <-time.After(patience):
	}
}

// record does nothing if r is nil.
func (r *Recorder) record(d *Decision, response *admissionv1.AdmissionResponse) {
	if r == nil {
		return
	}
	r.metrics.count(d)
	switch {
	case d.Review.dryRun():
	case response.Allowed:
		r.metrics.countOverrides(d)
		r.eventWriter.recordOverrides(d)
		r.eventWriter.recordAdmittedByMode(d)
	default:
		r.eventWriter.recordDenials(d)
		r.reportEviction(d, response.Result)
	}
	if r.out == nil || r.denied && response.Allowed {
		return
	}
	next, bytes := line(func() ([]byte, error) { return json.Marshal(d.recordOf(response)) }), d.bytes()
	if d.Review.large() { // what is large is not to wait in the queue
		text, err := next()
		next, bytes = func() ([]byte, error) { return text, err }, int64(len(text))
	}
	lost := r.queue.Put(d.Review.share(), next, bytes)
	r.metrics.lost.Add(float64(len(lost))) // losing a record does not change the decision
}

// reportEviction reports a postponed eviction of a machine. Only evictions are answered with HTTP 429 ([Decision.code]), and if the details
// name a machine, this is the only reason for the denial.
func (r *Recorder) reportEviction(d *Decision, said *metav1.Status) {
	machine := said.Details.Group == v1alpha1.GroupVersion.Group && said.Details.Kind == "VirtualMachine"
	if r.putOff != nil && said.Code == http.StatusTooManyRequests && machine {
		r.putOff(types.NamespacedName{Namespace: d.Review.Request.Namespace, Name: d.Review.Request.Name})
	}
}

func (r *Recorder) write() {
	defer close(r.written)
	for {
		select {
		case <-r.queue.Ready():
			if next, ok := r.queue.Take(); ok {
				r.line(next)
			}
		case <-r.closing:
			r.drain()
			return
		}
	}
}

func (r *Recorder) drain() {
	for next, ok := r.queue.Take(); ok; next, ok = r.queue.Take() {
		r.line(next)
	}
}

func (r *Recorder) line(next line) {
	text, err := next()
	if err == nil {
		_, err = r.out.Write(append(text, '\n'))
	}
	if err != nil {
		r.metrics.lost.Inc()
	}
}

func (d *Decision) recordOf(response *admissionv1.AdmissionResponse) Record {
	record := Record{
		Version: RecordVersion, ID: d.id, Time: d.At.UTC().Format(engine.TimeFormat), Endpoint: d.Endpoint, Only: d.Only, GateOpen: d.Open, Allowed: response.Allowed,
		DryRun: d.Review.dryRun(), Verified: d.Review.Verified, Request: d.Review.recorded(), TooLarge: d.Review.large(), Warnings: response.Warnings,
		Facts: recordsOf(d.queried), Policies: d.Said(),
	}
	for i := range d.verdicts {
		record.Policies[i].Facts = recordsOf(d.verdicts[i].facts())
	}
	return record
}

// Said returns the result of each policy, without its facts.
func (d *Decision) Said() []PolicyDecision {
	all := make([]PolicyDecision, len(d.verdicts))
	for i := range d.verdicts {
		all[i] = d.said(&d.verdicts[i])
	}
	return all
}

// SaidBy returns the result of the policy of that name; nil if it was not evaluated.
func (d *Decision) SaidBy(policy string) *PolicyDecision {
	for i := range d.verdicts {
		if v := &d.verdicts[i]; v.policy.Name() == policy {
			said := d.said(v)
			return &said
		}
	}
	return nil
}

func (d *Decision) said(v *verdict) PolicyDecision {
	p := PolicyDecision{
		Policy: v.policy.Name(), Revision: v.policy.Revision(), PolicySaid: PolicySaid{Mode: v.mode, Verdict: v.result()},
		Override: v.override, Milliseconds: v.took.Seconds() * 1000,
	}
	if v.err != nil {
		p.Cause, p.Error = v.err.Cause, v.err.Error()
		return p
	}
	p.Denials, p.Warnings, p.Patches, p.Confirmation = v.decision.Denials, v.decision.Warnings, v.decision.Patches, v.decision.Confirmation
	if d.Endpoint == Arbitrating {
		p.Outcome, _ = v.decision.Outcome.Decode() // it was made from JSON
	}
	return p
}

func recordsOf(facts map[string]engine.Fact) map[string]FactRecord {
	records := make(map[string]FactRecord, len(facts))
	for name, f := range facts {
		value, tooLarge := recordedFact(f.Answer.Value)
		records[name] = FactRecord{
			Query: f.Query, Live: f.Answer.Live, ResourceVersion: f.Answer.ResourceVersion, Part: f.Answer.Part, Value: value,
			TooLarge: tooLarge, Document: DigestOf(f.Query),
		}
	}
	return records
}

// DigestOf returns a digest that distinguishes the documents of test runs, as far as records keep them; "" for other queries.
func DigestOf(q *engine.Query) string {
	if q == nil || !q.TestRun {
		return ""
	}
	text, err := json.Marshal(scrubbed(q.Document))
	if err != nil {
		panic(err) // it was made from JSON
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])[:16]
}
