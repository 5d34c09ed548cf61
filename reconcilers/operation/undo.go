package operation

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// undo cancels what former holders of the machine may have in flight, and ends those that are operations.
func (r *Reconciler) undo(ctx context.Context, v *view) (bool, error) {
	return v.Undo(ctx, &ender{Reconciler: r, view: v})
}

// ender is the [drive.Ender] for operations.
type ender struct {
	*Reconciler
	*view
}

// Waits reports why undoing takes time, on the holder and on the operations being undone.
func (e *ender) Waits(ctx context.Context, reason v1alpha1.ConditionReason, message string) (bool, error) {
	for _, o := range e.unfinished() {
		if !e.holds(o) && e.entry(o) == nil {
			continue
		}
		if did, err := e.reportWaiting(ctx, e.view, o, reason, "%s", message); did || err != nil {
			return did, err
		}
	}
	return false, nil
}

// End sets the final status that the undoing entry asks for. Operations that were deleted or overdue have ended
// already.
func (e *ender) End(ctx context.Context, entry *v1alpha1.UndoingOperation) error {
	o := e.byUID(entry.ID)
	if o == nil || o.Finished() {
		return nil
	}
	if entry.End != v1alpha1.EndSuperseded {
		reason, message := v1alpha1.ReasonRuntimeFailed, "the runtime failed to carry out the operation"
		if c := v1alpha1.ConditionSignalSent.In(o.Status.Conditions); c != nil {
			message = c.Message // the reason for which releaseHolder withdrew the claim
		}
		return e.fail(ctx, e.view, o, reason, message)
	}
	message := "superseded"
	if entry.By != nil {
		message = supersededMessage(entry.By)
	}
	did, err := e.write(ctx, o, func(status *v1alpha1.VirtualMachineOperationStatus) {
		e.setFinished(status, v1alpha1.OperationCompleted)
		e.setCompleted(o, metav1.ConditionTrue, v1alpha1.ReasonSuperseded, message)
		e.setSuperseded(o, entry.By)
	})
	if did && err == nil {
		e.recordEvent(e.view, o, corev1.EventTypeNormal, v1alpha1.ReasonSuperseded, message)
	}
	return err
}

func (e *ender) Ended(entry v1alpha1.UndoingOperation) {
	e.Metrics.observeUndone(&entry, e.VM.Status.ActiveOperation, e.Time)
}
