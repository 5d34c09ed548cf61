package virtualmachine

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/reconcilers/drive"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// claimHolder is a [drive.Holder] that is not an operation. It persists the driver's progress in the claim.
type claimHolder struct {
	*Reconciler
	*view
	intent drive.Intent
}

func (r *Reconciler) holderFor(v *view, intent *drive.Intent) *claimHolder {
	h := &claimHolder{Reconciler: r, view: v}
	if intent != nil {
		h.intent = *intent
	}
	return h
}

// active returns the claim. A write may replace it.
func (h *claimHolder) active() *v1alpha1.ActiveOperation { return h.VM.Status.ActiveOperation }

// String returns the name used in messages, such as "Start by run policy AlwaysOn".
func (h *claimHolder) String() string {
	switch h.active().Origin {
	case v1alpha1.OriginRunPolicy:
		return fmt.Sprintf("%s by run policy %s", h.active().Type, h.VM.Spec.RunPolicy)
	case v1alpha1.OriginRollout:
		return fmt.Sprintf("%s for a change of the spec", h.active().Type)
	case v1alpha1.OriginPlacement:
		return fmt.Sprintf("%s to node %s", h.active().Type, wantedNode(h.VM))
	}
	return fmt.Sprintf("%s by %s", h.active().Type, h.active().Origin)
}

// Intent returns the intent of the claim. Starts and moves back off.
func (h *claimHolder) Intent() drive.Intent {
	in := h.intent
	in.Type, in.Force = h.active().Type, h.active().Force
	in.Brief = true
	in.Hold = func(k runtime.TaskKind) bool { return h.tooSoon(h.view, k) }
	return in
}

func (h *claimHolder) Record() drive.Record {
	active := h.active()
	return drive.Record{Was: active.Baseline, Step: active.Step, Signal: active.Signal, GuestAskedAt: active.GuestAskedAt}
}

// Saw updates the status in memory. The next write of the claim persists it.
func (h *claimHolder) Saw(_ context.Context, seen *runtime.Observation, done bool) error {
	h.seen, h.observed = *seen, true
	claim.Record(h.VM, seen, done)
	return nil
}

func (h *claimHolder) Write(ctx context.Context, p drive.Progress) (bool, error) {
	active := h.active()
	switch p.State {
	case drive.Begins:
		active.Baseline, active.Step = p.Was, p.Step
	case drive.Steps:
		active.Step, active.Signal, active.GuestAskedAt = p.Step, "", nil
	case drive.Sending:
		if active.Step == p.Step && active.Signal == v1alpha1.SignalSending {
			return false, nil // otherwise each attempt would hide the previous error and show it again
		}
		active.Step, active.Signal = p.Step, v1alpha1.SignalSending
		if p.Step == v1alpha1.StepPowerOff && !active.Force && active.GuestAskedAt == nil {
			active.GuestAskedAt = new(metav1.MicroTime)
			*active.GuestAskedAt = h.now()
		}
	case drive.Sent:
		active.Signal = v1alpha1.SignalSent
		h.countAttempt(p.Step)
	case drive.Forces:
		active.Force, active.Signal = true, ""
	case drive.Done:
		h.countAttempt(p.Step)
		return h.finish(ctx)
	case drive.Hopeless:
		h.moveFailure = p.Message
		h.recordEvent(h.view, corev1.EventTypeWarning, v1alpha1.ReasonMigrationNeeded, string(active.Type), "%s: the move failed: %s", h, p.Message)
		h.attempts().Next(h.Key().String(), h.Time)
		return h.withdraw(ctx, v1alpha1.EndFailed)
	case drive.Busy, drive.Waits: // shown in the status; a failed attempt is already in the observation
		if h.err = p.Err; p.Reason != v1alpha1.ReasonAttemptFailed {
			h.waitMessage = p.Message
		}
		return false, nil
	}
	return h.save(ctx, h.view)
}

// countAttempt counts a start or move for the backoff.
func (h *claimHolder) countAttempt(step v1alpha1.OperationStep) {
	if step == v1alpha1.StepPowerOn || step == v1alpha1.StepRelocate {
		h.attempts().Next(h.Key().String(), h.Time)
	}
}

// finish releases the claim of a machine that has reached its goal, or the finalizer if the machine is deleted.
func (h *claimHolder) finish(ctx context.Context) (bool, error) {
	if h.active().Origin == v1alpha1.OriginDeletion {
		return h.release(ctx, h.view)
	}
	active, name := *h.active(), h.String()
	if err := claim.Finish(&h.VM.Status, active.ID); err != nil {
		return false, fmt.Errorf("releasing VirtualMachine %s: %w", h.Key(), err)
	}
	claim.Record(h.VM, &h.seen, true)
	if claim.Leaves(active.Type) == v1alpha1.PowerStopped { // it was stopped on purpose, so the next start need not back off
		h.attempts().Reset(h.Key().String())
	}
	did, err := h.save(ctx, h.view)
	if err == nil {
		state := string(h.seen.Power)
		if claim.Moves(active.Type) {
			state = "on node " + h.seen.NodeName
		}
		h.recordEvent(h.view, corev1.EventTypeNormal, v1alpha1.ReasonAsWanted, string(active.Type), "%s finished: the machine is %s", name, state)
	}
	return did, err
}

// withdraw releases the claim without success, so that the unfinished change is undone.
func (h *claimHolder) withdraw(ctx context.Context, end v1alpha1.UndoEnd) (bool, error) {
	if err := claim.Withdraw(&h.VM.Status, h.active().ID, end); err != nil {
		return false, fmt.Errorf("withdrawing the claim on VirtualMachine %s: %w", h.Key(), err)
	}
	h.VM.Status.Phase = claim.Phase(h.VM, nil, false)
	return h.save(ctx, h.view)
}
