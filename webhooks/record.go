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

// RecordVersion is the version of the records that are written. Fields are added without a new one.
const RecordVersion = 1

// Record is one decision, with everything it was made from: the same policies give the same decision for it at any time.
// What must not be kept is left out: the data of Secrets, and kubectl's copy of the last applied object.
type Record struct {
	// Version is [RecordVersion]; every line with a record begins with it, and no other line of a log has it.
	Version  int       `json:"decisionRecord"`
	ID       types.UID `json:"id"`
	Time     string    `json:"time"`
	Endpoint string    `json:"endpoint"`
	// Only is the policy that was asked alone, at a path of its own.
	Only string `json:"only,omitempty"`
	// GateOpen is set if the gate was open for the request.
	GateOpen *Opening `json:"gateOpen,omitempty"`
	Allowed  bool     `json:"allowed"`
	DryRun   bool     `json:"dryRun,omitempty"`
	// Verified tells that the request, with its user, is from a verified API server or from Sallyport. Anybody who reaches the port
	// can have made up another one.
	Verified bool `json:"verified"`
	// Request is the AdmissionRequest as policies saw it. If TooLarge is set, there is an [Omitted] in the place of what is large
	// in it, and the decision cannot be made again.
	Request  any              `json:"request"`
	TooLarge bool             `json:"tooLarge,omitempty"`
	Policies []PolicyDecision `json:"policies"`
	// Facts are what was asked beside the policies: the namespace if they are selected by its labels, and what tells whether an
	// override counts.
	Facts    map[string]FactRecord `json:"facts,omitempty"`
	Warnings []string              `json:"warnings,omitempty"`
}

// PolicyDecision is what one policy said.
type PolicyDecision struct {
	Policy   string `json:"policy"`
	Revision string `json:"revision"`
	PolicySaid
	Confirmation engine.Confirmation `json:"confirmation,omitempty"`
	// Override is by whom the request passes in spite of Denials or Error.
	Override *Override `json:"override,omitempty"`
	// Outcome is what a reconciler that asked acts on.
	Outcome      any                   `json:"outcome,omitempty"`
	Facts        map[string]FactRecord `json:"facts,omitempty"`
	Milliseconds float64               `json:"milliseconds"`
}

// PolicySaid is what a policy said, and what came of that.
type PolicySaid struct {
	Mode v1alpha1.PolicyMode `json:"mode"`
	// Verdict is allowed, denied, warned, audited, overridden, error_denied or error_allowed.
	Verdict  string          `json:"verdict"`
	Denials  []engine.Denial `json:"denials,omitempty"`
	Warnings []string        `json:"warnings,omitempty"`
	Patches  []engine.Patch  `json:"patches,omitempty"`
	// Cause and Error tell why the policy could not decide.
	Cause engine.Cause `json:"cause,omitempty"`
	Error string       `json:"error,omitempty"`
}

