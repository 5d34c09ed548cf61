package pool

import (
	"context"
	"fmt"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// A pool that is restored from a backup has another UID, and its members have no controller. Deleting a pool with
// --cascade=orphan leaves the same. The next pool of that name adopts these members, and creates only what is missing
// beyond them.

// orphaned reports whether an object belonged to an earlier pool of the name and has no controller. An object without
// a controller that has the UID of the current pool was released on purpose.
func (v *view) orphaned(o client.Object) bool {
	of := o.GetLabels()
	return of[v1alpha1.LabelPool] == v.pool.Name && of[v1alpha1.LabelPoolUID] != "" && of[v1alpha1.LabelPoolUID] != string(v.pool.UID) &&
		metav1.GetControllerOfNoCopy(o) == nil && o.GetDeletionTimestamp().IsZero()
}

// adoptMembers adopts up to count orphaned VirtualMachines, lowest numbers first, and returns how many there are. A member that policies keep
// from being adopted does not keep the others from it, and is the error.
func (r *Reconciler) adoptMembers(ctx context.Context, v *view, count int) (did int, err error) {
	var list v1alpha1.VirtualMachineList
	err = r.Live.List(ctx, &list, client.InNamespace(v.pool.Namespace), client.MatchingLabels{v1alpha1.LabelPool: v.pool.Name})
	if err != nil {
		return 0, fmt.Errorf("reading the members of an earlier VirtualMachinePool %s: %w", v.key(), err)
	}
	var members []member
	for i := range list.Items {
		vm := &list.Items[i]
		if slot := slotOf(v.pool.Name, vm.Name); v.orphaned(vm) && slot >= 0 {
			members = append(members, member{VirtualMachine: vm, slot: slot})
		}
	}
	sortBySlot(members)
	members = members[:min(len(members), count)]
	var denied atomic.Pointer[error]
	err = inBatches(ctx, len(members), func(ctx context.Context, i int) error {
		err := r.adopt(ctx, v, members[i].VirtualMachine)
		if apierrors.IsForbidden(err) {
			denied.Store(&err)
			return nil
		}
		return err
	})
	if first := denied.Load(); err == nil && first != nil {
		err = *first
	}
	return len(members), err
}

// adopt makes the pool the controller of an object that is unchanged since it was read.
func (r *Reconciler) adopt(ctx context.Context, v *view, o client.Object) error {
	before := o.DeepCopyObject().(client.Object)
	o.GetLabels()[v1alpha1.LabelPoolUID] = string(v.pool.UID)
	owner := *metav1.NewControllerRef(v.pool, v1alpha1.GroupVersion.WithKind("VirtualMachinePool"))
	o.SetOwnerReferences(append(o.GetOwnerReferences(), owner))
	err := r.Client.Patch(ctx, o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(manager))
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return err
	case err != nil:
		return fmt.Errorf("taking in %s, which an earlier pool of this name left: %w", o.GetName(), err)
	}
	r.Events.Eventf(v.pool, o, corev1.EventTypeNormal, "SuccessfulAdopt", "Adopt", "took in %s, which an earlier pool of this name left", o.GetName())
	return nil
}
