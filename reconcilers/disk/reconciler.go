// Package disk reconciles VirtualDisks: it creates and grows their disks on the runtimes, updates their status,
// releases disks whose machine is gone, and destroys the data of deleted VirtualDisks.
//
// The status names the machine that has a disk. The VirtualMachine reconciler reserves a disk before it attaches it,
// and releases it once it is observed to be detached. This reconciler releases a disk only if its machine no longer
// exists.
package disk

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/diskimage/use"
	"sallyport.dev/sallyport/reconcilers/persist"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/watch"
)

const (
	defaultPoll = 2 * time.Second
	// resync is how often a disk is observed without a change event, in case it was removed.
	resync = 10 * time.Hour
	// lastRetry is the longest wait after an error.
	lastRetry = time.Minute
)

// Reconciler reconciles VirtualDisks.
type Reconciler struct {
	// Client writes, and reads from the cache where a stale read is safe.
	Client client.Client
	// Live reads from the API server, without a cache.
	Live client.Reader
	// Runtimes returns the runtime of a disk, within its [runtime.Limits].
	Runtimes func(context.Context, *v1alpha1.VirtualDisk) (*runtime.Client, error)
	Events   events.EventRecorder
	Now      func() time.Time
	// Volumes is a kind of objects in this cluster that implement disks. Nil if there is none.
	Volumes client.Object
	// Poll is the interval at which a busy runtime is observed. Default 2 s.
	Poll time.Duration
}

// SetupWithManager registers the reconciler, and the index of disks by the machine that has them.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	if err := watch.Index(mgr, &v1alpha1.VirtualDisk{}, map[string]client.IndexerFunc{
		v1alpha1.FieldDiskHolder: holderKeys, byID: idKeys, byImage: imageKeys,
	}); err != nil {
		return err
	}
	b := ctrl.NewControllerManagedBy(mgr)
	if r.Volumes != nil {
		b = b.Watches(r.Volumes, handler.EnqueueRequestsFromMapFunc(r.disksOfVolume))
	}
	return b.
		For(&v1alpha1.VirtualDisk{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, earlierDecided, releasedWhileDeleting, restored))).
		Watches(&v1alpha1.VirtualMachine{}, handler.EnqueueRequestsFromMapFunc(r.disksOfMachine), builder.WithPredicates(machineGone)).
		Watches(&v1alpha1.VMDiskImage{}, handler.EnqueueRequestsFromMapFunc(r.disksOfImage), builder.WithPredicates(use.Changed)).
		WithOptions(watch.Options(lastRetry)).
		Complete(r)
}

// Reconciling a disk asks the runtime about all machines that may have it. Events that do not matter are therefore
// dropped, above all status updates.
var (
	// releasedWhileDeleting passes a disk that is being deleted and has been released.
	releasedWhileDeleting = predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			now, is := e.ObjectNew.(*v1alpha1.VirtualDisk)
			return is && !now.DeletionTimestamp.IsZero() && now.Status.AttachedTo == nil
		},
	}
	// earlierDecided passes a disk whose annotation decides about data of an earlier disk of its name.
	earlierDecided = predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			return runtime.EarlierOf(e.ObjectOld) != runtime.EarlierOf(e.ObjectNew)
		},
	}
	// restored passes a disk whose status belongs to another disk.
	restored = predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			now, is := e.ObjectNew.(*v1alpha1.VirtualDisk)
			return is && now.StatusOfAnother()
		},
	}
	// machineGone passes a machine that is gone, or that no longer has anything on its runtime.
	machineGone = predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			return !e.ObjectNew.GetDeletionTimestamp().IsZero() && !controllerutil.ContainsFinalizer(e.ObjectNew, v1alpha1.VirtualMachineFinalizer)
		},
	}
)

// holderKeys returns the index key of a disk: the name of the machine that has it.
func holderKeys(o client.Object) []string {
	if d, is := o.(*v1alpha1.VirtualDisk); is && d.Status.AttachedTo != nil {
		return []string{d.Status.AttachedTo.Name}
	}
	return nil
}

// byID indexes disks by their ID on the runtime.
const byID = "id"

func idKeys(o client.Object) []string {
	if d, is := o.(*v1alpha1.VirtualDisk); is && d.Status.DiskID != "" {
		return []string{d.Status.DiskID}
	}
	return nil
}

// disksOfVolume returns a request for the disk that an object implements.
func (r *Reconciler) disksOfVolume(ctx context.Context, o client.Object) []reconcile.Request {
	return watch.Requests(ctx, r.Client, &v1alpha1.VirtualDiskList{}, client.InNamespace(o.GetNamespace()), client.MatchingFields{byID: o.GetName()})
}

func (r *Reconciler) disksOfMachine(ctx context.Context, vm client.Object) []reconcile.Request {
	return watch.Requests(ctx, r.Client, &v1alpha1.VirtualDiskList{}, client.InNamespace(vm.GetNamespace()),
		client.MatchingFields{v1alpha1.FieldDiskHolder: vm.GetName()})
}

// Reconcile advances one disk.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	d := &v1alpha1.VirtualDisk{}
	if err := r.Live.Get(ctx, request.NamespacedName, d); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	v := &view{VirtualDisk: d, before: d.Status.DeepCopy(), now: r.Now()}
	err := r.act(ctx, v)
	if err == nil && v.err != nil && !runtime.IsTakingOver(v.err) && !runtime.IsReadOnly(v.err) {
		err = fmt.Errorf("VirtualDisk %s: %w", request, v.err)
	}
	return persist.Result(v.requeueAfter, err)
}

