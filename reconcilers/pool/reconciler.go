// Package pool keeps as many VirtualMachines of one template as a VirtualMachinePool wants.
//
// Nothing that it does rests on a cache. A pass that would create, delete or change members reads the pool and its members live first.
// Members are called after the pool and the lowest free number, so that two who create at once collide and make no member twice.
// Victims are in status.removing, written over the pool as it was read, before the first of them is deleted: whoever comes next, after
// a crash too, goes on with the same ones. Each is deleted as it was read, so that one that was marked as busy meanwhile stays.
// Members that are replaced by others of another release of their VSphereTemplate go the same way.
package pool

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/fair"
)

const (
	// blockedRetry is how often a pool is looked at whose members should go and may not.
	blockedRetry = 30 * time.Second

	firstRetry = 250 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// Reconciler is the reconciler of VirtualMachinePools.
type Reconciler struct {
	// Client writes, and reads from caches what need not be current.
	Client client.Client
	// Live reads past every cache.
	Live client.Reader
	// Events tells people.
	Events events.EventRecorder
	// Now is the clock.
	Now func() time.Time
	// Metrics is where metrics of the pools are registered, nil for none.
	Metrics prometheus.Registerer
	// ReadOnly has pools create, change and delete no members and disks.
	ReadOnly bool
}

// SetupWithManager registers the reconciler.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	if r.Metrics != nil {
		if err := r.Metrics.Register(collector(mgr.GetClient(), mgr.Elected())); err != nil {
			return fmt.Errorf("registering the metrics of pools: %w", err)
		}
	}
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.VirtualMachinePool{}, byFollowed, followedKeys); err != nil {
		return fmt.Errorf("indexing VirtualMachinePools by the templates that they follow: %w", err)
	}
	owned := gathered{handler.EnqueueRequestForOwner(
		mgr.GetScheme(), mgr.GetRESTMapper(), &v1alpha1.VirtualMachinePool{}, handler.OnlyControllerOwner())}
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.VirtualMachinePool{}, builder.WithPredicates(urgent)).
		Watches(&v1alpha1.VirtualMachinePool{}, gathered{&handler.EnqueueRequestForObject{}}).
		Watches(&v1alpha1.VirtualMachine{}, owned).
		Watches(&v1alpha1.VirtualDisk{}, owned).
		Watches(&v1alpha1.VSphereTemplate{}, handler.EnqueueRequestsFromMapFunc(r.followers), builder.WithPredicates(readyChanged)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: 4,
			NewQueue:                fair.NewQueue,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		}).
		Complete(r)
}

// undecodable is the reason of the error if a list contains an object that does not decode. Its message names the object, and the commands
// that correct or delete it. A pool with such a member waits: without the member in its count, it would create another one.
const undecodable metav1.StatusReason = "Undecodable"

// Reconcile takes one pool further. The garbage collector sees to the members of a pool that is being deleted.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	l, err := r.look(ctx, r.Client, request.NamespacedName, 0)
	if err != nil || l == nil {
		return ctrl.Result{}, err
	}
	switch {
	case l.due() && r.ReadOnly:
		l.readOnly = true
	case l.due():
		live, unread := r.look(ctx, r.Live, request.NamespacedName, page)
		switch {
		case apierrors.ReasonForError(unread) == undecodable:
			l.unread, err = unread, unread
		case unread != nil || live == nil:
			return ctrl.Result{}, unread
		default:
			l = live
			err = r.act(ctx, l)
		}
	}
	if apierrors.IsConflict(err) { // somebody else was faster: look again
		return ctrl.Result{RequeueAfter: firstRetry}, nil
	}
	if stored := r.save(ctx, l); err == nil {
		err = stored
	}
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: firstRetry}, nil
	}
	return ctrl.Result{RequeueAfter: l.again}, err
}

// act does the first thing that is due. The others rest on another look, at what became of it.
func (r *Reconciler) act(ctx context.Context, l *look) error {
	for _, do := range []func(context.Context, *look) (bool, error){r.remove, r.create, r.replace, r.rollOut, r.tend} {
		if did, err := do(ctx, l); did || err != nil {
			l.later(firstRetry)
			return err
		}
	}
	return nil
}
