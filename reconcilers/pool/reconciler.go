// Package pool maintains the number of VirtualMachines of one template that a VirtualMachinePool requests.
//
// No decision depends on a cache. A pass that would create, delete or change members first reads the pool and its
// members live. Members are named after the pool and the lowest free number, so that concurrent writers collide
// instead of creating a member twice. Members to delete are written to status.removing, with the resourceVersion of
// the pool, before the first of them is deleted: a later pass, also after a crash, continues with the same ones. Each
// is deleted with its resourceVersion, so that one that was marked as busy meanwhile stays. Members that are replaced
// by others of another release of their VSphereTemplate are deleted in the same way.
package pool

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/watch"
)

const (
	// blockedRetry is the interval at which blocked deletions are tried again.
	blockedRetry = 30 * time.Second
	// soon is the wait before everything is read again, after a conflict or an action.
	soon = 250 * time.Millisecond

	lastRetry = 30 * time.Second
)

// Reconciler reconciles VirtualMachinePools.
type Reconciler struct {
	// Client writes, and reads from the cache where a stale read is safe.
	Client client.Client
	// Live reads from the API server, without a cache.
	Live   client.Reader
	Events events.EventRecorder
	Now    func() time.Time
	// Metrics registers the metrics of the pools; it may be nil.
	Metrics prometheus.Registerer
	// Halt prevents the creation, change and deletion of members and disks.
	Halt runtime.Halt
}

// SetupWithManager registers the reconciler.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	if r.Metrics != nil {
		if err := r.Metrics.Register(collector(mgr.GetClient(), mgr.Elected())); err != nil {
			return fmt.Errorf("registering the metrics of pools: %w", err)
		}
	}
	if err := watch.Index(mgr, &v1alpha1.VirtualMachinePool{}, map[string]client.IndexerFunc{byFollowed: followedKeys}); err != nil {
		return err
	}
	owned := delayedHandler{handler.EnqueueRequestForOwner(
		mgr.GetScheme(), mgr.GetRESTMapper(), &v1alpha1.VirtualMachinePool{}, handler.OnlyControllerOwner())}
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.VirtualMachinePool{}, builder.WithPredicates(generationChanged)).
		Watches(&v1alpha1.VirtualMachinePool{}, delayedHandler{&handler.EnqueueRequestForObject{}}).
		Watches(&v1alpha1.VirtualMachine{}, owned).
		Watches(&v1alpha1.VirtualDisk{}, owned).
		Watches(&v1alpha1.VSphereTemplate{}, handler.EnqueueRequestsFromMapFunc(r.poolsFollowing), builder.WithPredicates(readyChanged)).
		WithOptions(watch.Options(lastRetry)).
		Complete(r)
}

// Reconcile advances one pool. The garbage collector deletes the members of a deleted pool.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	v, err := r.read(ctx, r.Client, request.NamespacedName, 0)
	if err != nil || v == nil {
		return ctrl.Result{}, err
	}
	halt := r.Halt.Err()
	switch {
	case v.due() && halt != nil:
		v.halt = halt
	case v.due():
		live, unread := r.read(ctx, r.Live, request.NamespacedName, page)
		if unread != nil || live == nil {
			return ctrl.Result{}, unread
		}
		v = live
		err = r.act(ctx, v)
	}
	if apierrors.IsConflict(err) { // conflict: read again
		return ctrl.Result{RequeueAfter: soon}, nil
	}
	if stored := r.save(ctx, v); err == nil {
		err = stored
	}
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: soon}, nil
	}
	return ctrl.Result{RequeueAfter: v.requeueAfter}, err
}

// act takes the first action that is due. The others need a new read.
func (r *Reconciler) act(ctx context.Context, v *view) error {
	for _, do := range []func(context.Context, *view) (bool, error){r.remove, r.create, r.replace, r.rollOut, r.reconcileDisks} {
		if did, err := do(ctx, v); did || err != nil {
			v.requeueIn(soon)
			return err
		}
	}
	return nil
}
