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
func (r *Reconciler) advanceSource(ctx context.Context, v *view) (bool, error) {
	if v.VM.Status.ActiveOperation == nil {
		return r.claimForSource(ctx, v)
	}
	intent := intentOfHolder(v)
	h := r.holderFor(v, intent)
	switch {
	case !v.seen.Exists: // lost in the meantime
		return h.withdraw(ctx, v1alpha1.EndFailed)
	case v.Reached(ctx, h):
	case intent == nil || intent.Type != v.VM.Status.ActiveOperation.Type:
		return h.withdraw(ctx, v1alpha1.EndDeleted)
	case v.overdue():
		return h.withdraw(ctx, v1alpha1.EndDeadlineExceeded)
	}
	return v.Advance(ctx, h)
}

// intentOfHolder returns the intent of the source that holds the machine.
func intentOfHolder(v *view) *drive.Intent {
	for _, s := range sources {
		if s.Origin() == v.VM.Status.ActiveOperation.Origin {
			return s.Wants(v.VM, &v.seen)
		}
	}
	return nil
}

// overdue reports whether the claim exceeds the default deadline of its type. Stops do not: they are forced after the
// grace period.
func (v *view) overdue() bool {
	held := v.VM.Status.ActiveOperation
	return claim.Leaves(held.Type) != v1alpha1.PowerStopped && v.Time.After(held.ClaimedAt.Add(held.Type.DefaultDeadline()))
}

// claimForSource claims the machine for the first source whose wanted state is not reached. The claim contains the
// baseline.
func (r *Reconciler) claimForSource(ctx context.Context, v *view) (bool, error) {
	switch {
	case !v.seen.Exists:
		return false, nil
	case !v.seen.Quiet():
		v.Later()
		v.waitMessage = v.seen.InFlight[0].Doing()
		return false, nil
	}
	for _, s := range sources {
		intent := s.Wants(v.VM, &v.seen)
		if intent == nil || drive.Reached(*intent, v.seen) {
			continue
		}
		if halt := r.Halt.Err(); halt != nil { // a claim would change the power intent
			v.waitMessage = runtime.Message(halt)
			return false, nil
		}
		if claim.Moves(intent.Type) && !drive.CanMove(v.Runtime()) {
			v.cannotMove = true
			continue
		}
		// A restart must not power the machine off before it may be powered on again.
		if slices.ContainsFunc(claim.Steps(intent.Type), func(k runtime.TaskKind) bool { return r.tooSoon(v, k) }) {
			continue
		}
		if missing := claim.MissingDisks(v.VM, &v.seen); len(missing) > 0 && slices.Contains(claim.Steps(intent.Type), runtime.TaskPowerOn) {
			v.waitMessage = drive.WaitsForDisks(missing)
			continue
		}
		if claim.Moves(intent.Type) {
			release, err := r.Locks.LockMoves(ctx) // until the claim is written
			if err != nil {
				return false, err
			}
			defer release()
			if !r.moveAdmitted(ctx, v, intent.Target.NodeName) {
				continue
			}
		}
		return r.claimMachine(ctx, v, claim.Holder{ID: string(uuid.NewUUID()), Origin: s.Origin(), Type: intent.Type, Force: intent.Force})
	}
	return false, nil
}

func (r *Reconciler) claimMachine(ctx context.Context, v *view, next claim.Holder) (bool, error) {
	if err := claim.Take(&v.VM.Status, next, nil, v.now()); err != nil {
		return false, fmt.Errorf("taking VirtualMachine %s for %s: %w", v.Key(), next, err)
	}
	held := v.VM.Status.ActiveOperation
	held.Baseline = drive.Baseline(&v.seen)
	// A start can be sent at once: this write also persists the intent to send.
	if slices.Index(claim.Steps(next.Type), runtime.TaskPowerOn) == 0 {
		held.Step, held.Signal = v1alpha1.StepPowerOn, v1alpha1.SignalSending
	}
	claim.Record(v.VM, &v.seen, false)
	did, err := r.save(ctx, v)
	if err == nil {
		r.recordEvent(v, corev1.EventTypeNormal, v1alpha1.ReasonOperationInProgress, string(next.Type), "%s: the machine is %s", r.holderFor(v, nil), v.seen.Power)
	}
	return did, err
}
