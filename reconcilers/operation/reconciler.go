// Package operation carries out VirtualMachineOperations: one at a time on a machine, and a stronger one in the place of a
// weaker one.
//
// The key of the queue is the machine. A pass takes the machine's lock, looks live, does the first thing that is due, and
// looks again. Nothing is remembered between looks that matters: each action persists what it is about to do before it does
// it, so that whoever comes next, after a crash too, finds what is left to do in the claim, in the status of the operations
// and at the runtime.
package operation

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

const (
	// maxActions is how many actions one Reconcile does before it lets other machines have their turn.
	maxActions = 32

	defaultPoll = 2 * time.Second

	// The bounds of the wait after an error. The upper one is also how late a deadline may be noticed while errors last.
	firstRetry, lastRetry = 250 * time.Millisecond, 10 * time.Second
)

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
	// Client writes, and reads from caches what need not be current.
	Client client.Client
	// Live reads past every cache. It must know the selectable field spec.virtualMachineName, as the API server does.
	Live client.Reader
	// Runtimes gives the runtime of a machine, within its [runtime.Limits].
	Runtimes func(context.Context, *v1alpha1.VirtualMachine) (*runtime.Client, error)
	// Arbiter judges operations before they take their machine.
	Arbiter Arbiter
	// Locks is shared by all who send to runtimes in this process.
	Locks *claim.Locks
	// Events tells people, on the operation and on its machine.
	Events events.EventRecorder
	// Metrics counts what becomes of operations, or is nil.
	Metrics *Metrics
	// Now is the clock.
	Now func() time.Time
	// Poll is how long to wait before looking again at what a runtime is doing. Default 2 s.
	Poll time.Duration
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
		WithOptions(controller.Options{
			MaxConcurrentReconciles: 16, // a runtime that hangs holds up its own machines only
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		}).
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
	p := &pass{key: request.NamespacedName}
	for range maxActions {
		did, err := r.step(ctx, p)
		switch {
		case apierrors.IsConflict(err): // somebody else was faster: look again
		case err != nil:
			return ctrl.Result{}, err
		case !did && len(p.troubles) > 0:
			return ctrl.Result{}, errors.Join(p.troubles...)
		case !did:
			return ctrl.Result{RequeueAfter: p.again}, nil
		}
	}
	return ctrl.Result{RequeueAfter: firstRetry}, nil
}

// step takes the lock, looks, and does the first action that is due.
func (r *Reconciler) step(ctx context.Context, p *pass) (did bool, err error) {
	release, err := r.Locks.Lock(ctx, p.key)
	if err != nil {
		return false, err
	}
	defer release()
	l, err := r.look(ctx, p)
	if err != nil {
		return false, err
	}
	for _, action := range actions {
		if did, err := action(r, ctx, l); did || err != nil {
			return did, err
		}
	}
	return false, nil
}
