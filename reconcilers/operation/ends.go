package operation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/claim"
)

// endWithMachine fails the operations whose machine is gone, is being deleted or was replaced. The holder loses the
// claim first, in releaseHolder.
func (r *Reconciler) endWithMachine(ctx context.Context, v *view) (bool, error) {
	for _, o := range v.unfinished() {
		if v.holds(o) {
			continue
		}
		switch {
		case v.VM == nil:
			return true, r.fail(ctx, v, o, v1alpha1.ReasonVirtualMachineDeleted, "the VirtualMachine no longer exists")
		case o.Spec.VirtualMachineUID != v.VM.UID:
			return true, r.fail(ctx, v, o, v1alpha1.ReasonVirtualMachineReplaced,
				"the VirtualMachine was replaced: its UID differs from spec.virtualMachineUID of the operation")
		case !v.VM.DeletionTimestamp.IsZero():
			return true, r.fail(ctx, v, o, v1alpha1.ReasonVirtualMachineDeleted, "the VirtualMachine is being deleted")
		}
	}
	return false, nil
}

// releaseHolder frees the machine if its holder has ended or must end.
func (r *Reconciler) releaseHolder(ctx context.Context, v *view) (bool, error) {
	if v.VM == nil || v.VM.Status.ActiveOperation == nil || v.VM.Status.ActiveOperation.Origin != v1alpha1.OriginOperation {
		return false, nil
	}
	id := v.VM.Status.ActiveOperation.ID
	var err error
	switch o := v.holder(); {
	case o == nil: // deleted: the list is newer than the claim
		err = claim.Withdraw(&v.VM.Status, id, v1alpha1.EndDeleted)
	case o.Status.Phase == v1alpha1.OperationFailed: // another process failed it just before it claimed the machine
		err = claim.Withdraw(&v.VM.Status, id, v1alpha1.EndFailed)
	case o.Finished():
		err = claim.Finish(&v.VM.Status, id)
	case !o.DeletionTimestamp.IsZero(), !v.VM.DeletionTimestamp.IsZero():
		err = claim.Withdraw(&v.VM.Status, id, v1alpha1.EndDeleted)
	case v.overdue(o):
		err = claim.Withdraw(&v.VM.Status, id, v1alpha1.EndDeadlineExceeded)
	case v.failedForGood(o):
		err = claim.Withdraw(&v.VM.Status, id, v1alpha1.EndFailed)
	default:
		return false, nil
	}
	if errors.Is(err, claim.ErrFull) { // an earlier claim must settle first
		log.FromContext(ctx).Info("an operation cannot end yet", "VirtualMachine", v.Key(), "cause", err.Error())
		return false, nil
	}
	if err != nil {
		return false, err
	}
	v.VM.Status.Phase = claim.Phase(v.VM, nil, false)
	return true, v.Write(ctx)
}

// endWithoutClaim fails operations that do not hold the machine and are overdue or deleted, whatever the state of the
// runtime.
func (r *Reconciler) endWithoutClaim(ctx context.Context, v *view) (bool, error) {
	for _, o := range v.unfinished() {
		if v.holds(o) {
			continue
		}
		entry := v.entry(o)
		switch {
		case entry != nil && entry.End == v1alpha1.EndDeleted, !o.DeletionTimestamp.IsZero():
			return true, r.fail(ctx, v, o, v1alpha1.ReasonDeleted, "the operation was deleted before it finished")
		case entry != nil && entry.End == v1alpha1.EndDeadlineExceeded, v.overdue(o):
			return true, r.fail(ctx, v, o, v1alpha1.ReasonDeadlineExceeded,
				fmt.Sprintf("the operation did not finish within %s of its creation", o.ActiveDeadline()))
		}
	}
	return false, nil
}

// overdue reports whether the deadline of the operation has passed. If not, it schedules a pass for the deadline.
func (v *view) overdue(o *v1alpha1.VirtualMachineOperation) bool {
	left := o.CreationTimestamp.Add(o.ActiveDeadline()).Sub(v.Time)
	if left <= 0 {
		return true
	}
	v.Wait(left + time.Millisecond)
	return false
}
