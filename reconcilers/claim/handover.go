package claim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// ErrNotReleased is returned if the lease must expire instead of being released: another process would send requests
// at once.
var ErrNotReleased = errors.New("the lease is not released, so the next leader waits")

// Handover ensures that of two processes that share a lease only one sends to runtimes at a time. It wraps the lock of leader
// election, and derives from its requests how long this process must not send yet ([Handover.Left]):
//
//   - A process that takes an unreleased lease waits for the duration of that lease.
//   - A process that could not renew the lease for so long that a call might outlast it stops sending, even if leader
//     election has not noticed.
//   - Only a process that holds the lease, has waited and has no call in flight releases it. Leader election alone
//     would also release it while the reconcilers still run, or after another process has taken it.
//
// It does not protect against deleting the lease by hand while a leader is running.
type Handover struct {
	resourcelock.Interface
	lease, call time.Duration
	locks       *Locks
	now         func() time.Time

	mu           sync.Mutex
	takeoverWait time.Duration // how long to wait if the lease is taken as last read
	attempted    bool          // a write was attempted since the lease was read as another's: its reply may have been lost
	leading      bool
	until        time.Time // the end of the wait
	renewed      time.Time // start of our last successful write
}

// NewHandover wraps the lock of a lease with that duration. Calls to runtimes end within call and are made under
// locks.
func NewHandover(lock resourcelock.Interface, lease, call time.Duration, locks *Locks, now func() time.Time) *Handover {
	return &Handover{Interface: lock, lease: lease, call: call, locks: locks, now: now}
}

// Left returns how long this process must not send requests to runtimes yet. It is positive while the process is not
// the leader.
func (h *Handover) Left() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	switch {
	case !h.leading:
		return h.lease
	case h.until.After(now):
		return h.until.Sub(now)
	case elapsed(h.renewed, now) > h.lease-h.call:
		return h.call
	}
	return 0
}

// elapsed includes time during which the host was suspended, which only the wall clock shows.
func elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// Get reads the lease, and notes who holds it.
func (h *Handover) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := h.Interface.Get(ctx)
	switch {
	case err == nil:
		h.observe(record)
	case apierrors.IsNotFound(err):
		h.stopLeading() // it vanished without being released, so the takeover wait stays
	}
	return record, raw, err
}

// Create takes a lease that does not exist.
func (h *Handover) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return h.write(ctx, record, h.Interface.Create)
}

// Update takes, renews or releases the lease. It succeeds only if the lease is unchanged since it was read or written
// last.
func (h *Handover) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == "" {
		return h.release(ctx, record)
	}
	return h.write(ctx, record, h.Interface.Update)
}

// observe records the state of the lease.
func (h *Handover) observe(record *resourcelock.LeaderElectionRecord) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case record.HolderIdentity == "":
		h.takeoverWait, h.attempted, h.leading = 0, false, false
	case record.HolderIdentity != h.Identity():
		h.takeoverWait, h.attempted, h.leading = h.duration(record), false, false
	case !h.leading && !h.attempted: // taken by an unknown write, so treat it as another's
		h.takeoverWait = h.duration(record)
	}
}

func (h *Handover) duration(record *resourcelock.LeaderElectionRecord) time.Duration {
	if record.LeaseDurationSeconds <= 0 {
		return h.lease
	}
	return time.Duration(record.LeaseDurationSeconds) * time.Second
}

func (h *Handover) stopLeading() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leading = false
}

// write takes or renews the lease.
func (h *Handover) write(
	ctx context.Context, record resourcelock.LeaderElectionRecord,
	write func(context.Context, resourcelock.LeaderElectionRecord) error,
) error {
	h.mu.Lock()
	h.attempted = true
	h.mu.Unlock()
	began := h.now()
	if err := write(ctx, record); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if end := h.now().Add(h.takeoverWait); h.takeoverWait > 0 && end.After(h.until) {
		h.until = end
	}
	h.takeoverWait, h.leading, h.renewed = 0, true, began
	return nil
}

// release first stops new runtime calls, then checks that none is in flight.
func (h *Handover) release(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	h.mu.Lock()
	wasLeading, waiting := h.leading, h.until.After(h.now())
	h.leading, h.attempted = false, false
	h.mu.Unlock()
	switch {
	case !wasLeading:
		return fmt.Errorf("%w: another process has it, or it is gone", ErrNotReleased)
	case waiting:
		return fmt.Errorf("%w: the process that had it before may still be at work", ErrNotReleased)
	case !h.locks.idle():
		return fmt.Errorf("%w: a call to a runtime may be under way", ErrNotReleased)
	}
	return h.Interface.Update(ctx, record)
}
