package operation

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/persist"
)

// write changes the status of an operation, if there is something to change, and reports whether there was. It fails if the
// operation is not as it was read.
func (r *Reconciler) write(
	ctx context.Context, o *v1alpha1.VirtualMachineOperation, change func(*v1alpha1.VirtualMachineOperationStatus),
) (bool, error) {
	before := o.Status.DeepCopy()
	o.Status.ObservedGeneration = o.Generation
	change(&o.Status)
	if o.Status.Phase == "" {
		o.Status.Phase = v1alpha1.OperationPending
	}
	changed, err := persist.Status(ctx, r.Client, o, before, &o.Status)
	if changed && o.Finished() && before.Phase != o.Status.Phase {
		r.Metrics.end(o)
	}
	return changed, err
}

// set sets a condition.
func (l *look) set(
	o *v1alpha1.VirtualMachineOperation, t v1alpha1.ConditionType,
	status metav1.ConditionStatus, reason v1alpha1.ConditionReason, message string,
) {
	v1alpha1.SetCondition(&o.Status.Conditions, t.Condition(status, reason, o.Generation, message), l.Time)
}

// completed sets the condition Completed, and with it Ready, which says the same.
func (l *look) completed(
	o *v1alpha1.VirtualMachineOperation, status metav1.ConditionStatus, reason v1alpha1.ConditionReason, message string,
) {
	l.set(o, v1alpha1.ConditionCompleted, status, reason, message)
	l.set(o, v1alpha1.ConditionReady, status, reason, message)
}

// note says of an unfinished operation what it waits for.
func (r *Reconciler) note(
	ctx context.Context, l *look, o *v1alpha1.VirtualMachineOperation, reason v1alpha1.ConditionReason, format string, args ...any,
) (bool, error) {
	return r.write(ctx, o, func(status *v1alpha1.VirtualMachineOperationStatus) {
		if l.holds(o) {
			l.begun(status)
		}
		l.completed(o, metav1.ConditionFalse, reason, fmt.Sprintf(format, args...))
	})
}

// begun makes the status that of an operation that holds its machine.
func (l *look) begun(status *v1alpha1.VirtualMachineOperationStatus) {
	status.Phase = v1alpha1.OperationInProgress
	if status.StartTime == nil {
		since := metav1.NewTime(l.VM.Status.ActiveOperation.ClaimedAt.Truncate(time.Second))
		status.StartTime = &since
	}
}

// fail ends an operation without success. That somebody took its place is said all the same.
func (r *Reconciler) fail(
	ctx context.Context, l *look, o *v1alpha1.VirtualMachineOperation, reason v1alpha1.ConditionReason, message string,
) error {
	did, err := r.write(ctx, o, func(status *v1alpha1.VirtualMachineOperationStatus) {
		l.finished(status, v1alpha1.OperationFailed)
		l.completed(o, metav1.ConditionFalse, reason, message)
		if entry := l.entry(o); entry != nil {
			l.superseded(o, entry.By)
		}
	})
	if did && err == nil {
		r.tell(l, o, corev1.EventTypeWarning, reason, message)
	}
	return err
}

// finished makes the status a final one.
func (l *look) finished(status *v1alpha1.VirtualMachineOperationStatus, phase v1alpha1.OperationPhase) {
	now := metav1.NewTime(l.Time.Truncate(time.Second))
	status.Phase, status.CompletionTime = phase, &now
}

// superseded says who took the operation's place, if somebody did.
func (l *look) superseded(o *v1alpha1.VirtualMachineOperation, by *v1alpha1.OperationReference) {
	if by == nil {
		return
	}
	o.Status.SupersededBy = by.DeepCopy()
	l.set(o, v1alpha1.ConditionSuperseded, metav1.ConditionTrue, v1alpha1.ReasonSuperseded, tookPlace(by))
}

func tookPlace(by *v1alpha1.OperationReference) string {
	if by.Name == "" {
		return "superseded by something other than an operation, such as the deletion of the VirtualMachine"
	}
	return fmt.Sprintf("superseded by operation %s", by.Name)
}
