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
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// remove takes a machine further whose VirtualMachine is being deleted: the deletion takes it from whoever holds it, waits
// until that is undone, gets it off, and has it removed, or released if it was adopted. The runtime is asked what there is,
// whatever the status says: a crash may have kept an instance out of it.
func (r *Reconciler) remove(ctx context.Context, l *look) (bool, error) {
	if !controllerutil.ContainsFinalizer(l.vm, v1alpha1.VirtualMachineFinalizer) {
		return false, nil // somebody else's finalizer keeps it
	}
	present, held := claim.Current(&l.vm.Status)
	switch {
	case l.abandoned():
		return r.release(ctx, l)
	case !held || present.Origin != v1alpha1.OriginDeletion:
		return r.takeAway(ctx, l)
	case len(l.vm.Status.Undoing) > 0:
		return r.report(ctx, l)
	}
	r.observe(ctx, l)
	switch {
	case runtime.NothingOfOurs(l.err):
		return r.release(ctx, l)
	case l.err != nil:
		return r.report(ctx, l)
	case !l.seen.Quiet():
		r.poll(l.pass)
		l.waits = l.seen.InFlight[0].Doing()
		return r.report(ctx, l)
	case !l.seen.Exists:
		return r.release(ctx, l)
	}
	did, err := r.takeDown(ctx, l)
	if did || err != nil {
		return did, err
	}
	return r.report(ctx, l)
}

// abandoned tells whether the instance is given up on: whoever is sure that its backend will not come back says so, by the
// UID of the VirtualMachine, so that the annotation is of no effect on another one.
func (l *look) abandoned() bool {
	return l.vm.Annotations[v1alpha1.AnnotationAbandonInstance] == string(l.vm.UID)
}

// takeAway has the deletion take the machine from whoever holds it.
func (r *Reconciler) takeAway(ctx context.Context, l *look) (bool, error) {
	next := claim.Holder{ID: string(uuid.NewUUID()), Origin: v1alpha1.OriginDeletion, Type: v1alpha1.OperationDelete}
	var yield []claim.Holder
	if present, held := claim.Current(&l.vm.Status); held {
		yield = append(yield, present)
	}
	err := claim.Take(&l.vm.Status, next, yield, l.micro())
	if errors.Is(err, claim.ErrFull) {
		l.waits = err.Error()
		return r.report(ctx, l)
	}
	if err != nil {
		return false, fmt.Errorf("taking VirtualMachine %s for its deletion: %w", l.key, err)
	}
	l.vm.Status.Phase = claim.Phase(l.vm, nil, false)
	return r.save(ctx, l)
}

// takeDown gets a machine off that was made, and removes it; one that was adopted is released as it is.
func (r *Reconciler) takeDown(ctx context.Context, l *look) (bool, error) {
	switch {
	case !l.seen.Adopted && l.seen.Power != v1alpha1.PowerStopped:
		return r.powerOff(ctx, l)
	case l.sent:
		r.poll(l.pass)
		return false, nil
	}
	return r.send(ctx, l, func() error { return l.rt.Delete(ctx, runtime.MachineOf(l.vm)) })
}

// release takes the finalizer off: nothing is left to undo. The patch carries the resourceVersion of the live look.
func (r *Reconciler) release(ctx context.Context, l *look) (bool, error) {
	before := l.vm.DeepCopy()
	controllerutil.RemoveFinalizer(l.vm, v1alpha1.VirtualMachineFinalizer)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, l.vm, patch); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("removing the finalizer of VirtualMachine %s: %w", l.key, err)
	}
	r.forget(l.key)
	if l.abandoned() {
		r.tell(l, corev1.EventTypeWarning, v1alpha1.ReasonAbandoned, "Abandon", "instance %q was given up on and may still be on its runtime", l.vm.Status.InstanceID)
	}
	return false, nil
}
