package pool

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// A pool that is restored from a backup has another UID, and so have its members, which have no controller any more. The same is left when
// a pool is deleted with --cascade=orphan. The next pool of the name takes them in, and makes only what is missing beyond them.

// left reports whether an object was of an earlier pool of the name and is nobody's now. One without a controller that has the UID of the
// pool that is there was set free on purpose.
func (l *look) left(o client.Object) bool {
	of := o.GetLabels()
	return of[v1alpha1.LabelPool] == l.pool.Name && of[v1alpha1.LabelPoolUID] != "" && of[v1alpha1.LabelPoolUID] != string(l.pool.UID) &&
		metav1.GetControllerOfNoCopy(o) == nil && o.GetDeletionTimestamp().IsZero()
}

// takeIn makes at most so many VirtualMachines members that were left, those with the lowest numbers first, and tells how many.
func (r *Reconciler) takeIn(ctx context.Context, l *look, count int) (did int, err error) {
	var list v1alpha1.VirtualMachineList
	err = r.Live.List(ctx, &list, client.InNamespace(l.pool.Namespace), client.MatchingLabels{v1alpha1.LabelPool: l.pool.Name})
	if err != nil {
		return 0, fmt.Errorf("reading the members of an earlier VirtualMachinePool %s: %w", l.key(), err)
	}
	var members []member
	for i := range list.Items {
		vm := &list.Items[i]
		if slot := slotOf(l.pool.Name, vm.Name); l.left(vm) && slot >= 0 {
			members = append(members, member{VirtualMachine: vm, slot: slot})
		}
	}
	sortBySlot(members)
	members = members[:min(len(members), count)]
	return len(members), inBatches(ctx, len(members), func(ctx context.Context, i int) error { return r.adopt(ctx, l, members[i].VirtualMachine) })
}

// adopt makes an object the pool's, if it is still as it was read.
func (r *Reconciler) adopt(ctx context.Context, l *look, o client.Object) error {
	before := o.DeepCopyObject().(client.Object)
	o.GetLabels()[v1alpha1.LabelPoolUID] = string(l.pool.UID)
	owner := *metav1.NewControllerRef(l.pool, v1alpha1.GroupVersion.WithKind("VirtualMachinePool"))
	o.SetOwnerReferences(append(o.GetOwnerReferences(), owner))
	err := r.Client.Patch(ctx, o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(manager))
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return err
	case err != nil:
		return fmt.Errorf("taking in %s, which an earlier pool of this name left: %w", o.GetName(), err)
	}
	r.Events.Eventf(l.pool, o, corev1.EventTypeNormal, "SuccessfulAdopt", "Adopt", "took in %s, which an earlier pool of this name left", o.GetName())
	return nil
}
