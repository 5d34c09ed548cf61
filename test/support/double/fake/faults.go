package fake

import (
	"context"
	"errors"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// ErrReplyLost is the cause of the error that a call returns whose reply was lost.
var ErrReplyLost = errors.New("the reply was lost")

// At says which calls a fault befalls: those that fit every field that is set.
type At struct {
	// Verb is what is called.
	Verb runtime.Verb
	// Machine is the UID of the machine that it is about.
	Machine types.UID
	// Client is the name of the client that calls.
	Client string
}

// Fault is what befalls a call. The zero value is a call that nothing befalls.
type Fault struct {
	fail    error
	lost    bool
	late    int
	failing string
	stall   *Stall
	always  bool
}

// Fail has the call return the error without doing anything.
func Fail(err error) Fault { return Fault{fail: err} }

// LoseReply has the call do its work and return an Unavailable error all the same.
func LoseReply() Fault { return Fault{lost: true} }

// ActLate has the call return success and its work begin only that many Advances later. Where there is a kind of task for
// it, it is in flight meanwhile.
func ActLate(steps int) Fault { return Fault{late: steps} }

// FailTask has the call return success, and the task that it began end with that message and without effect.
func FailTask(message string) Fault { return Fault{failing: message} }

// Always has the fault befall every call that fits, until ClearScripts.
func (f Fault) Always() Fault {
	f.always = true
	return f
}

// Timing says when a call that stalls does its work.
type Timing string

const (
	// ActBefore does the work, or takes the look, and then stalls: what it returns in the end may be out of date.
	ActBefore Timing = "ActBefore"
	// ActAfter does the work once the stall is released, and none if the call's context has ended before.
	ActAfter Timing = "ActAfter"
	// ActRegardless does the work once the stall is released, also if the call has returned long before. No runtime may
	// do that: it is there to see what becomes of callers when one does.
	ActRegardless Timing = "ActRegardless"
)

// Stall is a call that does not return until it is released or its context ends.
type Stall struct {
	timing   Timing
	reached  chan struct{}
	released chan struct{}
	reach    func()
	release  func()

	mu     sync.Mutex
	orphan []func()
}

// NewStall makes a Stall. Its Fault is what is handed to Script.
func NewStall(timing Timing) *Stall {
	s := &Stall{timing: timing, reached: make(chan struct{}), released: make(chan struct{})}
	s.reach = sync.OnceFunc(func() { close(s.reached) })
	s.release = sync.OnceFunc(func() { close(s.released) })
	return s
}

// Fault is the fault that has a call stall.
func (s *Stall) Fault() Fault { return Fault{stall: s} }

// Reached is closed once a call has stalled.
func (s *Stall) Reached() <-chan struct{} { return s.reached }

// Release lets every call of the stall go on, now and later.
func (s *Stall) Release() {
	s.release()
	s.mu.Lock()
	orphans := s.orphan
	s.orphan = nil
	s.mu.Unlock()
	for _, work := range orphans {
		work()
	}
}

// wait waits for the release and reports whether it came before the end of ctx.
func (s *Stall) wait(ctx context.Context) bool {
	s.reach()
	select {
	case <-s.released:
		return true
	case <-ctx.Done():
		return false
	}
}

// leave has work done at the release whose caller is gone, or at once if that has been.
func (s *Stall) leave(work func()) {
	s.mu.Lock()
	select {
	case <-s.released:
		s.mu.Unlock()
		work()
	default:
		s.orphan = append(s.orphan, work)
		s.mu.Unlock()
	}
}

// script is a fault that waits for its call.
type script struct {
	at    At
	fault Fault
}

// Script has the faults befall the next calls that fit, one each, in the order in which they were scripted. A call takes
// the first fault that fits it and no other.
func (w *World) Script(at At, faults ...Fault) {
	defer w.lock()()
	for _, f := range faults {
		w.scripts = append(w.scripts, &script{at: at, fault: f})
	}
}

// ClearScripts forgets the faults that have not befallen a call yet, and those that befall every call.
func (w *World) ClearScripts() {
	defer w.lock()()
	w.scripts = nil
}

// take gives the fault that befalls the call.
func (w *World) take(c *Call) Fault {
	i := slices.IndexFunc(w.scripts, func(s *script) bool {
		return (s.at.Verb == "" || s.at.Verb == c.Verb) &&
			(s.at.Machine == "" || s.at.Machine == c.Machine.UID) &&
			(s.at.Client == "" || s.at.Client == c.Client)
	})
	if i < 0 {
		return Fault{}
	}
	fault := w.scripts[i].fault
	if !fault.always {
		w.scripts = slices.Delete(w.scripts, i, i+1)
	}
	return fault
}
