// Package virtualmachine keeps machines on their runtimes in step with their VirtualMachines: it has them made or adopted,
// shows what is seen of them, keeps their power as the run policy has it, and removes them with their VirtualMachine.
//
// What changes power or existence takes the claim first, as operations do: the run policy as origin RunPolicy, the deletion
// as origin Deletion, and whatever else wants something of machines as its own. While an operation holds the machine, or anybody is being undone, that is the operation reconciler's
// business, and it shows what it sees; here the machine is left alone but for two things: it is made, off, for a Start to find, and
// is given the disks without which it is not powered on.
package virtualmachine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/drive"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

const (
	// defaultResync is how often a machine is looked at that nothing is told of, in case that was missed.
	defaultResync = 10 * time.Hour
	// blindResync is that for a machine whose runtime tells of nothing.
	blindResync = 30 * time.Second

	// lastRetry is the longest wait after an error.
	lastRetry = 30 * time.Second
)

// Reconciler is the reconciler of VirtualMachines.
type Reconciler struct {
	// Driver carries out what is wanted of machines.
	*drive.Driver
	// Events tells people.
	Events events.EventRecorder
	// Changes are what runtimes tell of.
	Changes <-chan event.TypedGenericEvent[runtime.Change]
	// Owned are the kinds of objects in this cluster that machines are, by their controller references: a change of one is a change of its
	// machine.
	Owned []client.Object
	// AdmitsMove has the policies judge whether a machine may be moved now from the node in its status to another one. An empty reason
	// admits the move; any other is the denial's. An error means that no ruling could be made. Nil admits every move.
	AdmitsMove func(ctx context.Context, vm *v1alpha1.VirtualMachine, node string) (reason v1alpha1.ConditionReason, message string, err error)
	// Resync is how long to wait before looking again at a machine that is as it should be, and of which nothing was told. Default
	// 10 h, and never more than 30 s if its runtime does not tell of changes.
	Resync time.Duration
	// Metrics is where metrics of the machines are registered, nil for none.
	Metrics prometheus.Registerer

	pace pace
}

// byInstance is the index of VirtualMachines by where their machines are: each, and all of a VSphereServer.
const byInstance = "instance"

// byDisk is the index of VirtualMachines by the VirtualDisks that their specs name.
const byDisk = "disk"

func instanceKey(of runtime.Change) string { return of.Server + "/" + of.InstanceID }

// SetupWithManager registers the reconciler, and an index that it needs.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.VirtualMachine{}, byInstance, func(o client.Object) []string {
		vm, is := o.(*v1alpha1.VirtualMachine)
		if !is || vm.Spec.Runtime.VSphere == nil {
			return nil
		}
		all := runtime.Change{Server: vm.Spec.Runtime.VSphere.ServerRef.Name}
		this := runtime.Change{Server: all.Server, InstanceID: vm.Status.InstanceID}
		return slices.Compact([]string{instanceKey(all), instanceKey(this)})
	})
	if err != nil {
		return fmt.Errorf("indexing VirtualMachines by their machines: %w", err)
	}
	err = mgr.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.VirtualMachine{}, byDisk, func(o client.Object) (names []string) {
		if vm, is := o.(*v1alpha1.VirtualMachine); is {
			for _, ref := range vm.BlockDevices() {
				names = append(names, ref.Name)
			}
		}
		return names
	})
	if err != nil {
		return fmt.Errorf("indexing VirtualMachines by their disks: %w", err)
	}
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.VirtualMachine{}, byTemplate, templateKeys); err != nil {
		return fmt.Errorf("indexing VirtualMachines by their templates: %w", err)
	}
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.VirtualMachine{}, byImage, imageKeys); err != nil {
		return fmt.Errorf("indexing VirtualMachines by their images: %w", err)
	}
	if err := r.addMetrics(mgr); err != nil {
		return err
	}
	b := ctrl.NewControllerManagedBy(mgr)
	for _, kind := range r.Owned {
		b = b.Owns(kind)
	}
	return b.
		For(&v1alpha1.VirtualMachine{}).
		Watches(&v1alpha1.VirtualDisk{}, handler.EnqueueRequestsFromMapFunc(r.ofDisk), builder.WithPredicates(diskChanged)).
		Watches(&v1alpha1.VMDiskImage{}, handler.EnqueueRequestsFromMapFunc(r.ofImage), builder.WithPredicates(drive.ImageChanged)).
		Watches(&v1alpha1.VSphereTemplate{}, handler.EnqueueRequestsFromMapFunc(r.ofTemplate), builder.WithPredicates(templateChanged)).
		Watches(&v1alpha1.VSphereServer{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
			return r.changed(ctx, runtime.Change{Server: o.GetName()})
		}), builder.WithPredicates(predicate.GenerationChangedPredicate{})). // who may have machines there
		WatchesRawSource(source.TypedChannel(r.Changes, handler.TypedEnqueueRequestsFromMapFunc(r.changed))).
		WithOptions(drive.Options(lastRetry)).
		Complete(r)
}

