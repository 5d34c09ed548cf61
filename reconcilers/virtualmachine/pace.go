package virtualmachine

import (
	"sort"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// The bounds of the pause between two attempts at one machine, as kubelet has them for containers. After twice the longest one
// without an attempt the first is the shortest again.
const shortestPause, longestPause = 10 * time.Second, 5 * time.Minute

// pace keeps a machine that goes off right after its start, or cannot be started or moved, from being started or moved over and
// over. It is forgotten at the end of the process: one attempt too many does no harm.
type pace struct {
	once    sync.Once
	backoff *flowcontrol.Backoff
}

// attempts gives the pace of starts and moves that are no operations.
func (r *Reconciler) attempts() *flowcontrol.Backoff {
	r.pace.once.Do(func() {
		r.pace.backoff = flowcontrol.NewBackOff(shortestPause, longestPause)
		r.pace.backoff.Clock = clockOf{now: r.Now}
	})
	return r.pace.backoff
}

// tooSoon reports whether a step has just been tried, and has it looked at again when it may be again. To get a machine off is
// never too soon.
func (r *Reconciler) tooSoon(l *look, k runtime.TaskKind) bool {
	starts, moves := k == runtime.TaskPowerOn, k == runtime.TaskRelocate
	soon := (starts || moves) && r.attempts().IsInBackOffSinceUpdate(l.Key().String(), l.Time)
	if soon {
		l.Wait(r.pauseLeft(l.Key().String(), l.Time))
	}
	l.paused = soon && starts && l.seen.Power != v1alpha1.PowerRunning
	return soon
}

// makingOf is what attempts to make a machine are counted under: the first start does not wait for them.
func makingOf(key types.NamespacedName) string { return key.String() + " making" }

// failedJustNow reports whether the runtime began to make the machine, and could not, and has it tried again after a pause.
func (r *Reconciler) failedJustNow(l *look) bool {
	key := makingOf(l.Key())
	if l.seen.LastFailure == "" || !r.attempts().IsInBackOffSinceUpdate(key, l.Time) {
		return false
	}
	l.Wait(r.pauseLeft(key, l.Time))
	return true
}

// pauseLeft returns how much of the pause after the last attempt is left at a time, rounded up to tenths of a second.
func (r *Reconciler) pauseLeft(key string, now time.Time) time.Duration {
	const unit = 100 * time.Millisecond
	return unit * time.Duration(sort.Search(int(longestPause/unit), func(units int) bool {
		return !r.attempts().IsInBackOffSinceUpdate(key, now.Add(unit*time.Duration(units)))
	}))
}

// clockOf is a clock that is read from a function.
type clockOf struct {
	clock.RealClock
	now func() time.Time
}

// Now returns the time.
func (c clockOf) Now() time.Time { return c.now() }

// Since returns the time since then.
func (c clockOf) Since(then time.Time) time.Duration { return c.now().Sub(then) }
