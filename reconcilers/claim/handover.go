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

// ErrNotReleased is why a lease is not released but left to run out: another process would send at once.
var ErrNotReleased = errors.New("the lease is not released, so the next leader waits")

// Handover ensures that of two processes that share a lease only one sends to runtimes at a time. It wraps the lock of leader
// election, and derives from its requests how long this process must not send yet ([Handover.Left]):
//
//   - Whoever took the lease from a holder that had not released it waits, from then on, for as long as that lease lasted.
//   - Whoever could not renew the lease for so long that a call might outlast it stops sending, whether leader election has
//     noticed or not.
//   - The lease is released only by who still has it, has waited, and has no call under way. Leader election would release it
//     too when it could not be renewed, while the reconcilers still run, and even one that another process has taken since.
//
// It does not protect against deleting the lease by hand while a leader is running.
type Handover struct {
	resourcelock.Interface
	lease, call time.Duration
	locks       *Locks
	now         func() time.Time

	mu      sync.Mutex
	owed    time.Duration // the wait that taking the lease as it was last read costs
	tried   bool          // it was tried to take the lease since it was read as not ours: the reply may have been lost
	leads   bool
	until   time.Time // the end of the wait
	renewed time.Time // when the last write of ours that succeeded was begun
}

// NewHandover wraps the lock of a lease that lasts that long, for a process whose calls to runtimes end within call and are
// made under those locks.
func NewHandover(lock resourcelock.Interface, lease, call time.Duration, locks *Locks, now func() time.Time) *Handover {
	return &Handover{Interface: lock, lease: lease, call: call, locks: locks, now: now}
}

// Left is how long this process must not send anything to a runtime yet. While it does not lead, that is unknown, and Left is
// some positive time.
func (h *Handover) Left() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	switch {
	case !h.leads:
		return h.lease
	case h.until.After(now):
		return h.until.Sub(now)
	case elapsed(h.renewed, now) > h.lease-h.call:
		return h.call
	}
	return 0
}

// elapsed also counts the time for which the machine was asleep, which only the wall clock shows.
func elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// Get reads the lease.
func (h *Handover) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := h.Interface.Get(ctx)
	switch {
	case err == nil:
		h.saw(record)
	case apierrors.IsNotFound(err):
		h.lose() // a lease that vanished was not released: what taking it costs stays
	}
	return record, raw, err
}

// Create takes a lease that is not there.
func (h *Handover) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return h.write(ctx, record, h.Interface.Create)
}

// Update takes the lease, renews it, or releases it. It only succeeds over the lease as it was read or written last.
func (h *Handover) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == "" {
		return h.release(ctx, record)
	}
	return h.write(ctx, record, h.Interface.Update)
}

// saw takes note of the lease as it is.
func (h *Handover) saw(record *resourcelock.LeaderElectionRecord) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case record.HolderIdentity == "":
		h.owed, h.tried, h.leads = 0, false, false
	case record.HolderIdentity != h.Identity():
		h.owed, h.tried, h.leads = h.duration(record), false, false
	case !h.leads && !h.tried: // not by anything that this process knows of: as if it were another's
		h.owed = h.duration(record)
	}
}

// duration is how long the lease of a record lasts.
func (h *Handover) duration(record *resourcelock.LeaderElectionRecord) time.Duration {
	if record.LeaseDurationSeconds <= 0 {
		return h.lease
	}
	return time.Duration(record.LeaseDurationSeconds) * time.Second
}

func (h *Handover) lose() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leads = false
}

// write takes or renews the lease.
func (h *Handover) write(
	ctx context.Context, record resourcelock.LeaderElectionRecord,
	write func(context.Context, resourcelock.LeaderElectionRecord) error,
) error {
	h.mu.Lock()
	h.tried = true
	h.mu.Unlock()
	began := h.now()
	if err := write(ctx, record); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if end := h.now().Add(h.owed); h.owed > 0 && end.After(h.until) {
		h.until = end
	}
	h.owed, h.leads, h.renewed = 0, true, began
	return nil
}

// release gives the lease up. First the door is closed, then it is looked whether anybody is still inside: who comes later
// finds it closed.
func (h *Handover) release(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	h.mu.Lock()
	led, waiting := h.leads, h.until.After(h.now())
	h.leads, h.tried = false, false
	h.mu.Unlock()
	switch {
	case !led:
		return fmt.Errorf("%w: another process has it, or it is gone", ErrNotReleased)
	case waiting:
		return fmt.Errorf("%w: the process that had it before may still be at work", ErrNotReleased)
	case !h.locks.idle():
		return fmt.Errorf("%w: a call to a runtime may be under way", ErrNotReleased)
	}
	return h.Interface.Update(ctx, record)
}
