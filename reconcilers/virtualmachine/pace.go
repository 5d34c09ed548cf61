package virtualmachine

import (
	"sync"
	"time"

	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
)

// The bounds of the pause between two starts of one machine by its run policy, as kubelet has them for containers. After
// twice the longest one without a start the first is the shortest again.
const shortestPause, longestPause = 10 * time.Second, 5 * time.Minute

// pace keeps a machine that goes off right after its start, or cannot be started, from being started over and over. It is
// forgotten at the end of the process: one start too many does no harm.
type pace struct {
	once    sync.Once
	backoff *flowcontrol.Backoff
}

// starts gives the pace of the starts by run policies.
func (r *Reconciler) starts() *flowcontrol.Backoff {
	r.pace.once.Do(func() {
		r.pace.backoff = flowcontrol.NewBackOff(shortestPause, longestPause)
		r.pace.backoff.Clock = clockOf{now: r.Now}
	})
	return r.pace.backoff
}

// tooSoon tells whether the machine has just been started, and otherwise has it looked at when it may be again.
func (r *Reconciler) tooSoon(l *look) bool {
	l.paused = r.starts().IsInBackOffSinceUpdate(l.key.String(), l.now)
	if l.paused {
		l.wait(r.starts().Get(l.key.String()))
	}
	return l.paused
}

// clockOf is a clock that is read from a function.
type clockOf struct {
	clock.RealClock
	now func() time.Time
}

// Now gives the time.
func (c clockOf) Now() time.Time { return c.now() }

// Since gives the time since then.
func (c clockOf) Since(then time.Time) time.Duration { return c.now().Sub(then) }
