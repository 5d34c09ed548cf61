// Package disk keeps disks on their runtimes in step with their VirtualDisks: it has them made and grown, shows what is seen of them,
// gives those back whose machine is gone, and has their data destroyed with the VirtualDisk.
//
// Who has a disk is in its status. The reconciler of VirtualMachines takes a disk before it has it attached, and gives it back once it
// was seen detached; here only a disk is given back whose machine is not there to do so.
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
	"sallyport.dev/sallyport/reconcilers/drive"
	"sallyport.dev/sallyport/reconcilers/persist"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

const (
	defaultPoll = 2 * time.Second
	// resync is how often a disk is looked at that nothing is told of, in case somebody removed it.
	resync = 10 * time.Hour
	// lastRetry is the longest wait after an error.
	lastRetry = time.Minute
)

// Reconciler is the reconciler of VirtualDisks.
type Reconciler struct {
	// Client writes, and reads from caches what need not be current.
	Client client.Client
	// Live reads past every cache.
	Live client.Reader
	// Runtimes gives the runtime of a disk, within its [runtime.Limits].
	Runtimes func(context.Context, *v1alpha1.VirtualDisk) (*runtime.Client, error)
	// Events tells people.
	Events events.EventRecorder
	// Now is the clock.
	Now func() time.Time
	// Volumes is a kind of objects in this cluster that disks are. Nil if there is none.
	Volumes client.Object
	// DiskOf returns the VirtualDisk that an object of that kind is the disk of, or an empty name.
	DiskOf func(client.Object) types.NamespacedName
	// Poll is how long to wait before looking again at what a runtime is doing. Default 2 s.
	Poll time.Duration
}

// SetupWithManager registers the reconciler, and the index of disks by the machine that has them.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.VirtualDisk{}, v1alpha1.FieldDiskHolder, heldBy)
	if err != nil {
		return fmt.Errorf("indexing VirtualDisks by their machines: %w", err)
	}
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.VirtualDisk{}, byImage, imageKeys); err != nil {
		return fmt.Errorf("indexing VirtualDisks by their images: %w", err)
	}
	b := ctrl.NewControllerManagedBy(mgr)
	if r.Volumes != nil {
		b = b.Watches(r.Volumes, handler.EnqueueRequestsFromMapFunc(r.ofVolume))
	}
	return b.
		For(&v1alpha1.VirtualDisk{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, decided, givenBack, restored))).
		Watches(&v1alpha1.VirtualMachine{}, handler.EnqueueRequestsFromMapFunc(r.ofMachine), builder.WithPredicates(left)).
		Watches(&v1alpha1.VMDiskImage{}, handler.EnqueueRequestsFromMapFunc(r.ofImage), builder.WithPredicates(drive.ImageChanged)).
		WithOptions(drive.Options(lastRetry)).
		Complete(r)
}

// A look at a disk asks the runtime about all machines that may have it, so that what changes nothing here is dropped: most of what
// machines and disks say of themselves.
var (
	// givenBack passes a disk that is being deleted, and that nobody has any more.
	givenBack = predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			now, is := e.ObjectNew.(*v1alpha1.VirtualDisk)
			return is && !now.DeletionTimestamp.IsZero() && now.Status.AttachedTo == nil
		},
	}
	// decided passes a disk of which somebody says what is to become of one that its runtime has for another of its name.
	decided = predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			return runtime.EarlierOf(e.ObjectOld) != runtime.EarlierOf(e.ObjectNew)
		},
	}
	// restored passes a disk that has the status of another one.
	restored = predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			now, is := e.ObjectNew.(*v1alpha1.VirtualDisk)
			return is && now.StatusOfAnother()
		},
	}
	// left passes a machine that is gone, or of which nothing is on its runtime any more.
	left = predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			return !e.ObjectNew.GetDeletionTimestamp().IsZero() && !controllerutil.ContainsFinalizer(e.ObjectNew, v1alpha1.VirtualMachineFinalizer)
		},
	}
)

// heldBy is what disks are found by: the name of the machine that has them.
func heldBy(o client.Object) []string {
	if d, is := o.(*v1alpha1.VirtualDisk); is && d.Status.AttachedTo != nil {
		return []string{d.Status.AttachedTo.Name}
	}
	return nil
}

// ofVolume gives the disk that an object is.
func (r *Reconciler) ofVolume(_ context.Context, o client.Object) []reconcile.Request {
	if d := r.DiskOf(o); d.Name != "" {
		return []reconcile.Request{{NamespacedName: d}}
	}
	return nil
}

// ofMachine gives the disks that a machine has, by the cache.
func (r *Reconciler) ofMachine(ctx context.Context, vm client.Object) (requests []reconcile.Request) {
	var held v1alpha1.VirtualDiskList
	err := r.Client.List(ctx, &held, client.InNamespace(vm.GetNamespace()), client.MatchingFields{v1alpha1.FieldDiskHolder: vm.GetName()})
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "finding the disks of a machine", "VirtualMachine", vm.GetName())
	}
	for i := range held.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&held.Items[i])})
	}
	return requests
}

