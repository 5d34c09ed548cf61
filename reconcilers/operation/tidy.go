package operation

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/persist"
)

// cleanUp removes the finalizer of finished operations that do not hold their machine, and deletes them once their
// TTL is over.
func (r *Reconciler) cleanUp(ctx context.Context, v *view) (bool, error) {
	for _, o := range v.operations {
		if !o.Finished() || v.holds(o) {
			continue
		}
		did, err := persist.Finalizer(ctx, r.Client, o, controllerutil.RemoveFinalizer, v1alpha1.VirtualMachineOperationFinalizer)
		if did || err != nil {
			return true, client.IgnoreNotFound(err)
		}
		if !o.DeletionTimestamp.IsZero() {
			continue // another finalizer keeps it
		}
		if left := expiry(o).Sub(v.Time); left > 0 {
			v.Wait(left + time.Millisecond)
			continue
		}
		same := client.Preconditions{UID: &o.UID, ResourceVersion: &o.ResourceVersion}
		if err := r.Client.Delete(ctx, o, same); client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("deleting operation %s, which was kept long enough: %w", o.Name, err)
		}
		return true, nil
	}
	return false, nil
}

// expiry returns when a finished operation is deleted.
func expiry(o *v1alpha1.VirtualMachineOperation) time.Time {
	end := o.CreationTimestamp.Time
	if o.Status.CompletionTime != nil {
		end = o.Status.CompletionTime.Time
	}
	if ttl := o.Spec.TTLSecondsAfterFinished; ttl != nil {
		return end.Add(time.Duration(*ttl) * time.Second)
	}
	return end.Add(v1alpha1.DefaultTTLAfterFinished)
}
