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

// advance carries out the operation that holds the machine, once nothing of earlier holders is in flight.
func (r *Reconciler) advance(ctx context.Context, v *view) (bool, error) {
	o := v.holder()
	if o == nil || o.Finished() || len(v.VM.Status.Undoing) > 0 || !v.VM.DeletionTimestamp.IsZero() {
		return false, nil
	}
	return v.Advance(ctx, &operationHolder{Reconciler: r, view: v, o: o})
}

// operationHolder is a [drive.Holder] for an operation. It persists the driver's progress in the operation's status.
type operationHolder struct {
	*Reconciler
	*view
	o *v1alpha1.VirtualMachineOperation
}

func (h *operationHolder) String() string { return "operation " + h.o.Name }

// Intent returns what the operation requests. A graceful operation never becomes a forced one by itself.
func (h *operationHolder) Intent() drive.Intent {
	in := drive.Intent{Type: h.o.Spec.Type, Force: h.o.Spec.Force}
	if to := h.o.Spec.Migrate; to != nil {
		in.Target = *to
	}
	return in
}

func (h *operationHolder) Record() drive.Record {
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

// Saw updates the status of the machine before that of the operation, so that a client that waits for the operation
// finds the machine in the reported state.
func (h *operationHolder) Saw(ctx context.Context, seen *runtime.Observation, done bool) error {
	before := h.VM.Status.DeepCopy()
	claim.Record(h.VM, seen, done)
	if done && claim.Moves(h.o.Spec.Type) && seen.NodeName != "" {
		h.VM.Status.Placement = &v1alpha1.Placement{NodeName: seen.NodeName, By: h.o.Name, InPlaceOf: h.VM.Spec.NodeName}
	}
	if equality.Semantic.DeepEqual(before, &h.VM.Status) {
		return nil
	}
	return h.view.Write(ctx)
}

func (h *operationHolder) Write(ctx context.Context, p drive.Progress) (bool, error) {
	switch p.State {
	case drive.Begins:
		return h.begin(ctx, p)
	case drive.Busy:
		return h.busy(ctx, p)
	case drive.Done:
		return h.complete(ctx, p.Message)
	case drive.Hopeless: // the next pass releases the machine
		return h.write(ctx, h.o, func(status *v1alpha1.VirtualMachineOperationStatus) {
			h.setStarted(status)
			h.setCondition(h.o, v1alpha1.ConditionSignalSent, metav1.ConditionFalse, v1alpha1.ReasonRuntimeFailed, p.Message)
		})
	case drive.Steps, drive.Sending:
		return h.write(ctx, h.o, func(status *v1alpha1.VirtualMachineOperationStatus) {
			if p.State == drive.Steps {
				status.Step = p.Step
			}
			h.setCondition(h.o, v1alpha1.ConditionSignalSent, metav1.ConditionUnknown, v1alpha1.ReasonSending, "sending "+p.Message)
		})
	case drive.Sent:
		return h.sent(ctx, p.Message+" sent")
	}
	return h.reportWaiting(ctx, h.view, h.o, p.Reason, "%s", p.Message)
}

// begin persists the baseline and what the operation superseded.
func (h *operationHolder) begin(ctx context.Context, p drive.Progress) (bool, error) {
	return h.write(ctx, h.o, func(status *v1alpha1.VirtualMachineOperationStatus) {
		h.setStarted(status)
		status.Baseline, status.Step = p.Was, p.Step
		status.Supersedes = nil
		for _, other := range h.operations {
			if by := other.Status.SupersededBy; by != nil && by.UID == h.o.UID && len(status.Supersedes) < claim.MaxUndoing {
				status.Supersedes = append(status.Supersedes, v1alpha1.OperationReference{Name: other.Name, UID: other.UID})
			}
		}
		h.setCompleted(h.o, metav1.ConditionFalse, v1alpha1.ReasonInProgress, "in progress (has claimed the machine)")
		h.setCondition(h.o, v1alpha1.ConditionSuperseded, metav1.ConditionFalse, v1alpha1.ReasonNotSuperseded, "")
	})
}

// busy reports what the runtime is doing and its progress.
func (h *operationHolder) busy(ctx context.Context, p drive.Progress) (bool, error) {
	return h.write(ctx, h.o, func(status *v1alpha1.VirtualMachineOperationStatus) {
		h.setStarted(status)
		if p.Task.Progress != nil {
			status.Progress = p.Task.Progress
		}
		if !failedBefore(h.o) { // otherwise the failure of the previous attempt stays visible
			h.setCompleted(h.o, metav1.ConditionFalse, p.Reason, p.Message)
		}
	})
}

// sent persists that the request was sent. If it had been sent before, condition Completed keeps showing the result
// of that attempt.
func (h *operationHolder) sent(ctx context.Context, message string) (bool, error) {
	again := h.Record().Signal == v1alpha1.SignalSent
	return h.write(ctx, h.o, func(*v1alpha1.VirtualMachineOperationStatus) {
		h.setCondition(h.o, v1alpha1.ConditionSignalSent, metav1.ConditionTrue, v1alpha1.ReasonSent, message)
		if !again {
			h.setCompleted(h.o, metav1.ConditionFalse, v1alpha1.ReasonInProgress, message)
		}
	})
}

// complete ends the operation with success. The next pass frees the machine.
func (h *operationHolder) complete(ctx context.Context, message string) (bool, error) {
	did, err := h.write(ctx, h.o, func(status *v1alpha1.VirtualMachineOperationStatus) {
		h.setFinished(status, v1alpha1.OperationCompleted)
		if status.Progress != nil {
			status.Progress = new(int32(100))
		}
		h.setCompleted(h.o, metav1.ConditionTrue, v1alpha1.ReasonSucceeded, message)
		if h.Record().Signal == "" {
			h.setCondition(h.o, v1alpha1.ConditionSignalSent, metav1.ConditionFalse, v1alpha1.ReasonNothingToSend,
				"nothing to send: the machine was already in the requested state")
		} else { // also if the reply was lost: the observed state confirms it
			h.setCondition(h.o, v1alpha1.ConditionSignalSent, metav1.ConditionTrue, v1alpha1.ReasonSent, "sent to the runtime")
		}
	})
	if did && err == nil {
		h.recordEvent(h.view, h.o, corev1.EventTypeNormal, v1alpha1.ReasonSucceeded, message)
	}
	return true, err
}

// failedForGood reports whether the holder can never reach its goal. The status says so before releaseHolder acts on
// it, so that the message survives a crash.
func (v *view) failedForGood(o *v1alpha1.VirtualMachineOperation) bool {
	c := v1alpha1.ConditionSignalSent.In(o.Status.Conditions)
	return c != nil && c.Reason == string(v1alpha1.ReasonRuntimeFailed)
}

// failedBefore reports whether an earlier attempt of the runtime failed. The failure stays visible until there is
// something new: otherwise each attempt would cause a write, and each write the next attempt.
func failedBefore(o *v1alpha1.VirtualMachineOperation) bool {
	c := v1alpha1.ConditionCompleted.In(o.Status.Conditions)
	return c != nil && c.Reason == string(v1alpha1.ReasonAttemptFailed) &&
		meta.IsStatusConditionTrue(o.Status.Conditions, string(v1alpha1.ConditionSignalSent))
}
