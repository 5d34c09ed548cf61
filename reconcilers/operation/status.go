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

// write updates the status of an operation if change alters it, and reports whether it did. It fails with a conflict
// if the operation has changed since it was read.
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
		r.Metrics.countEnd(o)
	}
	return changed, err
}

func (v *view) setCondition(
	o *v1alpha1.VirtualMachineOperation, t v1alpha1.ConditionType,
	status metav1.ConditionStatus, reason v1alpha1.ConditionReason, message string,
) {
	v1alpha1.SetCondition(&o.Status.Conditions, t.Condition(status, reason, o.Generation, message), v.Time)
}

// setCompleted sets the conditions Completed and Ready, which always agree.
func (v *view) setCompleted(
	o *v1alpha1.VirtualMachineOperation, status metav1.ConditionStatus, reason v1alpha1.ConditionReason, message string,
) {
	v.setCondition(o, v1alpha1.ConditionCompleted, status, reason, message)
	v.setCondition(o, v1alpha1.ConditionReady, status, reason, message)
}

// reportWaiting sets the reason why an unfinished operation waits.
func (r *Reconciler) reportWaiting(
	ctx context.Context, v *view, o *v1alpha1.VirtualMachineOperation, reason v1alpha1.ConditionReason, format string, args ...any,
) (bool, error) {
	return r.write(ctx, o, func(status *v1alpha1.VirtualMachineOperationStatus) {
		if v.holds(o) {
			v.setStarted(status)
		}
		v.setCompleted(o, metav1.ConditionFalse, reason, fmt.Sprintf(format, args...))
	})
}

func (v *view) setStarted(status *v1alpha1.VirtualMachineOperationStatus) {
	status.Phase = v1alpha1.OperationInProgress
	if status.StartTime == nil {
		since := metav1.NewTime(v.VM.Status.ActiveOperation.ClaimedAt.Truncate(time.Second))
		status.StartTime = &since
	}
}

// fail ends an operation without success. If it was superseded, the status still says by what.
func (r *Reconciler) fail(
	ctx context.Context, v *view, o *v1alpha1.VirtualMachineOperation, reason v1alpha1.ConditionReason, message string,
) error {
	did, err := r.write(ctx, o, func(status *v1alpha1.VirtualMachineOperationStatus) {
		v.setFinished(status, v1alpha1.OperationFailed)
		v.setCompleted(o, metav1.ConditionFalse, reason, message)
		if entry := v.entry(o); entry != nil {
			v.setSuperseded(o, entry.By)
		}
	})
	if did && err == nil {
		r.recordEvent(v, o, corev1.EventTypeWarning, reason, message)
	}
	return err
}

func (v *view) setFinished(status *v1alpha1.VirtualMachineOperationStatus, phase v1alpha1.OperationPhase) {
	now := metav1.NewTime(v.Time.Truncate(time.Second))
	status.Phase, status.CompletionTime = phase, &now
}

// setSuperseded records by what the operation was superseded, if it was.
func (v *view) setSuperseded(o *v1alpha1.VirtualMachineOperation, by *v1alpha1.OperationReference) {
	if by == nil {
		return
	}
	o.Status.SupersededBy = by.DeepCopy()
	v.setCondition(o, v1alpha1.ConditionSuperseded, metav1.ConditionTrue, v1alpha1.ReasonSuperseded, supersededMessage(by))
}

func supersededMessage(by *v1alpha1.OperationReference) string {
	if by.Name == "" {
		return "superseded by something other than an operation, such as the deletion of the VirtualMachine"
	}
	return fmt.Sprintf("superseded by operation %s", by.Name)
}
