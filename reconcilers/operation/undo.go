package operation

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// undo gets rid of what former holders of the machine may have in flight, whatever they were, and ends those that are operations.
func (r *Reconciler) undo(ctx context.Context, l *look) (bool, error) {
	return l.Undo(ctx, &ender{Reconciler: r, look: l})
}

// ender ends operations that are undone.
type ender struct {
	*Reconciler
	*look
}

// Waits says why it takes so long, on the holder and on who is being undone.
func (e *ender) Waits(ctx context.Context, reason v1alpha1.ConditionReason, message string) (bool, error) {
	for _, o := range e.unfinished() {
		if !e.holds(o) && e.entry(o) == nil {
			continue
		}
		if did, err := e.note(ctx, e.look, o, reason, "%s", message); did || err != nil {
			return did, err
		}
	}
	return false, nil
}

// End gives an operation that is undone the status that its entry says. Deletion and deadline have ended it before.
func (e *ender) End(ctx context.Context, entry *v1alpha1.UndoingOperation) error {
	o := e.of(entry.ID)
	if o == nil || o.Finished() {
		return nil
	}
	if entry.End != v1alpha1.EndSuperseded {
		reason, message := v1alpha1.ReasonRuntimeFailed, "the runtime failed to carry out the operation"
		if c := v1alpha1.ConditionSignalSent.In(o.Status.Conditions); c != nil {
			message = c.Message // for which releaseHolder has withdrawn it
		}
		return e.fail(ctx, e.look, o, reason, message)
	}
	message := "superseded"
	if entry.By != nil {
		message = tookPlace(entry.By)
	}
	did, err := e.write(ctx, o, func(status *v1alpha1.VirtualMachineOperationStatus) {
		e.finished(status, v1alpha1.OperationCompleted)
		e.completed(o, metav1.ConditionTrue, v1alpha1.ReasonSuperseded, message)
		e.superseded(o, entry.By)
	})
	if did && err == nil {
		e.tell(e.look, o, corev1.EventTypeNormal, v1alpha1.ReasonSuperseded, message)
	}
	return err
}

// Ended counts it.
func (e *ender) Ended(entry v1alpha1.UndoingOperation) {
	e.Metrics.undone(&entry, e.VM.Status.ActiveOperation, e.Time)
}