func (r *Reconciler) act(ctx context.Context, v *view) error {
	if held, err := persist.Hold(ctx, r.Client, v.VirtualDisk, v1alpha1.VirtualDiskFinalizer); !held {
		return client.IgnoreNotFound(err) // nothing is created for a deleted disk
	}
	if v.StatusOfAnother() {
		v.Status = v1alpha1.VirtualDiskStatus{}
	}
	if v.Status.DiskID == "" && v.DeletionTimestamp.IsZero() && runtime.EarlierOf(v) == runtime.TakeOver {
		if did, err := persist.DropLostOwners(ctx, r.Live, r.Client, v.VirtualDisk); did || err != nil {
			v.requeueAfter = time.Millisecond
			return client.IgnoreNotFound(err)
		}
	}
	v.Status.UID = v.UID
	// The machine is read first: if it is gone, the observation shows the disk as the machine left it.
	holder, err := r.holder(ctx, v)
	if err != nil {
		return err
	}
	v.holder = holder
	v.observe(ctx, r.Runtimes)
	if !v.DeletionTimestamp.IsZero() && !v.MayExist() && runtime.NothingOfOurs(v.err) {
		v.err = nil // there is nothing to destroy
	}
	switch {
	case v.err != nil:
	case v.abandoned():
		v.Free(v.now)
	case v.DeletionTimestamp.IsZero():
		if err := r.reconcile(ctx, v); err != nil {
			return err
		}
	case v.Status.AttachedTo == nil:
		if gone := v.deleteData(ctx); gone {
			if err := r.deleteCopySnapshot(ctx, v); err != nil {
				return err
			}
			if v.err != nil {
				break
			}
			r.recordMissing(v)
			return client.IgnoreNotFound(persist.Release(ctx, r.Client, v.VirtualDisk, v1alpha1.VirtualDiskFinalizer))
		}
	}
	switch {
	case runtime.IsTakingOver(v.err), v.seen.InFlight:
		v.requeueAfter = cmp.Or(r.Poll, defaultPoll)
	case v.Status.AttachedTo != nil && v.holder == nil:
		v.requeueAfter = lastRetry
	}
	return r.save(ctx, v)
}

// recordMissing records an event if the runtime does not find the disk of a deleted VirtualDisk, and none of our deletions was confirmed: its
// files may be left where the runtime does not find them, such as those of a disk that the catalog of a vCenter has lost.
func (r *Reconciler) recordMissing(v *view) {
	ready := v1alpha1.ConditionReady.In(v.before.Conditions)
	if v.Status.DiskID == "" || ready == nil || ready.Reason == string(v1alpha1.ReasonTerminating) {
		return
	}
	r.Events.Eventf(v.VirtualDisk, nil, corev1.EventTypeWarning, string(v1alpha1.ReasonDiskLost), "Delete",
		"the runtime does not find disk %s. If files of it are left, remove them there", v.Status.DiskID)
}

// holder reads the machine that has the disk live. It returns nil if there is none, or if the machine is gone: no
// VirtualMachine has that name and UID, or it is only kept by another finalizer, such as foreground deletion waiting
// for this disk.
func (r *Reconciler) holder(ctx context.Context, v *view) (*v1alpha1.VirtualMachine, error) {
	by := v.Status.AttachedTo
	if by == nil {
		return nil, nil
	}
	vm := &v1alpha1.VirtualMachine{}
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: v.Namespace, Name: by.Name}, vm)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading VirtualMachine %s, which uses VirtualDisk %s: %w", by.Name, v.Name, err)
	case vm.UID != by.UID:
		return nil, nil
	case !vm.DeletionTimestamp.IsZero() && !controllerutil.ContainsFinalizer(vm, v1alpha1.VirtualMachineFinalizer):
		return nil, nil
	}
	return vm, nil
}

// save writes the status if it has changed, and records events for problems.
func (r *Reconciler) save(ctx context.Context, v *view) error {
	ready := v.ready()
	before := v1alpha1.ConditionReady.In(v.before.Conditions)
	v1alpha1.SetCondition(&v.Status.Conditions, ready, v.now)
	v.Status.ObservedGeneration = v.Generation
	v.updateStatus()
	if v.requeueAfter == 0 && v.DeletionTimestamp.IsZero() {
		v.requeueAfter = wait.Jitter(resync, 0.2)
	}
	if changed, err := persist.Status(ctx, r.Client, v.VirtualDisk, v.before, &v.Status); !changed {
		return err
	}
	r.recordReplaced(v)
	switch {
	case v.before.DiskID == "" && v.Status.DiskID != "":
		r.Events.Eventf(v.VirtualDisk, nil, corev1.EventTypeNormal, string(v1alpha1.ReasonProvisioned), "Ensure", "disk %s was created", v.Status.DiskID)
	case v.warns(ready) && (before == nil || before.Reason != ready.Reason):
		r.Events.Eventf(v.VirtualDisk, nil, corev1.EventTypeWarning, ready.Reason, "Observe", "%s", ready.Message)
	}
	return nil
}