// FactRecord is a fact with where its answer came from.
type FactRecord struct {
	Query *engine.Query `json:"query,omitempty"`
	// Document is the digest of what a test run was about.
	Document        string `json:"document,omitempty"`
	Live            bool   `json:"live,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Part is what the value has of the objects of a list; it is missing if they are whole.
	Part  *engine.Part `json:"part,omitempty"`
	Value any          `json:"value"`
	// TooLarge tells that the value was, and is left out.
	TooLarge bool `json:"tooLarge,omitempty"`
}

// Question is what was asked for the record, at its time, about the review that [Record.ReviewOf] gave. Its facts are still to be
// given.
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

// ReviewOf is the request of a record.
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

// queued is how many decisions may wait to be written, and queuedBytes how much they may hold. Whoever reads them may stall; requests
// must not. Namespaces and users take turns, so that one with many requests does not displace the records of others.
const queued, queuedBytes = 256, 16 << 20

// Recorder counts decisions and writes a line of JSON for each.
type Recorder struct {
	metrics *metrics
	teller  *teller // nil if nobody is told
	putOff  func(pod types.NamespacedName)
	denied  bool
	out     io.Writer
	queue   *fair.Buffer[line]
	closing chan struct{}
	written chan struct{}
}

// line makes the line of a decision, in which nothing changes any more.
type line func() ([]byte, error)

// NewRecorder makes a recorder that registers its metrics. A nil writer records nothing; deniedOnly leaves out requests
// that passed. Close writes what is left.
func NewRecorder(registry prometheus.Registerer, out io.Writer, deniedOnly bool) *Recorder {
	r := &Recorder{
		metrics: newMetrics(registry), denied: deniedOnly, out: out,
		queue: fair.NewBuffer[line](queued, queuedBytes), closing: make(chan struct{}), written: make(chan struct{}),
	}
	go r.write()
	return r
}

// TellBy has denials told to people in events on the object, also those that only warn or are only recorded, and overrides also on
// the policy. It is for before the first request.
func (r *Recorder) TellBy(events EventRecorder) { r.teller = newTeller(events, r.metrics, r.closing) }

// PutOffBy has somebody told of each Pod whose eviction is put off because it is a machine. Anybody who reaches the port can have made up the
// request. It is for before the first request, and must not wait.
func (r *Recorder) PutOffBy(tell func(pod types.NamespacedName)) { r.putOff = tell }

// Close returns when every decision so far is written, or when the time is up because nobody takes them. A request that is
// answered later still gets its answer; its record is lost.
func (r *Recorder) Close(patience time.Duration) {
	close(r.closing)
	select {
	case <-r.written:
	case <-time.After(patience):
	}
}

// record does nothing without a recorder.
func (r *Recorder) record(d *Decision, response *admissionv1.AdmissionResponse) {
	if r == nil {
		return
	}
	r.metrics.count(d)
	switch {
	case d.Review.dryRun():
	case response.Allowed:
		r.metrics.passed(d)
		r.teller.overrides(d)
		r.teller.lenience(d)
	default:
		r.teller.denials(d)
		r.evicts(d, response.Result)
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
	r.metrics.lost.Add(float64(len(lost))) // a decision stands whether or not it can be written down
}

// evicts tells of the eviction of a machine that is put off. Only evictions are answered with that code ([Decision.code]), and it is for
// this and nothing else that the request is refused if the details name the machine.
func (r *Recorder) evicts(d *Decision, said *metav1.Status) {
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
		DryRun: d.Review.dryRun(), Verified: d.Review.Verified, Request: d.Review.onRecord(), TooLarge: d.Review.large(), Warnings: response.Warnings,
		Facts: recordsOf(d.asked), Policies: d.Said(),
	}
	for i := range d.verdicts {
		record.Policies[i].Facts = recordsOf(d.verdicts[i].known())
	}
	return record
}

// Said is what each policy said that was asked, without what it knew.
func (d *Decision) Said() []PolicyDecision {
	all := make([]PolicyDecision, len(d.verdicts))
	for i := range d.verdicts {
		all[i] = d.said(&d.verdicts[i])
	}
	return all
}

// SaidBy is what the policy of that name said; nil if it was not asked.
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
		Policy: v.policy.Name(), Revision: v.policy.Revision(), PolicySaid: PolicySaid{Mode: v.mode, Verdict: v.word()},
		Override: v.override, Milliseconds: v.took.Seconds() * 1000,
	}
	if v.err != nil {
		p.Cause, p.Error = v.err.Cause, v.err.Error()
		return p
	}
	p.Denials, p.Warnings, p.Patches, p.Confirmation = v.decision.Denials, v.decision.Warnings, v.decision.Patches, v.decision.Confirmation
	if d.Endpoint == Arbitrating {
		p.Outcome, _ = v.decision.Outcome.Decode() // it is made of JSON
	}
	return p
}

func recordsOf(facts map[string]engine.Fact) map[string]FactRecord {
	records := make(map[string]FactRecord, len(facts))
	for name, f := range facts {
		value, tooLarge := factOnRecord(f.Answer.Value)
		records[name] = FactRecord{
			Query: f.Query, Live: f.Answer.Live, ResourceVersion: f.Answer.ResourceVersion, Part: f.Answer.Part, Value: value,
			TooLarge: tooLarge, Document: DigestOf(f.Query),
		}
	}
	return records
}

// DigestOf tells the documents apart that test runs are about, as far as records keep them; "" for other queries.
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
