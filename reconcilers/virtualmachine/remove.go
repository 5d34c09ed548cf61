package virtualmachine

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/reconcilers/drive"
	"sallyport.dev/sallyport/reconcilers/persist"
)

// remove advances the deletion of a machine: the deletion supersedes the holder, waits until that is undone, powers
// the machine off, and removes it, or releases it if it was adopted. The runtime is asked whatever the status says: a
// crash may have prevented the record of an instance.
func (r *Reconciler) remove(ctx context.Context, v *view) (bool, error) {
	if !controllerutil.ContainsFinalizer(v.VM, v1alpha1.VirtualMachineFinalizer) {
		return false, nil // another finalizer keeps it
	}
	present, held := claim.Current(&v.VM.Status)
	switch {
	case v.abandoned():
		return r.release(ctx, v)
	case !held || present.Origin != v1alpha1.OriginDeletion:
		return r.claimForDeletion(ctx, v)
	case len(v.VM.Status.Undoing) > 0:
		return r.report(ctx, v)
	}
	grace := v.VM.Spec.TerminationGracePeriod()
	did, err := v.Advance(ctx, r.holderFor(v, &drive.Intent{Grace: &grace}))
	if did || err != nil || !controllerutil.ContainsFinalizer(v.VM, v1alpha1.VirtualMachineFinalizer) {
		return did, err
	}
	return r.report(ctx, v)
}

// abandoned reports whether the user has given up the instance because its backend will not come back. The annotation
// contains the UID, so that it has no effect on another VirtualMachine.
func (v *view) abandoned() bool {
	return v.VM.Annotations[v1alpha1.AnnotationAbandonInstance] == string(v.VM.UID)
}

// claimForDeletion claims the machine for its deletion and supersedes the holder.
func (r *Reconciler) claimForDeletion(ctx context.Context, v *view) (bool, error) {
	next := claim.Holder{ID: string(uuid.NewUUID()), Origin: v1alpha1.OriginDeletion, Type: v1alpha1.OperationDelete}
	var yield []claim.Holder
	if present, held := claim.Current(&v.VM.Status); held {
		yield = append(yield, present)
	}
	err := claim.Take(&v.VM.Status, next, yield, v.now())
	if errors.Is(err, claim.ErrFull) {
		v.waitMessage = err.Error()
		return r.report(ctx, v)
	}
	if err != nil {
		return false, fmt.Errorf("claiming VirtualMachine %s for its deletion: %w", v.Key(), err)
	}
	v.VM.Status.Phase = claim.Phase(v.VM, nil, false)
	return r.save(ctx, v)
}

// release removes the finalizer once nothing is left to undo and the snapshots of moves are removed. The patch
// carries the resourceVersion of the live read.
func (r *Reconciler) release(ctx context.Context, v *view) (bool, error) {
	if !v.abandoned() {
		if v.err = v.DiscardSnapshots(ctx); v.err != nil {
			v.Troubled("removing the snapshots of VirtualMachine "+v.VM.Name, v.err)
			return r.report(ctx, v)
		}
	}
	err := persist.Release(ctx, r.Client, v.VM, v1alpha1.VirtualMachineFinalizer)
	if client.IgnoreNotFound(err) != nil {
		return false, err
	}
	r.forget(v.Key())
	if v.abandoned() {
		r.recordEvent(v, corev1.EventTypeWarning, v1alpha1.ReasonAbandoned, "Abandon",
			"instance %q was abandoned and may still exist on its runtime", v.VM.Status.InstanceID)
	}
	return false, nil
}
