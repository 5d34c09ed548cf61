package webhooks

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"sallyport.dev/sallyport/fair"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
)

// EventRecorder records events without waiting for the API server, since an admission webhook must not. Kubernetes' event recorders
// implement it.
type EventRecorder interface {
	Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any)
}

// Any client that reaches the port can forge a review. So an event is written only if a verified API server sent the review, or if one live
// read of the metadata, after the response, shows that the object is as in the review. In the latter case the event omits the user.

const (
	// eventReaders is the number of goroutines that read metadata for denials, maxPending that of objects that may wait for them.
	// Admitted requests have as many of their own.
	eventReaders, maxPending = 2, 128
	// readRate and readBurst limit the reads that forged reviews can cause, per second and at once. Admitted requests have a limit of their
	// own, so that they do not delay events about denials. Namespaces and users take turns within each.
	readRate, readBurst = 20, 100
	// storing is the wait before the object of an admitted request is read: by then it should be stored.
	storing = 2 * time.Second
	// readTimeout is the timeout of one read.
	readTimeout = 5 * time.Second
	// maxNote is the API's limit for the note of an event, in bytes.
	maxNote = 1024
)

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
	whose  string     // the namespace or user that takes turns
	among  *readQueue // the queue
	// proof reports whether the object is as in the review.
	proof func(live *liveObject) bool
	// wait is the time until the object is read.
	wait time.Duration
	// ofParent is set if object is a subresource, and the events are about its parent.
	ofParent bool
	// known is set if the events are also written when Sallyport has no right to read the object.
	known bool
}

// readQueue is a queue of objects to read.
type readQueue struct {
	queue *fair.Buffer[*pendingEvents]
	limit *rate.Limiter
}

// eventWriter writes events. A nil one writes none.
type eventWriter struct {
	to       EventRecorder
	metrics  *metrics
	closing  <-chan struct{}
	denied   *readQueue
	admitted *readQueue     // in spite of a denial, because of the policy's mode
	storing  time.Duration  // the constant, except in tests
	open     sync.WaitGroup // requests whose events are neither written nor dropped yet
}

func newEventWriter(to EventRecorder, m *metrics, closing <-chan struct{}) *eventWriter {
	t := &eventWriter{to: to, metrics: m, closing: closing, storing: storing}
	for _, l := range []**readQueue{&t.denied, &t.admitted} {
		*l = &readQueue{fair.NewBuffer[*pendingEvents](maxPending, maxPending), rate.NewLimiter(readRate, readBurst)}
		for range eventReaders {
			go t.work(*l)
		}
	}
	return t
}

// writeIfProven writes the events after a live read of the object, if that proves them.
func (t *eventWriter) writeIfProven(pending *pendingEvents) {
	t.open.Add(1)
	enqueue := func() {
		for range pending.among.queue.Put(pending.whose, pending, 1) {
			t.giveUp(busy)
		}
	}
	if pending.wait == 0 {
		enqueue()
		return
	}
	time.AfterFunc(pending.wait, enqueue)
}

func (t *eventWriter) write(pending *pendingEvents) {
	for _, e := range pending.events {
		t.to.Eventf(pending.object, e.policy, corev1.EventTypeWarning, e.reason, e.action, "%s", e.note)
		if e.onPolicy {
			t.to.Eventf(e.policy, pending.object, corev1.EventTypeWarning, e.reason, e.action, "%s", e.note)
		}
	}
}

func (t *eventWriter) drop(why string) { t.metrics.unwritten.WithLabelValues(why).Inc() }

// giveUp drops the events about one request.
func (t *eventWriter) giveUp(why string) {
	t.drop(why)
	t.open.Done()
}

// work reads the queued objects until the recorder is closed.
func (t *eventWriter) work(l *readQueue) {
	defer func() {
		for _, ok := l.queue.Take(); ok; _, ok = l.queue.Take() {
			t.giveUp(busy)
		}
	}()
	for {
		select {
		case <-t.closing:
			return
		case <-l.queue.Ready():
		}
		pending, ok := l.queue.Take()
		if !ok {
			continue
		}
		select {
		case <-t.closing:
			t.giveUp(busy)
			return
		case <-time.After(l.limit.Reserve().Delay()):
			t.readAndWrite(pending)
		}
	}
}

// readAndWrite reads the object, and writes the events if it proves them.
func (t *eventWriter) readAndWrite(pending *pendingEvents) {
	live, err := pending.read()
	if err == nil && pending.proof(live) || pending.known && errors.Is(err, facts.ErrUnreadable) {
		t.write(pending)
		t.open.Done()
		return
	}
	t.giveUp(unproven)
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
		object, err = parentOf(ctx, pending.reader)
	} else {
		var answer engine.Answer
		answer, err = pending.reader.Read(ctx, metadataOf("object", pending.object))
		object = answer.Value
	}
	if err != nil {
		return nil, err
	}
	metadata := object.Get("metadata")
	live = &liveObject{referenceTo(object), overrideIn(object), metadata.Get("generation"), !metadata.Get("deletionTimestamp").IsNull()}
	if pending.ofParent && (live.UID == pending.object.UID || pending.object.UID == "") {
		reference := live.ObjectReference
		reference.ResourceVersion = ""
		pending.object = &reference
	}
	return live, nil
}
