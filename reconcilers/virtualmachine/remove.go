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
func (r *Reconciler) remove(ctx context.Context, l *view) (bool, error) {
	if !controllerutil.ContainsFinalizer(l.VM, v1alpha1.VirtualMachineFinalizer) {
		return false, nil // another finalizer keeps it
	}
	present, held := claim.Current(&l.VM.Status)
	switch {
	case l.abandoned():
		return r.release(ctx, l)
	case !held || present.Origin != v1alpha1.OriginDeletion:
		return r.claimForDeletion(ctx, l)
	case len(l.VM.Status.Undoing) > 0:
		return r.report(ctx, l)
	}
	grace := l.VM.Spec.TerminationGracePeriod()
	did, err := l.Advance(ctx, r.holderFor(l, &drive.Intent{Grace: &grace}))
	if did || err != nil || !controllerutil.ContainsFinalizer(l.VM, v1alpha1.VirtualMachineFinalizer) {
		return did, err
	}
	return r.report(ctx, l)
}

// abandoned reports whether the user has given up the instance because its backend will not come back. The annotation
// contains the UID, so that it has no effect on another VirtualMachine.
func (l *view) abandoned() bool {
	return l.VM.Annotations[v1alpha1.AnnotationAbandonInstance] == string(l.VM.UID)
}

// claimForDeletion claims the machine for its deletion and supersedes the holder.
func (r *Reconciler) claimForDeletion(ctx context.Context, l *view) (bool, error) {
	next := claim.Holder{ID: string(uuid.NewUUID()), Origin: v1alpha1.OriginDeletion, Type: v1alpha1.OperationDelete}
	var yield []claim.Holder
	if present, held := claim.Current(&l.VM.Status); held {
		yield = append(yield, present)
	}
	err := claim.Take(&l.VM.Status, next, yield, l.now())
	if errors.Is(err, claim.ErrFull) {
		l.waitMessage = err.Error()
		return r.report(ctx, l)
	}
	if err != nil {
		return false, fmt.Errorf("claiming VirtualMachine %s for its deletion: %w", l.Key(), err)
	}
	l.VM.Status.Phase = claim.Phase(l.VM, nil, false)
	return r.save(ctx, l)
}

// release removes the finalizer once nothing is left to undo and the snapshots of moves are removed. The patch
// carries the resourceVersion of the live read.
func (r *Reconciler) release(ctx context.Context, l *view) (bool, error) {
	if !l.abandoned() {
		if l.err = l.DiscardSnapshots(ctx); l.err != nil {
			l.Troubled("removing the snapshots of VirtualMachine "+l.VM.Name, l.err)
			return r.report(ctx, l)
		}
	}
	err := persist.Release(ctx, r.Client, l.VM, v1alpha1.VirtualMachineFinalizer)
	if client.IgnoreNotFound(err) != nil {
		return false, err
	}
	r.forget(l.Key())
	if l.abandoned() {
		r.recordEvent(l, corev1.EventTypeWarning, v1alpha1.ReasonAbandoned, "Abandon",
			"instance %q was abandoned and may still exist on its runtime", l.VM.Status.InstanceID)
	}
	return false, nil
}