// changed gives the machines that a change is of, by the cache. One that is not in the index yet is looked at when the write that puts
// it there arrives, which is later than the change.
func (r *Reconciler) changed(ctx context.Context, of runtime.Change) []reconcile.Request {
	var list v1alpha1.VirtualMachineList
	if err := r.Client.List(ctx, &list, client.MatchingFields{byInstance: instanceKey(of)}); err != nil {
		log.FromContext(ctx).Error(err, "finding the VirtualMachines of a change", "VSphereServer", of.Server)
		return nil
	}
	requests := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

// Reconcile takes one machine further, until nothing is due or it has had its share.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	return r.Pass(ctx, request.NamespacedName, func(ctx context.Context, t *drive.Turn) (bool, error) {
		if t.VM == nil {
			r.forget(t.Key())
			return false, nil
		}
		l := &look{Turn: t, read: t.VM.Status.DeepCopy()}
		if !t.VM.DeletionTimestamp.IsZero() {
			return r.remove(ctx, l)
		}
		return r.keep(ctx, l)
	})
}

// keep takes a machine further that is not being deleted.
func (r *Reconciler) keep(ctx context.Context, l *look) (bool, error) {
	// Nothing is on a runtime that would stay when the VirtualMachine goes. The policy `defaults` adds it at creation, if it is there.
	if did, err := r.Finalize(ctx, l.VM, controllerutil.AddFinalizer, v1alpha1.VirtualMachineFinalizer); did || err != nil {
		return did, err
	}
	if l.missing() && runtime.EarlierOf(l.VM) == runtime.TakeOver {
		if did, err := drive.DropLostOwners(ctx, r.Live, r.Client, l.VM); did || err != nil {
			return did, client.IgnoreNotFound(err)
		}
	}
	if !l.ours() && !l.missing() && !l.lacksDisks() {
		return r.report(ctx, l)
	}
	if l.observe(ctx); l.err == nil {
		if did, err := r.provide(ctx, l); did || err != nil {
			return did, err
		}
	}
	if l.ours() && l.err == nil {
		if did, err := l.Tidy(ctx, &l.seen); did || err != nil {
			return did, err
		}
		l.adopt()
		if did, err := r.run(ctx, l); did || err != nil {
			return did, err
		}
		if did, err := r.adjust(ctx, l); did || err != nil {
			return did, err
		}
	}
	return r.report(ctx, l)
}

// provide has the machine and its disks made. The disks come first, because some machines have to be made with them.
func (r *Reconciler) provide(ctx context.Context, l *look) (bool, error) {
	if did, err := r.bootDisk(ctx, l); did || err != nil || l.imageTrouble != nil {
		return did, err
	}
	if did, err := r.disks(ctx, l); did || err != nil {
		return did, err
	}
	return r.ensure(ctx, l)
}

// ensure has a machine made or adopted that was never seen, and one adopted again that has lost its marker: there is nothing
// to lose by that. It needs no claim: it changes nothing of a machine that is there, and whoever holds one that is not waits
// for it.
func (r *Reconciler) ensure(ctx context.Context, l *look) (bool, error) {
	adopts := l.VM.Spec.Adopts() && l.ours() && l.VM.Status.ActiveOperation == nil
	switch {
	case l.seen.Exists, !l.missing() && !adopts:
		return false, nil
	case !l.seen.Quiet(), l.Sent():
		l.Later()
		return false, nil
	case r.failedJustNow(l):
		return false, nil
	case runtime.Can[runtime.FixedDisks](l.Runtime()) && l.diskTrouble != nil:
		l.waits = l.diskTrouble.message // it is made with its disks
		return false, nil
	}
	if same, err := l.Unchanged(ctx); err != nil || !same {
		return !same, err
	}
	l.err = r.make(ctx, l)
	switch {
	case l.err != nil:
		l.Troubled("making the machine of VirtualMachine "+l.VM.Name, l.err)
		return false, nil
	case l.waits != "":
		return false, nil
	}
	r.attempts().Next(makingOf(l.Key()), l.Time)
	return true, nil
}

// make has the runtime make or adopt the machine, unless that has to wait.
func (r *Reconciler) make(ctx context.Context, l *look) error {
	template, waits, err := r.template(ctx, l.VM)
	if err != nil || waits != "" {
		l.waits = waits
		return err
	}
	given, err := r.cloudInit(ctx, l.VM)
	if err != nil {
		return err
	}
	return l.Tell(ctx, func(ctx context.Context, m runtime.Machine) error {
		m.CloudInit, m.Template = given, template
		_, err := l.Runtime().Ensure(ctx, m)
		return err
	})
}

// forget drops what is remembered of a machine that is gone.
func (r *Reconciler) forget(key types.NamespacedName) {
	r.attempts().Reset(key.String())
	r.attempts().Reset(makingOf(key))
}
