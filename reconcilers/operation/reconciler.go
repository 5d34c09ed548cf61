// Package operation carries out VirtualMachineOperations: one at a time on a machine, and a stronger one in the place of a
// weaker one.
//
// The key of the queue is the machine. Who may have it is settled here, with the policies; what becomes of the machine then is up
// to [sallyport.dev/sallyport/reconcilers/drive], for which an operation keeps in its status how far it has come.
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
)

// lastRetry is the longest wait after an error.
const lastRetry = 10 * time.Second

// Arbiter asks the policies whether an operation may be carried out now.
type Arbiter interface {
	// Arbitrate judges an operation as if it were created now by who asked for it then. The machine and its unfinished
	// operations are as the reconciler has just read them: the holder and those that are older than the one to judge. An
	// error means that no ruling could be made; it is tried again.
	Arbitrate(
		ctx context.Context, operation *v1alpha1.VirtualMachineOperation,
		machine *v1alpha1.VirtualMachine, unfinished []v1alpha1.VirtualMachineOperation,
	) (Ruling, error)
}

// Ruling is what the policies say of an operation.
type Ruling struct {
	// Denied tells that the operation is refused; Reason and Message are for its condition.
	Denied          bool
	Reason, Message string
	// Supersedes names the operations that it takes the place of, SupersedesOrigins the other holders of the claim.
	Supersedes, SupersedesOrigins []string
}

// Reconciler is the reconciler of VirtualMachineOperations.
type Reconciler struct {
	// Driver carries operations out. Its Live must know the selectable field spec.virtualMachineName, as the API server does.
	*drive.Driver
	// Arbiter judges operations before they take their machine.
	Arbiter Arbiter
	// Events tells people, on the operation and on its machine.
	Events events.EventRecorder
	// Metrics counts what becomes of operations, or is nil.
	Metrics *Metrics
}

// actions are what may be due, in the order in which it is looked for. Each reports whether it has changed something, after
// which everything is looked at anew.
var actions = []func(*Reconciler, context.Context, *look) (bool, error){
	(*Reconciler).endWithMachine,
	(*Reconciler).releaseHolder,
	(*Reconciler).endWithoutClaim,
	(*Reconciler).arbitrate,
	(*Reconciler).undo,
	(*Reconciler).advance,
	(*Reconciler).tidy,
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
		For(&v1alpha1.VirtualMachine{}, builder.WithPredicates(concerning())).
		Watches(&v1alpha1.VirtualMachineOperation{}, toMachine).
		WithOptions(drive.Options(lastRetry)).
		Complete(r)
}

// concerning passes on what of a machine concerns operations: its claim and its end. Their own events bring the rest, so that
// a fleet without operations costs no reads.
func concerning() predicate.Predicate {
	does := func(object client.Object) bool {
		vm, ok := object.(*v1alpha1.VirtualMachine)
		return ok && (vm.Busy() || !vm.DeletionTimestamp.IsZero())
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return does(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return does(e.ObjectOld) || does(e.ObjectNew) || e.ObjectOld.GetUID() != e.ObjectNew.GetUID()
		},
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// Reconcile takes the operations of one machine further, until nothing is due or it has had its share.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	undecided := map[types.UID]bool{}
	return r.Pass(ctx, request.NamespacedName, func(ctx context.Context, t *drive.Turn) (bool, error) {
		l := &look{Turn: t, undecided: undecided}
		if err := l.look(ctx); err != nil {
			return false, err
		}
		for _, action := range actions {
			if did, err := action(r, ctx, l); did || err != nil {
				return did, err
			}
		}
		return false, nil
	})
}
