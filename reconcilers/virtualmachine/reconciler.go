// Package virtualmachine keeps machines on their runtimes in step with their VirtualMachines.
//
// So far it does the last thing only: it lets a VirtualMachine go that is being deleted and has nothing on a runtime.
package virtualmachine

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// Reconciler is the reconciler of VirtualMachines.
type Reconciler struct {
	// Client writes.
	Client client.Client
	// Live reads past every cache.
	Live client.Reader
	// Runtimes gives the runtime of a machine, within its [runtime.Limits].
	Runtimes func(*v1alpha1.VirtualMachine) (runtime.Runtime, error)
	// Locks is shared by all who send to runtimes in this process.
	Locks *claim.Locks
	// Events tells people.
	Events events.EventRecorder
	// Now is the clock.
	Now func() time.Time
	// Poll is how long to wait before looking again at what a runtime is doing. Default 2 s.
	Poll time.Duration
	// Resync is how long to wait before looking again at a machine that is as it should be. Default 30 s.
	Resync time.Duration
}

// SetupWithManager registers the reconciler.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).For(&v1alpha1.VirtualMachine{}).Complete(r)
}

// Reconcile takes one VirtualMachine a step further.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	vm := &v1alpha1.VirtualMachine{}
	if err := r.Live.Get(ctx, request.NamespacedName, vm); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if vm.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, r.release(ctx, vm)
}

// release takes the finalizer off if there is nothing to undo. The patch carries the resourceVersion of the live look: if a
// machine was made in between, it fails and the next pass looks again.
func (r *Reconciler) release(ctx context.Context, vm *v1alpha1.VirtualMachine) error {
	if vm.Status.InstanceID != "" || vm.Busy() {
		log.FromContext(ctx).Info("a VirtualMachine that is being deleted still has a machine on its runtime", "instanceID", vm.Status.InstanceID)
		return nil
	}
	before := vm.DeepCopy()
	if !controllerutil.RemoveFinalizer(vm, v1alpha1.VirtualMachineFinalizer) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, vm, patch); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing the finalizer: %w", err)
	}
	return nil
}
