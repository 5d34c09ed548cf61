package operation

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/reconcilers/drive"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// advance has the operation that holds the machine carried out, once nothing of its predecessors is in flight.
func (r *Reconciler) advance(ctx context.Context, l *look) (bool, error) {
	o := l.holder()
	if o == nil || o.Finished() || len(l.VM.Status.Undoing) > 0 || !l.VM.DeletionTimestamp.IsZero() {
		return false, nil
	}
	return l.Advance(ctx, &holding{Reconciler: r, look: l, o: o})
}

// holding is an operation that holds its machine. What the driver has it write down is in its status.
type holding struct {
	*Reconciler
	*look
	o *v1alpha1.VirtualMachineOperation
}

// String is what people call it.
func (h *holding) String() string { return "operation " + h.o.Name }

// Intent is what the operation requests. A graceful operation never becomes a forced one by itself.
func (h *holding) Intent() drive.Intent {
	in := drive.Intent{Type: h.o.Spec.Type, Force: h.o.Spec.Force}
	if to := h.o.Spec.Migrate; to != nil {
		in.Target = *to
	}
	return in
}

// Record is what the status has.
func (h *holding) Record() drive.Record {
	status := &h.o.Status
	record := drive.Record{Was: status.Baseline, Step: status.Step}
	if c := v1alpha1.ConditionSignalSent.In(status.Conditions); c != nil {
		switch c.Status {
		case metav1.ConditionTrue:
			record.Signal = v1alpha1.SignalSent
		case metav1.ConditionUnknown:
			record.Signal = v1alpha1.SignalSending
		}
	}
	return record
}

// Saw updates the status of the machine with the observation before the status of the operation rests on it: a client that waits for
// the operation finds the machine in that state.
func (h *holding) Saw(ctx context.Context, seen *runtime.Observation, done bool) error {
	before := h.VM.Status.DeepCopy()
	claim.Record(h.VM, seen, done)
	if done && claim.Moves(h.o.Spec.Type) && seen.NodeName != "" {
		h.VM.Status.Placement = &v1alpha1.Placement{NodeName: seen.NodeName, By: h.o.Name, InPlaceOf: h.VM.Spec.NodeName}
	}
	if equality.Semantic.DeepEqual(before, &h.VM.Status) {
		return nil
	}
	return h.look.Write(ctx)
}

// Write shows how far the operation has come.
func (h *holding) Write(ctx context.Context, p drive.Progress) (bool, error) {
	switch p.State {
	case drive.Begins:
		return h.begin(ctx, p)
	case drive.Busy:
		return h.busy(ctx, p)
	case drive.Done:
		return h.complete(ctx, p.Message)
	case drive.Hopeless: // the next look takes the machine from it
		return h.write(ctx, h.o, func(status *v1alpha1.VirtualMachineOperationStatus) {
			h.begun(status)
			h.set(h.o, v1alpha1.ConditionSignalSent, metav1.ConditionFalse, v1alpha1.ReasonRuntimeFailed, p.Message)
		})
	case drive.Steps, drive.Sending:
		return h.write(ctx, h.o, func(status *v1alpha1.VirtualMachineOperationStatus) {
			if p.State == drive.Steps {
				status.Step = p.Step
			}
			h.set(h.o, v1alpha1.ConditionSignalSent, metav1.ConditionUnknown, v1alpha1.ReasonSending, "sending "+p.Message)
		})
	case drive.Sent:
		return h.sent(ctx, p.Message+" sent")
	}
	return h.note(ctx, h.look, h.o, p.Reason, "%s", p.Message)
}

// begin writes down how the machine was before the operation did anything.
func (h *holding) begin(ctx context.Context, p drive.Progress) (bool, error) {
	return h.write(ctx, h.o, func(status *v1alpha1.VirtualMachineOperationStatus) {
		h.begun(status)
		status.Baseline, status.Step = p.Was, p.Step
		status.Supersedes = nil
		for _, other := range h.operations {
			if by := other.Status.SupersededBy; by != nil && by.UID == h.o.UID && len(status.Supersedes) < claim.MaxUndoing {
				status.Supersedes = append(status.Supersedes, v1alpha1.OperationReference{Name: other.Name, UID: other.UID})
			}
		}
		h.completed(h.o, metav1.ConditionFalse, v1alpha1.ReasonInProgress, "in progress (has claimed the machine)")
		h.set(h.o, v1alpha1.ConditionSuperseded, metav1.ConditionFalse, v1alpha1.ReasonNotSuperseded, "")
	})
}

// busy says what the runtime is doing to the machine, and how far it has come.
func (h *holding) busy(ctx context.Context, p drive.Progress) (bool, error) {
	return h.write(ctx, h.o, func(status *v1alpha1.VirtualMachineOperationStatus) {
		h.begun(status)
		if p.Task.Progress != nil {
			status.Progress = p.Task.Progress
		}
		if !failedBefore(h.o) { // else it goes on showing what became of the attempt before
			h.completed(h.o, metav1.ConditionFalse, p.Reason, p.Message)
		}
	})
}

// sent writes down that the runtime was told. What it was told before, and what became of that, goes on being shown.
func (h *holding) sent(ctx context.Context, message string) (bool, error) {
	again := h.Record().Signal == v1alpha1.SignalSent
	return h.write(ctx, h.o, func(*v1alpha1.VirtualMachineOperationStatus) {
		h.set(h.o, v1alpha1.ConditionSignalSent, metav1.ConditionTrue, v1alpha1.ReasonSent, message)
		if !again {
			h.completed(h.o, metav1.ConditionFalse, v1alpha1.ReasonInProgress, message)
		}
	})
}

// complete ends the operation with success. The next look frees the machine.
func (h *holding) complete(ctx context.Context, message string) (bool, error) {
	did, err := h.write(ctx, h.o, func(status *v1alpha1.VirtualMachineOperationStatus) {
		h.finished(status, v1alpha1.OperationCompleted)
		if status.Progress != nil {
			status.Progress = new(int32(100))
		}
		h.completed(h.o, metav1.ConditionTrue, v1alpha1.ReasonSucceeded, message)
		if h.Record().Signal == "" {
			h.set(h.o, v1alpha1.ConditionSignalSent, metav1.ConditionFalse, v1alpha1.ReasonNothingToSend,
				"nothing to send: the machine was already in the requested state")
		} else { // also if the reply was lost: what was seen confirms it
			h.set(h.o, v1alpha1.ConditionSignalSent, metav1.ConditionTrue, v1alpha1.ReasonSent, "sent to the runtime")
		}
	})
	if did && err == nil {
		h.tell(h.look, h.o, corev1.EventTypeNormal, v1alpha1.ReasonSucceeded, message)
	}
	return true, err
}

// hopeless reports whether the holder has found that it can never reach its goal. Its condition says so, which releaseHolder
// then acts on, so that the message survives a crash.
func (l *look) hopeless(o *v1alpha1.VirtualMachineOperation) bool {
	c := v1alpha1.ConditionSignalSent.In(o.Status.Conditions)
	return c != nil && c.Reason == string(v1alpha1.ReasonRuntimeFailed)
}

// failedBefore reports whether the runtime has been told before and what came of it failed. That is shown until something else
// is known, or each attempt would write, and each write bring the next attempt.
func failedBefore(o *v1alpha1.VirtualMachineOperation) bool {
	c := v1alpha1.ConditionCompleted.In(o.Status.Conditions)
	return c != nil && c.Reason == string(v1alpha1.ReasonAttemptFailed) &&
		meta.IsStatusConditionTrue(o.Status.Conditions, string(v1alpha1.ConditionSignalSent))
}
