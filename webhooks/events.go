package webhooks

import (
	"context"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/flowcontrol"

	"sallyport.dev/sallyport/webhooks/engine"
)

// EventRecorder tells people what happened to an object. It does not wait for the API server: an admission webhook must not.
// Kubernetes' own event recorders are such.
type EventRecorder interface {
	Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any)
}

// Anybody who reaches the port can make up a review. So events are made only of reviews that a verified API server sent, and about
// objects that are as the review says, of which the metadata is read live when the request has been answered. Who made the
// request is told of the former only.

const (
	// tellers read metadata at once, and untold is how many objects may wait for them.
	tellers, untold = 4, 256
	// lookRate and lookBurst bound what reviews that are made up can have the API server asked, per second and at once.
	lookRate, lookBurst = 20, 100
	// looks is how often an object is read that should soon be stored with its override: first after firstLook, and then after
	// twice as long each time.
	looks, firstLook = 6, 100 * time.Millisecond
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
	// override is the text that the object must soon carry; without it the object must still have its version.
	override string
}

// teller makes events.
type teller struct {
	to      EventRecorder
	metrics *metrics
	closing <-chan struct{}
	queue   chan *telling
	rate    flowcontrol.PassiveRateLimiter
	first   time.Duration  // before the first look for an override
	open    sync.WaitGroup // what was queued and is neither told nor dropped
}

// TellBy has denials told to people in events on the object, and overrides also on the policy. It is for before the first request.
func (r *Recorder) TellBy(events EventRecorder) {
	r.teller = &teller{
		to: events, metrics: r.metrics, closing: r.closing, queue: make(chan *telling, untold),
		rate: flowcontrol.NewTokenBucketPassiveRateLimiter(lookRate, lookBurst), first: firstLook,
	}
	for range tellers {
		go r.teller.work()
	}
}

// tell makes events of a judgement, or has it found out whether they are to be made.
func (t *teller) tell(j *judgement, override string, events []event) {
	told := &telling{object: j.appeal.on.DeepCopy(), events: events, reader: j.reader, override: override}
	switch {
	case len(events) == 0:
	case j.review.Verified || j.appeal.seen:
		t.make(told)
	case j.review.Request.SubResource != "" || told.object.UID == "" || override != "" && j.gone():
		t.drop(unproven)
	case !t.rate.TryAccept():
		t.drop(busy)
	default:
		t.open.Add(1)
		select {
		case t.queue <- told:
		default:
			t.open.Done()
			t.drop(busy)
		}
	}
}

func (t *teller) make(told *telling) {
	for _, e := range told.events {
		t.to.Eventf(told.object, e.policy, corev1.EventTypeWarning, e.reason, e.action, "%s", shortened(e.note))
		if e.onPolicy {
			t.to.Eventf(e.policy, told.object, corev1.EventTypeWarning, e.reason, e.action, "%s", shortened(e.note))
		}
	}
}

func (t *teller) drop(why string) { t.metrics.untold.WithLabelValues(why).Inc() }

// work looks at objects until the recorder is closed.
func (t *teller) work() {
	for {
		select {
		case <-t.closing:
			return
		case told := <-t.queue:
			if t.proven(told) {
				t.make(told)
			} else {
				t.drop(unproven)
			}
			t.open.Done()
		}
	}
}

// proven tells whether the object is as it must be.
func (t *teller) proven(told *telling) bool {
	if told.override == "" {
		live := told.look()
		return live.UID == told.object.UID && live.ResourceVersion == told.object.ResourceVersion
	}
	wait := t.first
	for range looks {
		select {
		case <-t.closing:
			return false
		case <-time.After(wait):
		}
		if live := told.look(); live.UID == told.object.UID && live.override == told.override {
			return true
		}
		wait *= 2
	}
	return false
}

// seen is what there is of an object.
type seen struct {
	corev1.ObjectReference
	override string
}

// look reads the metadata; what cannot be read is nothing.
func (told *telling) look() (live seen) {
	defer func() { // it is nobody's request that would be told
		if recover() != nil {
			live = seen{}
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), oneLook)
	defer cancel()
	answer, err := told.reader.Read(ctx, metadataOf("object", told.object))
	if err != nil {
		return seen{}
	}
	return seen{referenceTo(answer.Value), overrideIn(answer.Value)}
}

// shortened cuts a note to what the API takes.
func shortened(note string) string {
	if len(note) > maxNote {
		return strings.ToValidUTF8(note[:maxNote], "")
	}
	return note
}
