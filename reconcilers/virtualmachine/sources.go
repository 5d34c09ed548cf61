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

// Source derives changes to machines from their spec. It claims an unclaimed machine that differs from what it wants.
type Source interface {
	// Origin returns the origin of its claims.
	Origin() v1alpha1.ClaimOrigin
	// Wants returns the change that a machine needs in its observed state, or nil. It is called in each pass while
	// the source holds the machine: as soon as it returns nil or another type, its unfinished change is undone.
	Wants(*v1alpha1.VirtualMachine, *runtime.Observation) *drive.Intent
}

// sources lists all sources by priority.
var sources = []Source{placement{}, rollout{}, runPolicy{}}

// advanceSource advances the source that holds the machine. If there is none, the first source whose wanted state is
// not reached claims the machine.
func (r *Reconciler) advanceSource(ctx context.Context, l *view) (bool, error) {
	if l.VM.Status.ActiveOperation == nil {
		return r.claimForSource(ctx, l)
	}
	intent := intentOfHolder(l)
	h := r.holderFor(l, intent)
	switch {
	case !l.seen.Exists: // lost in the meantime
		return h.withdraw(ctx, v1alpha1.EndFailed)
	case l.Reached(ctx, h):
	case intent == nil || intent.Type != l.VM.Status.ActiveOperation.Type:
		return h.withdraw(ctx, v1alpha1.EndDeleted)
	case l.overdue():
		return h.withdraw(ctx, v1alpha1.EndDeadlineExceeded)
	}
	return l.Advance(ctx, h)
}

// intentOfHolder returns the intent of the source that holds the machine.
func intentOfHolder(l *view) *drive.Intent {
	for _, s := range sources {
		if s.Origin() == l.VM.Status.ActiveOperation.Origin {
			return s.Wants(l.VM, &l.seen)
		}
	}
	return nil
}

// overdue reports whether the claim exceeds the default deadline of its type. Stops do not: they are forced after the
// grace period.
func (l *view) overdue() bool {
	held := l.VM.Status.ActiveOperation
	return claim.Leaves(held.Type) != v1alpha1.PowerStopped && l.Time.After(held.ClaimedAt.Add(held.Type.DefaultDeadline()))
}

// claimForSource claims the machine for the first source whose wanted state is not reached. The claim contains the
// baseline.
func (r *Reconciler) claimForSource(ctx context.Context, l *view) (bool, error) {
	switch {
	case !l.seen.Exists:
		return false, nil
	case !l.seen.Quiet():
		l.Later()
		l.waitMessage = l.seen.InFlight[0].Doing()
		return false, nil
	}
	for _, s := range sources {
		intent := s.Wants(l.VM, &l.seen)
		if intent == nil || drive.Reached(*intent, l.seen) {
			continue
		}
		if halt := r.Halt.Err(); halt != nil { // a claim would change the power intent
			l.waitMessage = runtime.Message(halt)
			return false, nil
		}
		if claim.Moves(intent.Type) && !drive.CanMove(l.Runtime()) {
			l.cannotMove = true
			continue
		}
		// A restart must not power the machine off before it may be powered on again.
		if slices.ContainsFunc(claim.Steps(intent.Type), func(k runtime.TaskKind) bool { return r.tooSoon(l, k) }) {
			continue
		}
		if missing := claim.MissingDisks(l.VM, &l.seen); len(missing) > 0 && slices.Contains(claim.Steps(intent.Type), runtime.TaskPowerOn) {
			l.waitMessage = drive.WaitsForDisks(missing)
			continue
		}
		if claim.Moves(intent.Type) {
			release, err := r.Locks.LockMoves(ctx) // until the claim is written
			if err != nil {
				return false, err
			}
			defer release()
			if !r.moveAdmitted(ctx, l, intent.Target.NodeName) {
				continue
			}
		}
		return r.claimMachine(ctx, l, claim.Holder{ID: string(uuid.NewUUID()), Origin: s.Origin(), Type: intent.Type, Force: intent.Force})
	}
	return false, nil
}

func (r *Reconciler) claimMachine(ctx context.Context, l *view, next claim.Holder) (bool, error) {
	if err := claim.Take(&l.VM.Status, next, nil, l.now()); err != nil {
		return false, fmt.Errorf("taking VirtualMachine %s for %s: %w", l.Key(), next, err)
	}
	held := l.VM.Status.ActiveOperation
	held.Baseline = drive.Baseline(&l.seen)
	// A start can be sent at once: this write also persists the intent to send.
	if slices.Index(claim.Steps(next.Type), runtime.TaskPowerOn) == 0 {
		held.Step, held.Signal = v1alpha1.StepPowerOn, v1alpha1.SignalSending
	}
	claim.Record(l.VM, &l.seen, false)
	did, err := r.save(ctx, l)
	if err == nil {
		r.recordEvent(l, corev1.EventTypeNormal, v1alpha1.ReasonOperationInProgress, string(next.Type), "%s: the machine is %s", r.holderFor(l, nil), l.seen.Power)
	}
	return did, err
}
