package events

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
)

// Recorder records events without waiting for the API server, since an admission webhook must not. Kubernetes' event recorders
// implement it.
type Recorder interface {
	Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any)
}

// Any client that reaches the port can forge a review. So an event is written only if a verified API server sent the review, or if one live
// read of the metadata, after the response, shows that the object is as in the review. In the latter case the event omits the user.

const (
	// eventReaders is the number of goroutines that read metadata.
	eventReaders = 4
	// readTimeout is the timeout of one read.
	readTimeout = 5 * time.Second
	// maxNote is the API's limit for the note of an event, in bytes.
	maxNote = 1024
)

// Limits limit the reads that forged reviews can cause.
type Limits struct {
	// Rate is the number of reads per second, Burst that at once.
	Rate  rate.Limit
	Burst int
	// Pending is the number of requests whose objects may wait to be read.
	Pending int
	// Delay is the wait before the object of an admitted request is read: by then it should be stored.
	Delay time.Duration
}

// DefaultLimits are those of the manager.
var DefaultLimits = Limits{Rate: 20, Burst: 100, Pending: 256, Delay: 2 * time.Second}

// Reasons in metrics for events that are not written.
const (
	unproven = "unproven"
	busy     = "busy"
)

// event is an event on an object, with a policy as its related object.
type event struct {
	policy               *corev1.ObjectReference
	reason, action, note string
	onPolicy             bool // write one on the policy, too
}

// pendingEvents are the events about one request, and the condition under which they are written.
type pendingEvents struct {
	object *corev1.ObjectReference
	events []event
	reader engine.Reader
	// proof reports whether the object is as in the review.
	proof func(live *liveObject) bool
	// wait is the time until the object is read.
	wait time.Duration
	// ofParent is set if object is a subresource, and the events are about its parent.
	ofParent bool
	// known is set if the events are also written when Sallyport has no right to read the object.
	known bool
}

// Writer writes events about decisions. A nil one writes none.
type Writer struct {
	to      Recorder
	dropped *prometheus.CounterVec // events that are not written
	limits  Limits
	closing chan struct{}
	queue   chan *pendingEvents
	pace    *rate.Limiter
	open    sync.WaitGroup // requests whose events are neither written nor dropped yet
}

// NewWriter returns a writer and registers its metric.
func NewWriter(to Recorder, registry prometheus.Registerer, limits Limits) *Writer {
	w := &Writer{to: to, limits: limits, closing: make(chan struct{}), queue: make(chan *pendingEvents, limits.Pending), pace: rate.NewLimiter(limits.Rate, limits.Burst)}
	w.dropped = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sallyport_events_dropped_total",
		Help: "Requests whose denials or overrides were not written as events, by reason: unproven (the object differs from the review) or busy.",
	}, []string{"reason"})
	for _, reason := range []string{unproven, busy} { // a counter that appears with 1 has not increased for Prometheus
		w.dropped.WithLabelValues(reason)
	}
	registry.MustRegister(w.dropped)
	for range eventReaders {
		go w.work()
	}
	return w
}

// Close drops the events that still need a read.
func (w *Writer) Close() {
	if w != nil {
		close(w.closing)
	}
}

// Wait returns when the events about all decisions so far are written or dropped.
func (w *Writer) Wait() { w.open.Wait() }

// Write writes the events about a decision on a real request.
func (w *Writer) Write(d *decision.Decision, allowed bool) {
	switch {
	case w == nil:
	case allowed:
		w.recordOverrides(d)
		w.recordAdmittedByMode(d)
	default:
		w.recordDenials(d)
	}
}

// writeIfProven writes the events after a live read of the object, if that proves them.
func (w *Writer) writeIfProven(pending *pendingEvents) {
	w.open.Add(1)
	enqueue := func() {
		select {
		case w.queue <- pending:
		default:
			w.giveUp(busy)
		}
	}
	if pending.wait == 0 {
		enqueue()
		return
	}
	time.AfterFunc(pending.wait, enqueue)
}

func (w *Writer) write(pending *pendingEvents) {
	for _, e := range pending.events {
		w.to.Eventf(pending.object, e.policy, corev1.EventTypeWarning, e.reason, e.action, "%s", e.note)
		if e.onPolicy {
			w.to.Eventf(e.policy, pending.object, corev1.EventTypeWarning, e.reason, e.action, "%s", e.note)
		}
	}
}

func (w *Writer) drop(why string) { w.dropped.WithLabelValues(why).Inc() }

// giveUp drops the events about one request.
func (w *Writer) giveUp(why string) {
	w.drop(why)
	w.open.Done()
}

// work reads the queued objects. Once the writer is closed it drops them.
func (w *Writer) work() {
	for pending := range w.queue {
		select {
		case <-w.closing:
			w.giveUp(busy)
		case <-time.After(w.pace.Reserve().Delay()):
			w.readAndWrite(pending)
		}
	}
}

// readAndWrite reads the object, and writes the events if it proves them.
func (w *Writer) readAndWrite(pending *pendingEvents) {
	live, err := pending.read()
	if err == nil && pending.proof(live) || pending.known && errors.Is(err, facts.ErrUnreadable) {
		w.write(pending)
		w.open.Done()
		return
	}
	w.giveUp(unproven)
}

// liveObject is the state of an object that was read.
type liveObject struct {
	corev1.ObjectReference
	override    string
	generation  engine.Value
	terminating bool
}

// errPanicked means that a read panicked.
var errPanicked = errors.New("reading the object failed")

// read reads the metadata.
func (pending *pendingEvents) read() (live *liveObject, err error) {
	defer func() { // the response is sent already, so a panic must not end the process
		if recover() != nil {
			live, err = nil, errPanicked
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	var object engine.Value
	if pending.ofParent {
		object, err = decision.ParentOf(ctx, pending.reader)
	} else {
		var answer engine.Answer
		answer, err = pending.reader.Read(ctx, decision.MetadataQuery("object", pending.object))
		object = answer.Value
	}
	if err != nil {
		return nil, err
	}
	metadata := object.Get("metadata")
	live = &liveObject{decision.ReferenceTo(object), decision.OverrideIn(object), metadata.Get("generation"), !metadata.Get("deletionTimestamp").IsNull()}
	if pending.ofParent && (live.UID == pending.object.UID || pending.object.UID == "") {
		reference := live.ObjectReference
		reference.ResourceVersion = ""
		pending.object = &reference
	}
	return live, nil
}
