// Package operation carries out VirtualMachineOperations: one at a time per machine; a stronger one supersedes a
// weaker one.
//
// The key of the queue is the machine. This package decides, with the policies, which operation claims the machine.
// [sallyport.dev/sallyport/reconcilers/drive] then carries it out, and an operation keeps its progress in its status.
package operation

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/drive"
	"sallyport.dev/sallyport/reconcilers/watch"
)

// lastRetry is the longest wait after an error.
const lastRetry = 10 * time.Second

// Arbiter evaluates the policies for an operation that is about to claim its machine.
type Arbiter interface {
	// Arbitrate evaluates an operation as if it were created now by its original requester. The machine and its
	// unfinished operations (the holder and the older ones) are passed as the reconciler has just read them. An error
	// means that the policies could not be evaluated; the reconciler retries.
	Arbitrate(
		ctx context.Context, operation *v1alpha1.VirtualMachineOperation,
		machine *v1alpha1.VirtualMachine, unfinished []v1alpha1.VirtualMachineOperation,
	) (Admission, error)
}

// Admission is the policies' decision on an operation.
type Admission struct {
	// Denied is set if the operation is denied; Reason and Message are for its condition.
	Denied          bool
	Reason, Message string
	// Supersedes names the operations that it supersedes, SupersedesOrigins the other holders of the claim.
	Supersedes, SupersedesOrigins []string
}

// Reconciler reconciles VirtualMachineOperations.
type Reconciler struct {
	// Driver carries operations out. Its Live client must support the selectable field spec.virtualMachineName, as
	// the API server does.
	*drive.Driver
	// Arbiter evaluates operations before they claim their machine.
	Arbiter Arbiter
	// Events records events on the operation and on its machine.
	Events events.EventRecorder
	// Metrics counts operations by result; it may be nil.
	Metrics *Metrics
}

// actions are tried in this order. Each reports whether it has changed something; if so, everything is read again.
var actions = []func(*Reconciler, context.Context, *view) (bool, error){
	(*Reconciler).endWithMachine,
	(*Reconciler).releaseHolder,
	(*Reconciler).endWithoutClaim,
	(*Reconciler).arbitrate,
	(*Reconciler).undo,
	(*Reconciler).advance,
	(*Reconciler).cleanUp,
}

// SetupWithManager registers the reconciler.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	toMachine := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
		o, ok := object.(*v1alpha1.VirtualMachineOperation)
		if !ok {
			return nil
		}
		key := types.NamespacedName{Namespace: o.Namespace, Name: o.Spec.VirtualMachineName}
		return []reconcile.Request{{NamespacedName: key}}
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("virtualmachineoperation").
		For(&v1alpha1.VirtualMachine{}, builder.WithPredicates(claimedOrDeleted())).
		Watches(&v1alpha1.VirtualMachineOperation{}, toMachine).
		WithOptions(watch.Options(lastRetry)).
		Complete(r)
}

// claimedOrDeleted selects VirtualMachine events that affect operations. Operations bring their own events, so that a
// fleet without operations costs no reads.
func claimedOrDeleted() predicate.Predicate {
	relevant := func(object client.Object) bool {
		vm, ok := object.(*v1alpha1.VirtualMachine)
		return ok && (vm.Busy() || !vm.DeletionTimestamp.IsZero())
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return relevant(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return relevant(e.ObjectOld) || relevant(e.ObjectNew) || e.ObjectOld.GetUID() != e.ObjectNew.GetUID()
		},
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// Reconcile advances the operations of one machine until nothing is due or the pass has reached its limit of actions.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	undecided := map[types.UID]bool{}
	return r.Pass(ctx, request.NamespacedName, func(ctx context.Context, t *drive.Turn) (bool, error) {
		v := &view{Turn: t, undecided: undecided}
		if err := v.read(ctx); err != nil {
			return false, err
		}
		for _, action := range actions {
			if did, err := action(r, ctx, v); did || err != nil {
				return did, err
			}
		}
		return false, nil
	})
}
