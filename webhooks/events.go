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

// EventRecorder tells people what happened to an object. It does not wait for the API server: an admission webhook must not.
// Kubernetes' own event recorders are such.
type EventRecorder interface {
	Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any)
}

// Anybody who reaches the port can make up a review. So events are made only of reviews that a verified API server sent, and about
// objects that are as the review says: after the answer, one live read of the metadata proves it, or there is no event. Who made the
// request is told of the former only.

const (
	// tellers is how many goroutines read metadata for denials, and untold how many objects may wait for them. There are as many for what was
	// admitted.
	tellers, untold = 2, 128
	// lookRate and lookBurst bound what reviews that are made up can have the API server asked, per second and at once. What was
	// admitted has a share of its own, so that it keeps no denial from being told; in each, namespaces and users take turns.
	lookRate, lookBurst = 20, 100
	// storing is how long after an admission the object is read: by then it should be stored.
	storing = 2 * time.Second
	// oneLook is how long one may take.
	oneLook = 5 * time.Second
	// maxNote is how many bytes the API takes as the note of an event.
	maxNote = 1024
)

// Why events are not made, in metrics.
const (
	unproven = "unproven"
	busy     = "busy"
)

// event is one on an object about a policy.
type event struct {
	policy               *corev1.ObjectReference
	reason, action, note string
	onPolicy             bool // there is one on the policy, too
}

// telling are the events about one request, and what must be true of the object.
type telling struct {
	object *corev1.ObjectReference
	events []event
	reader engine.Reader
	whose  string   // the namespace or user that takes turns
	among  *looking // the queue
	// proof tells whether the object is as the review has it.
	proof func(live *seen) bool
	// wait is the time until the object is read.
	wait time.Duration
	// ofParent is set if object is a subresource, and the events are about what it belongs to.
	ofParent bool
	// known is set if it need not be looked at where that is not allowed.
	known bool
}

// looking is a queue of objects to look at.
type looking struct {
	queue *fair.Buffer[*telling]
	limit *rate.Limiter
}

// teller makes events. A nil one tells nobody.
type teller struct {
	to       EventRecorder
	metrics  *metrics
	closing  <-chan struct{}
	denied   *looking
	admitted *looking       // although a policy is against it
	storing  time.Duration  // the constant, but in tests
	open     sync.WaitGroup // what was taken and is neither told nor dropped
}

func newTeller(to EventRecorder, m *metrics, closing <-chan struct{}) *teller {
	t := &teller{to: to, metrics: m, closing: closing, storing: storing}
	for _, l := range []**looking{&t.denied, &t.admitted} {
		*l = &looking{fair.NewBuffer[*telling](untold, untold), rate.NewLimiter(lookRate, lookBurst)}
		for range tellers {
			go t.work(*l)
		}
	}
	return t
}

// find makes the events once the object has proven them.
func (t *teller) find(told *telling) {
	t.open.Add(1)
	enqueue := func() {
		for range told.among.queue.Put(told.whose, told, 1) {
			t.giveUp(busy)
		}
	}
	if told.wait == 0 {
		enqueue()
		return
	}
	time.AfterFunc(told.wait, enqueue)
}

func (t *teller) make(told *telling) {
	for _, e := range told.events {
		t.to.Eventf(told.object, e.policy, corev1.EventTypeWarning, e.reason, e.action, "%s", e.note)
		if e.onPolicy {
			t.to.Eventf(e.policy, told.object, corev1.EventTypeWarning, e.reason, e.action, "%s", e.note)
		}
	}
}

func (t *teller) drop(why string) { t.metrics.untold.WithLabelValues(why).Inc() }

// giveUp drops the events about one request.
func (t *teller) giveUp(why string) {
	t.drop(why)
	t.open.Done()
}

// work looks at objects until the recorder is closed.
func (t *teller) work(l *looking) {
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
		told, ok := l.queue.Take()
		if !ok {
			continue
		}
		select {
		case <-t.closing:
			t.giveUp(busy)
			return
		case <-time.After(l.limit.Reserve().Delay()):
			t.look(told)
		}
	}
}

// look makes the events if the object proves them.
func (t *teller) look(told *telling) {
	live, err := told.look()
	if err == nil && told.proof(live) || told.known && errors.Is(err, facts.ErrUnreadable) {
		t.make(told)
		t.open.Done()
		return
	}
	t.giveUp(unproven)
}

// seen is what there is of an object.
type seen struct {
	corev1.ObjectReference
	override    string
	generation  engine.Value
	terminating bool
}

// errUnseen means that what was to be read could not be.
var errUnseen = errors.New("reading the object failed")

// look reads the metadata.
func (told *telling) look() (live *seen, err error) {
	defer func() { // it is nobody's request that would be told
		if recover() != nil {
			live, err = nil, errUnseen
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), oneLook)
	defer cancel()
	var object engine.Value
	if told.ofParent {
		object, err = parentOf(ctx, told.reader)
	} else {
		var answer engine.Answer
		answer, err = told.reader.Read(ctx, metadataOf("object", told.object))
		object = answer.Value
	}
	if err != nil {
		return nil, err
	}
	metadata := object.Get("metadata")
	live = &seen{referenceTo(object), overrideIn(object), metadata.Get("generation"), !metadata.Get("deletionTimestamp").IsNull()}
	if told.ofParent && (live.UID == told.object.UID || told.object.UID == "") {
		reference := live.ObjectReference
		reference.ResourceVersion = ""
		told.object = &reference
	}
	return live, nil
}
