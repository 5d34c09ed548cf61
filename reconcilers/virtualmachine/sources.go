package virtualmachine

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/reconcilers/drive"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// Source wants something of machines. It takes a machine when nobody holds it and it is not as the source wants it.
type Source interface {
	// Origin is that of its claims.
	Origin() v1alpha1.ClaimOrigin
	// Wants gives what is to be done to a machine that was seen like that, and nil if nothing is. While the source holds the
	// machine it is asked at each look: as soon as it wants nothing or another type, what it has begun is undone.
	Wants(*v1alpha1.VirtualMachine, *runtime.Observation) *drive.Intent
}

// sources are all sources, those first that come first.
var sources = []Source{placement{}, rollout{}, runPolicy{}}

// run has the source that holds the machine, if one does, get it to where it wants it, and otherwise the first one take it that
// does not find it there.
func (r *Reconciler) run(ctx context.Context, l *look) (bool, error) {
	if l.VM.Status.ActiveOperation == nil {
		return r.take(ctx, l)
	}
	wants := wants(l)
	h := r.holding(l, wants)
	switch {
	case !l.seen.Exists: // gone while something was done to it
		return h.withdraw(ctx, v1alpha1.EndFailed)
	case l.Reached(ctx, h):
	case wants == nil || wants.Type != l.VM.Status.ActiveOperation.Type:
		return h.withdraw(ctx, v1alpha1.EndDeleted)
	case l.overdue():
		return h.withdraw(ctx, v1alpha1.EndDeadlineExceeded)
	}
	return l.Advance(ctx, h)
}

// wants is what the source that holds the machine wants of it.
func wants(l *look) *drive.Intent {
	for _, s := range sources {
		if s.Origin() == l.VM.Status.ActiveOperation.Origin {
			return s.Wants(l.VM, &l.seen)
		}
	}
	return nil
}

// overdue tells whether something takes longer than an operation may. A Stop has the guest's time, and then is forced.
func (l *look) overdue() bool {
	held := l.VM.Status.ActiveOperation
	return claim.Leaves(held.Type) != v1alpha1.PowerStopped && l.Time.After(held.ClaimedAt.Add(held.Type.DefaultDeadline()))
}

// take has a source take a machine that is not as it is wanted. How it was found is a part of the claim.
func (r *Reconciler) take(ctx context.Context, l *look) (bool, error) {
	switch {
	case !l.seen.Exists:
		return false, nil
	case !l.seen.Quiet():
		l.Later()
		l.waits = l.seen.InFlight[0].Doing()
		return false, nil
	}
	for _, s := range sources {
		wants := s.Wants(l.VM, &l.seen)
		if wants == nil || drive.Reached(*wants, l.seen) {
			continue
		}
		if r.ReadOnly { // a claim would change what is wanted of the machine later
			l.waits = runtime.Message(runtime.ErrReadOnly)
			return false, nil
		}
		if claim.Moves(wants.Type) && !drive.CanMove(l.Runtime()) {
			l.stays = true
			continue
		}
		// One that is to be off and on again is not got off before it may be on.
		if slices.ContainsFunc(claim.Steps(wants.Type), func(k runtime.TaskKind) bool { return r.tooSoon(l, k) }) {
			continue
		}
		if missing := claim.MissingDisks(l.VM, &l.seen); len(missing) > 0 && slices.Contains(claim.Steps(wants.Type), runtime.TaskPowerOn) {
			l.waits = drive.WaitsForDisks(missing)
			continue
		}
		if claim.Moves(wants.Type) {
			release, err := r.Locks.LockMoves(ctx) // until the claim is written
			if err != nil {
				return false, err
			}
			defer release()
			if !r.admitted(ctx, l, wants.Target.NodeName) {
				continue
			}
		}
		return r.takeFor(ctx, l, claim.Holder{ID: string(uuid.NewUUID()), Origin: s.Origin(), Type: wants.Type, Force: wants.Force})
	}
	return false, nil
}

func (r *Reconciler) takeFor(ctx context.Context, l *look, next claim.Holder) (bool, error) {
	if err := claim.Take(&l.VM.Status, next, nil, l.micro()); err != nil {
		return false, fmt.Errorf("taking VirtualMachine %s for %s: %w", l.Key(), next, err)
	}
	held := l.VM.Status.ActiveOperation
	held.Baseline = drive.Baseline(&l.seen)
	// Nothing is in the way of a start: the same write says that the runtime is about to be told.
	if slices.Index(claim.Steps(next.Type), runtime.TaskPowerOn) == 0 {
		held.Step, held.Signal = v1alpha1.StepPowerOn, v1alpha1.SignalSending
	}
	claim.Record(l.VM, &l.seen, false)
	did, err := r.save(ctx, l)
	if err == nil {
		r.tell(l, corev1.EventTypeNormal, v1alpha1.ReasonOperationInProgress, string(next.Type), "%s: the machine is %s", r.holding(l, nil), l.seen.Power)
	}
	return did, err
}
