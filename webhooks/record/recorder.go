package record

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/events"
)

// queued and queuedBytes limit the decisions that wait to be written. The reader of the records may stall, but requests must not.
const queued, queuedBytes = 256, 16 << 20

// Recorder counts decisions and writes each as a line of JSON.
type Recorder struct {
	metrics *metrics
	denials denials
	events  *events.Writer // nil writes no events
	evicted func(pod types.NamespacedName)
	lost    func(cause error)
	differs func(policy, difference string)
	minute  rate.Sometimes // limits calls of lost
	notable bool
	out     io.Writer
	queue   chan line
	bytes   *semaphore.Weighted // of what is in the queue
	closing chan struct{}
	written chan struct{}
}

// line encodes a decision that holds so many bytes until then.
type line struct {
	encode func() ([]byte, error)
	bytes  int64
}

// NewRecorder returns a recorder and registers its metrics. With a nil writer no records are written; notable skips those of requests that
// all policies allow without a warning. Close writes the remaining records.
func NewRecorder(registry prometheus.Registerer, out io.Writer, notable bool) *Recorder {
	r := &Recorder{
		metrics: newMetrics(registry), denials: denials{of: map[string]Denials{}}, notable: notable, out: out,
		queue: make(chan line, queued), bytes: semaphore.NewWeighted(queuedBytes), closing: make(chan struct{}), written: make(chan struct{}),
		minute: rate.Sometimes{Interval: time.Minute},
	}
	go r.write()
	return r
}

// WriteEvents sets the writer of events about denials, including those in modes Warn and Audit, and about overrides. Close closes it.
// Call WriteEvents before the first request.
func (r *Recorder) WriteEvents(w *events.Writer) { r.events = w }

// OnDeniedEviction sets the function that is called for each Pod whose eviction is postponed because the Pod is a machine. The request
// may be forged by any client that reaches the port. The function must not block. Call OnDeniedEviction before the first request.
func (r *Recorder) OnDeniedEviction(report func(pod types.NamespacedName)) { r.evicted = report }

// OnLost sets the function that is called with the cause when records are lost, at most once a minute. The function must not block. Call
// OnLost before the first request.
func (r *Recorder) OnLost(report func(cause error)) { r.lost = report }

// lose counts a lost record. Losing a record does not change the decision.
func (r *Recorder) lose(cause error) {
	r.metrics.lost.Inc()
	if r.lost != nil {
		r.minute.Do(func() { r.lost(cause) })
	}
}

var errStalled = errors.New("too many records wait to be written: their reader is too slow")

// Close returns when all decisions so far are written, or after patience if the writer stalls. Records of later requests are lost;
// the requests are still answered.
func (r *Recorder) Close(patience time.Duration) {
	close(r.closing)
	r.events.Close()
	select {
	case <-r.written:
	case <-time.After(patience):
	}
}

// OnDifference sets the function that is called with the two results if the program of a policy decides differently than OPA's
// interpreter. It must not block. Call OnDifference before the first request.
func (r *Recorder) OnDifference(report func(policy, difference string)) { r.differs = report }

// Checked implements decision.Recorder.
func (r *Recorder) Checked(policy, difference string) {
	r.metrics.countCheck(policy, difference == "")
	if difference != "" && r.differs != nil {
		r.differs(policy, difference)
	}
}

// Forget implements decision.Recorder.
func (r *Recorder) Forget(policy string) {
	r.metrics.forget(policy)
	r.denials.forget(policy)
}

// Record implements decision.Recorder.
func (r *Recorder) Record(d *decision.Decision, response *admissionv1.AdmissionResponse) {
	r.metrics.count(d)
	if d.Endpoint == decision.Validating {
		for _, v := range d.Verdicts() {
			r.denials.count(&v)
		}
	}
	if !d.Review.DryRun() {
		if response.Allowed {
			r.metrics.countOverrides(d)
		} else {
			r.reportEviction(d, response.Result)
		}
		r.events.Write(d, response.Allowed)
	}
	if r.out == nil || r.notable && !isNotable(d, response) {
		return
	}
	next := line{func() ([]byte, error) { return json.Marshal(recordOf(d, response)) }, memoryOf(d)}
	if large(d.Review) { // what is large is not to wait in the queue
		text, err := next.encode()
		next = line{func() ([]byte, error) { return text, err }, int64(len(text))}
	}
	r.enqueue(next)
}

// isNotable reports whether a policy denied the request, warned or could not be evaluated, in any mode and with any override.
func isNotable(d *decision.Decision, response *admissionv1.AdmissionResponse) bool {
	return !response.Allowed || len(response.Warnings) > 0 ||
		slices.ContainsFunc(d.Verdicts(), func(v decision.Verdict) bool { return v.Result() != decision.ResultAllowed })
}

func (r *Recorder) enqueue(next line) {
	if r.bytes.TryAcquire(next.bytes) {
		select {
		case r.queue <- next:
			return
		default:
			r.bytes.Release(next.bytes)
		}
	}
	r.lose(errStalled)
}

// reportEviction reports a postponed eviction of a machine. Only evictions are answered with HTTP 429, and if the details
// name a machine, this is the only reason for the denial.
func (r *Recorder) reportEviction(d *decision.Decision, said *metav1.Status) {
	machine := said.Details.Group == v1alpha1.GroupVersion.Group && said.Details.Kind == "VirtualMachine"
	if r.evicted != nil && said.Code == http.StatusTooManyRequests && machine {
		r.evicted(types.NamespacedName{Namespace: d.Review.Request.Namespace, Name: d.Review.Request.Name})
	}
}

func (r *Recorder) write() {
	defer close(r.written)
	for {
		select {
		case next := <-r.queue:
			r.line(next)
		case <-r.closing:
			r.drain()
			return
		}
	}
}

func (r *Recorder) drain() {
	for len(r.queue) > 0 {
		r.line(<-r.queue)
	}
}

func (r *Recorder) line(next line) {
	defer r.bytes.Release(next.bytes)
	text, err := next.encode()
	if err == nil {
		_, err = r.out.Write(append(text, '\n'))
	}
	if err != nil {
		r.lose(err)
	}
}
