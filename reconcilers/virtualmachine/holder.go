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

// holding is who holds the machine and is no operation. What the driver has it write down is in the claim.
type holding struct {
	*Reconciler
	*look
	wants drive.Intent
}

// holding gives who holds the machine, for what it wants.
func (r *Reconciler) holding(l *look, wants *drive.Intent) *holding {
	h := &holding{Reconciler: r, look: l}
	if wants != nil {
		h.wants = *wants
	}
	return h
}

// held is the claim. A write may replace it.
func (h *holding) held() *v1alpha1.ActiveOperation { return h.VM.Status.ActiveOperation }

// String is what people call it, such as "Start by run policy AlwaysOn".
func (h *holding) String() string {
	switch h.held().Origin {
	case v1alpha1.OriginRunPolicy:
		return fmt.Sprintf("%s by run policy %s", h.held().Type, h.VM.Spec.RunPolicy)
	case v1alpha1.OriginRollout:
		return fmt.Sprintf("%s for a change of the spec", h.held().Type)
	case v1alpha1.OriginPlacement:
		return fmt.Sprintf("%s to node %s", h.held().Type, placedOn(h.VM))
	}
	return fmt.Sprintf("%s by %s", h.held().Type, h.held().Origin)
}

// Intent is what the machine was taken for. Starts are not too close to each other.
func (h *holding) Intent() drive.Intent {
	in := h.wants
	in.Type, in.Force = h.held().Type, h.held().Force
	in.Brief = true
	in.Hold = func(k runtime.TaskKind) bool { return h.tooSoon(h.look, k) }
	return in
}

// Record is what the claim has.
func (h *holding) Record() drive.Record {
	held := h.held()
	return drive.Record{Was: held.Baseline, Step: held.Step, Signal: held.Signal, GuestAskedAt: held.GuestAskedAt}
}

// Saw has the status show what was seen. It is written with what comes of it.
func (h *holding) Saw(_ context.Context, seen *runtime.Observation, done bool) error {
	h.seen, h.observed = *seen, true
	claim.Record(h.VM, seen, done)
	return nil
}

// Write keeps in the claim how far it has come.
func (h *holding) Write(ctx context.Context, p drive.Progress) (bool, error) {
	held := h.held()
	switch p.State {
	case drive.Begins:
		held.Baseline, held.Step = p.Was, p.Step
	case drive.Steps:
		held.Step, held.Signal, held.GuestAskedAt = p.Step, "", nil
	case drive.Sending:
		if held.Step == p.Step && held.Signal == v1alpha1.SignalSending {
			return false, nil // or what went wrong before would come and go with each attempt
		}
		held.Step, held.Signal = p.Step, v1alpha1.SignalSending
		if p.Step == v1alpha1.StepPowerOff && !held.Force && held.GuestAskedAt == nil {
			held.GuestAskedAt = new(metav1.MicroTime)
			*held.GuestAskedAt = h.micro()
		}
	case drive.Sent:
		held.Signal = v1alpha1.SignalSent
		h.sent(p.Step)
	case drive.Forces:
		held.Force, held.Signal = true, ""
	case drive.Done:
		h.sent(p.Step)
		return h.finish(ctx)
	case drive.Hopeless:
		h.unmoved = p.Message
		h.tell(h.look, corev1.EventTypeWarning, v1alpha1.ReasonMigrationNeeded, string(held.Type), "%s: the move failed: %s", h, p.Message)
		h.attempts().Next(h.Key().String(), h.Time)
		return h.withdraw(ctx, v1alpha1.EndFailed)
	case drive.Busy, drive.Waits: // shown with the rest, as is what the runtime says of an attempt that failed
		if h.err = p.Err; p.Reason != v1alpha1.ReasonAttemptFailed {
			h.waits = p.Message
		}
		return false, nil
	}
	return h.save(ctx, h.look)
}

// sent counts the attempt that a step is.
func (h *holding) sent(step v1alpha1.OperationStep) {
	if step == v1alpha1.StepPowerOn || step == v1alpha1.StepRelocate {
		h.attempts().Next(h.Key().String(), h.Time)
	}
}

// finish lets a machine go that is where it is wanted, or its object if that is being deleted.
func (h *holding) finish(ctx context.Context) (bool, error) {
	if h.held().Origin == v1alpha1.OriginDeletion {
		return h.release(ctx, h.look)
	}
	held, who := *h.held(), h.String()
	if err := claim.Finish(&h.VM.Status, held.ID); err != nil {
		return false, fmt.Errorf("releasing VirtualMachine %s: %w", h.Key(), err)
	}
	claim.Record(h.VM, &h.seen, true)
	if claim.Leaves(held.Type) == v1alpha1.PowerStopped { // it did not go off by itself
		h.attempts().Reset(h.Key().String())
	}
	did, err := h.save(ctx, h.look)
	if err == nil {
		state := string(h.seen.Power)
		if claim.Moves(held.Type) {
			state = "on node " + h.seen.NodeName
		}
		h.tell(h.look, corev1.EventTypeNormal, v1alpha1.ReasonAsWanted, string(held.Type), "%s finished: the machine is %s", who, state)
	}
	return did, err
}

// withdraw lets the machine go without success: what was begun is undone.
func (h *holding) withdraw(ctx context.Context, end v1alpha1.UndoEnd) (bool, error) {
	if err := claim.Withdraw(&h.VM.Status, h.held().ID, end); err != nil {
		return false, fmt.Errorf("withdrawing the claim on VirtualMachine %s: %w", h.Key(), err)
	}
	h.VM.Status.Phase = claim.Phase(h.VM, nil, false)
	return h.save(ctx, h.look)
}
