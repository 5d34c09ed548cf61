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

// Bounds of the pause between two attempts for one machine, as in kubelet's CrashLoopBackOff. After twice
// longestPause without an attempt the pause starts at shortestPause again.
const shortestPause, longestPause = 10 * time.Second, 5 * time.Minute

// retryPause delays repeated starts and moves of a machine that fails or stops right afterwards. It is in memory
// only: one attempt too many after a restart of the process does no harm.
type pause struct {
	once    sync.Once
	backoff *flowcontrol.Backoff
}

// attempts returns the backoff of starts and moves that are not operations.
func (r *Reconciler) attempts() *flowcontrol.Backoff {
	r.pause.once.Do(func() {
		r.pause.backoff = flowcontrol.NewBackOff(shortestPause, longestPause)
		r.pause.backoff.Clock = clockOf{now: r.Now}
	})
	return r.pause.backoff
}

// tooSoon reports whether a step must back off, and schedules a pass for the end of the pause. Powering off never
// backs off.
func (r *Reconciler) tooSoon(v *view, k runtime.TaskKind) bool {
	starts, moves := k == runtime.TaskPowerOn, k == runtime.TaskRelocate
	soon := (starts || moves) && r.attempts().IsInBackOffSinceUpdate(v.Key().String(), v.Time)
	if soon {
		v.Wait(r.pauseLeft(v.Key().String(), v.Time))
	}
	v.backingOff = soon && starts && v.seen.Power != v1alpha1.PowerRunning
	return soon
}

// creationKey returns the backoff key for creations: the first start does not wait for them.
func creationKey(key types.NamespacedName) string { return key.String() + " making" }

// creationBackingOff reports whether a creation failed recently, and schedules the next attempt.
func (r *Reconciler) creationBackingOff(v *view) bool {
	key := creationKey(v.Key())
	if v.seen.LastFailure == "" || !r.attempts().IsInBackOffSinceUpdate(key, v.Time) {
		return false
	}
	v.Wait(r.pauseLeft(key, v.Time))
	return true
}

// pauseLeft returns how much of the pause after the last attempt is left at a time, rounded up to tenths of a second.
func (r *Reconciler) pauseLeft(key string, now time.Time) time.Duration {
	const unit = 100 * time.Millisecond
	return unit * time.Duration(sort.Search(int(longestPause/unit), func(units int) bool {
		return !r.attempts().IsInBackOffSinceUpdate(key, now.Add(unit*time.Duration(units)))
	}))
}

type clockOf struct {
	clock.RealClock
	now func() time.Time
}

func (c clockOf) Now() time.Time { return c.now() }

func (c clockOf) Since(then time.Time) time.Duration { return c.now().Sub(then) }
