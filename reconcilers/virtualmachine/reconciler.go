// Package virtualmachine keeps machines on their runtimes in step with their VirtualMachines: it has them made or adopted,
// shows what is seen of them, keeps their power as the run policy has it, and removes them with their VirtualMachine.
//
// What changes power or existence takes the claim first, as operations do: the run policy as origin RunPolicy, the deletion
// as origin Deletion. While an operation holds the machine, or anybody is being undone, that is the operation reconciler's
// business, and it shows what it sees; here the machine is left alone but for one thing: it is made, off, for a Start to find.
package virtualmachine

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

const (
	// maxActions is how many actions one Reconcile does before it lets other machines have their turn.
	maxActions = 16

	defaultPoll   = 2 * time.Second
	defaultResync = 30 * time.Second

	// The bounds of the wait after an error.
	firstRetry, lastRetry = 250 * time.Millisecond, 30 * time.Second
)

// Reconciler is the reconciler of VirtualMachines.
type Reconciler struct {
	// Client writes.
	Client client.Client
	// Live reads past every cache.
	Live client.Reader
	// Runtimes gives the runtime of a machine, within its [runtime.Limits].
	Runtimes func(context.Context, *v1alpha1.VirtualMachine) (*runtime.Client, error)
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

	pace  pace
	asked sync.Map // the name of a machine to the claim for which this process has asked its guest to shut down
}

// SetupWithManager registers the reconciler.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.VirtualMachine{}).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: 16, // a runtime that hangs holds up its own machines only
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		}).
		Complete(r)
}

// Reconcile takes one machine further, until nothing is due or it has had its share.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	p := &pass{key: request.NamespacedName}
	for range maxActions {
		did, err := r.step(ctx, p)
		switch {
		case apierrors.IsConflict(err): // somebody else was faster: look again
		case err != nil:
			return ctrl.Result{}, err
		case !did && p.trouble != nil:
			return ctrl.Result{}, p.trouble
		case !did:
			return ctrl.Result{RequeueAfter: p.again}, nil
		}
	}
	return ctrl.Result{RequeueAfter: firstRetry}, nil
}

// step takes the lock, looks, and does the first thing that is due.
func (r *Reconciler) step(ctx context.Context, p *pass) (did bool, err error) {
	release, err := r.Locks.Lock(ctx, p.key)
	if err != nil {
		return false, err
	}
	defer release()
	l, err := r.look(ctx, p)
	switch {
	case apierrors.IsNotFound(err):
		r.forget(p.key)
		return false, nil
	case err != nil:
		return false, err
	case !l.vm.DeletionTimestamp.IsZero():
		return r.remove(ctx, l)
	}
	return r.keep(ctx, l)
}

// keep takes a machine further that is not being deleted.
func (r *Reconciler) keep(ctx context.Context, l *look) (bool, error) {
	if did, err := r.addFinalizer(ctx, l); did || err != nil {
		return did, err
	}
	if !l.ours() && !l.missing() {
		return r.report(ctx, l)
	}
	if r.observe(ctx, l); l.err == nil {
		if did, err := r.ensure(ctx, l); did || err != nil {
			return did, err
		}
	}
	if l.ours() && l.err == nil {
		l.adopt()
		if did, err := r.run(ctx, l); did || err != nil {
			return did, err
		}
	}
	return r.report(ctx, l)
}

// addFinalizer sees to it that nothing is on a runtime that would stay when the VirtualMachine goes. The policy `defaults`
// adds it at creation, if it is there.
func (r *Reconciler) addFinalizer(ctx context.Context, l *look) (bool, error) {
	before := l.vm.DeepCopy()
	if !controllerutil.AddFinalizer(l.vm, v1alpha1.VirtualMachineFinalizer) {
		return false, nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, l.vm, patch); err != nil {
		return false, fmt.Errorf("adding the finalizer to VirtualMachine %s: %w", l.key, err)
	}
	return true, nil
}

// ensure has a machine made or adopted that was never seen, and one adopted again that has lost its marker: there is nothing
// to lose by that. It needs no claim: it changes nothing of a machine that is there, and whoever holds one that is not waits
// for it.
func (r *Reconciler) ensure(ctx context.Context, l *look) (bool, error) {
	adopts := l.vm.Spec.Adopts() && l.ours() && l.vm.Status.ActiveOperation == nil
	switch {
	case l.seen.Exists, !l.missing() && !adopts:
		return false, nil
	case !l.seen.Quiet(), l.sent:
		r.poll(l.pass)
		return false, nil
	}
	return r.send(ctx, l, func() error {
		_, err := l.rt.Ensure(ctx, runtime.MachineOf(l.vm))
		return err
	})
}

// forget drops what is remembered of a machine that is gone.
func (r *Reconciler) forget(key types.NamespacedName) {
	r.starts().Reset(key.String())
	r.asked.Delete(key)
}