// Reconcile takes one disk further.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	d := &v1alpha1.VirtualDisk{}
	if err := r.Live.Get(ctx, request.NamespacedName, d); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	l := &look{VirtualDisk: d, read: d.Status.DeepCopy(), now: r.Now()}
	err := r.act(ctx, l)
	if err == nil && l.trouble != nil && !runtime.IsTakingOver(l.trouble) && !runtime.IsReadOnly(l.trouble) {
		err = fmt.Errorf("VirtualDisk %s: %w", request, l.trouble)
	}
	return persist.Result(l.again, err)
}

func (r *Reconciler) act(ctx context.Context, l *look) error {
	if held, err := persist.Hold(ctx, r.Client, l.VirtualDisk, v1alpha1.VirtualDiskFinalizer); !held {
		return client.IgnoreNotFound(err) // nothing is made for one that is gone
	}
	if l.StatusOfAnother() {
		l.Status = v1alpha1.VirtualDiskStatus{}
	}
	if l.Status.DiskID == "" && l.DeletionTimestamp.IsZero() && runtime.EarlierOf(l) == runtime.TakeOver {
		if did, err := drive.DropLostOwners(ctx, r.Live, r.Client, l.VirtualDisk); did || err != nil {
			l.again = time.Millisecond
			return client.IgnoreNotFound(err)
		}
	}
	l.Status.UID = l.UID
	// The machine first: what is seen of the disk after its machine has gone is how that left it.
	holder, err := r.holder(ctx, l)
	if err != nil {
		return err
	}
	l.holder = holder
	l.observe(ctx, r.Runtimes)
	switch {
	case l.trouble != nil:
	case l.abandoned():
		l.Free(l.now)
	case l.DeletionTimestamp.IsZero():
		if err := r.keep(ctx, l); err != nil {
			return err
		}
	case l.Status.AttachedTo == nil:
		if gone := l.remove(ctx); gone {
			if err := r.returnSnapshot(ctx, l); err != nil {
				return err
			}
			return client.IgnoreNotFound(persist.Release(ctx, r.Client, l.VirtualDisk, v1alpha1.VirtualDiskFinalizer))
		}
	}
	switch {
	case runtime.IsTakingOver(l.trouble), l.seen.InFlight:
		l.again = cmp.Or(r.Poll, defaultPoll)
	case l.Status.AttachedTo != nil && l.holder == nil:
		l.again = lastRetry
	}
	return r.save(ctx, l)
}

// holder reads the machine live that has the disk. It is nil if nobody has it, or the machine is gone: no VirtualMachine of that name
// and UID is there, or one that is only kept by somebody else's finalizer, as by a deletion in the foreground that waits for this disk.
func (r *Reconciler) holder(ctx context.Context, l *look) (*v1alpha1.VirtualMachine, error) {
	by := l.Status.AttachedTo
	if by == nil {
		return nil, nil
	}
	vm := &v1alpha1.VirtualMachine{}
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: l.Namespace, Name: by.Name}, vm)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading VirtualMachine %s, which uses VirtualDisk %s: %w", by.Name, l.Name, err)
	case vm.UID != by.UID:
		return nil, nil
	case !vm.DeletionTimestamp.IsZero() && !controllerutil.ContainsFinalizer(vm, v1alpha1.VirtualMachineFinalizer):
		return nil, nil
	}
	return vm, nil
}

// save writes the status if it has changed, and tells people what went wrong.
func (r *Reconciler) save(ctx context.Context, l *look) error {
	ready := l.ready()
	before := v1alpha1.ConditionReady.In(l.read.Conditions)
	v1alpha1.SetCondition(&l.Status.Conditions, ready, l.now)
	l.Status.ObservedGeneration = l.Generation
	l.settle()
	if l.again == 0 && l.DeletionTimestamp.IsZero() {
		l.again = wait.Jitter(resync, 0.2)
	}
	if changed, err := persist.Status(ctx, r.Client, l.VirtualDisk, l.read, &l.Status); !changed {
		return err
	}
	r.tellReplaced(l)
	switch {
	case l.read.DiskID == "" && l.Status.DiskID != "":
		r.Events.Eventf(l.VirtualDisk, nil, corev1.EventTypeNormal, string(v1alpha1.ReasonProvisioned), "Ensure", "disk %s was created", l.Status.DiskID)
	case l.wrong(ready) && (before == nil || before.Reason != ready.Reason):
		r.Events.Eventf(l.VirtualDisk, nil, corev1.EventTypeWarning, ready.Reason, "Observe", "%s", ready.Message)
	}
	return nil
}
