// Package virtualmachine reconciles VirtualMachines: it creates or adopts their machines, updates their status, keeps
// the power state of the run policy, and removes machines with their VirtualMachine.
//
// A change of power or existence needs the claim, as operations do: the run policy claims with origin RunPolicy, a
// deletion with origin Deletion, other sources with their own. While an operation holds the machine or a former
// holder is being undone, the operation reconciler observes and changes the machine. This reconciler then only
// creates it (powered off, for a Start to find) and attaches the disks without which it is not powered on.
package virtualmachine

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/diskimage/use"
	"sallyport.dev/sallyport/reconcilers/drive"
	"sallyport.dev/sallyport/reconcilers/persist"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/watch"
)

const (
	// defaultResync is how often a machine is observed without a change event, in case one was missed.
	defaultResync = 10 * time.Hour
	// blindResync is the interval for a runtime that does not report changes.
	blindResync = 30 * time.Second

	// lastRetry is the longest wait after an error.
	lastRetry = 30 * time.Second
)

// Reconciler is the reconciler of VirtualMachines.
type Reconciler struct {
	// Driver carries out what is wanted of machines.
	*drive.Driver
	Events events.EventRecorder
	// Changes are the changes that runtimes report.
	Changes <-chan event.TypedGenericEvent[runtime.Change]
	// Owned are the kinds of objects in this cluster that implement machines, by their controller references: a
	// change of one reconciles its machine.
	Owned []client.Object
	// Followed are the kinds of other objects in this cluster that implement machines of KubeVirt, which may be installed later. InstanceOf
	// returns the instance of one, in its namespace: a change reconciles the machine with that instance.
	Followed   []schema.GroupVersionKind
	InstanceOf func(client.Object) string
	// AdmitsMove evaluates the policies for a move of a machine from the node in its status to another one. An empty
	// reason admits the move; any other is that of the denial. An error means that the policies could not be
	// evaluated. Nil admits every move.
	AdmitsMove func(ctx context.Context, vm *v1alpha1.VirtualMachine, node string) (reason v1alpha1.ConditionReason, message string, err error)
	// Resync is how long to wait before a ready machine without change events is observed again. Default 10 h, and at
	// most 30 s if its runtime does not report changes.
	Resync time.Duration
	// Metrics is where metrics of the machines are registered, nil for none.
	Metrics prometheus.Registerer

	pause pause
}

// byInstance indexes VirtualMachines by their VSphereServer, and by server and instance.
const byInstance = "instance"

// byKubeVirt indexes VirtualMachines by the name of their instance on KubeVirt.
const byKubeVirt = "kubevirt"

// byDisk indexes VirtualMachines by the VirtualDisks that their specs name.
const byDisk = "disk"

func instanceKey(of runtime.Change) string { return of.Server + "/" + of.InstanceID }

func instanceKeys(o client.Object) []string {
	vm, is := o.(*v1alpha1.VirtualMachine)
	if !is || vm.Spec.Runtime.VSphere == nil {
		return nil
	}
	all := runtime.Change{Server: vm.Spec.Runtime.VSphere.ServerRef.Name}
	this := runtime.Change{Server: all.Server, InstanceID: vm.Status.InstanceID}
	return slices.Compact([]string{instanceKey(all), instanceKey(this)})
}

func kubeVirtKeys(o client.Object) []string {
	vm, is := o.(*v1alpha1.VirtualMachine)
	if !is || vm.Spec.Runtime.KubeVirt == nil {
		return nil
	}
	return []string{cmp.Or(vm.Status.InstanceID, vm.Spec.Runtime.KubeVirt.Name, vm.Name)}
}

func diskKeys(o client.Object) (names []string) {
	if vm, is := o.(*v1alpha1.VirtualMachine); is {
		for _, ref := range vm.BlockDevices() {
			names = append(names, ref.Name)
		}
	}
	return names
}

// SetupWithManager registers the reconciler and its indexes.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	if err := watch.Index(mgr, &v1alpha1.VirtualMachine{}, map[string]client.IndexerFunc{
		byInstance: instanceKeys, byKubeVirt: kubeVirtKeys, byDisk: diskKeys, byTemplate: templateKeys, byImage: imageKeys,
	}); err != nil {
		return err
	}
	if err := r.addMetrics(mgr); err != nil {
		return err
	}
	b := ctrl.NewControllerManagedBy(mgr)
	for _, kind := range r.Owned {
		b = b.Owns(kind)
	}
	for _, kind := range r.Followed {
		of := &metav1.PartialObjectMetadata{}
		of.SetGroupVersionKind(kind)
		b = b.WatchesRawSource(watch.WhenServed(mgr, kind,
			source.Kind[client.Object](mgr.GetCache(), of, handler.EnqueueRequestsFromMapFunc(r.machinesOfInstance))))
	}
	return b.
		For(&v1alpha1.VirtualMachine{}).
		Watches(&v1alpha1.VirtualDisk{}, handler.EnqueueRequestsFromMapFunc(r.machinesOfDisk), builder.WithPredicates(diskChanged)).
		Watches(&v1alpha1.VMDiskImage{}, handler.EnqueueRequestsFromMapFunc(r.machinesOfImage), builder.WithPredicates(use.Changed)).
		Watches(&v1alpha1.VSphereTemplate{}, handler.EnqueueRequestsFromMapFunc(r.machinesOfTemplate), builder.WithPredicates(templateChanged)).
		Watches(&v1alpha1.VSphereServer{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
			return r.machinesOfChange(ctx, runtime.Change{Server: o.GetName()})
		}), builder.WithPredicates(predicate.GenerationChangedPredicate{})). // spec.tenants may have changed
		WatchesRawSource(source.TypedChannel(r.Changes, handler.TypedEnqueueRequestsFromMapFunc(r.machinesOfChange))).
		WithOptions(watch.Options(lastRetry)).
		Complete(r)
}

func (r *Reconciler) machinesOfChange(ctx context.Context, of runtime.Change) []reconcile.Request {
	return watch.Requests(ctx, r.Client, &v1alpha1.VirtualMachineList{}, client.MatchingFields{byInstance: instanceKey(of)})
}

// machinesOfInstance returns requests for the machine of KubeVirt that an object implements.
func (r *Reconciler) machinesOfInstance(ctx context.Context, o client.Object) []reconcile.Request {
	return watch.Requests(ctx, r.Client, &v1alpha1.VirtualMachineList{}, client.InNamespace(o.GetNamespace()), client.MatchingFields{byKubeVirt: r.InstanceOf(o)})
}

// Reconcile advances one machine until nothing is due or the pass has reached its limit of actions.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	return r.Pass(ctx, request.NamespacedName, func(ctx context.Context, t *drive.Turn) (bool, error) {
		if t.VM == nil {
			r.forget(t.Key())
			return false, nil
		}
		v := &view{Turn: t, before: t.VM.Status.DeepCopy()}
		if !t.VM.DeletionTimestamp.IsZero() {
			return r.remove(ctx, v)
		}
		return r.reconcile(ctx, v)
	})
}

// reconcile advances a machine that is not being deleted.
func (r *Reconciler) reconcile(ctx context.Context, v *view) (bool, error) {
	// Nothing on a runtime may outlive its VirtualMachine. Policy `defaults` adds the finalizer at creation, if it is
	// enabled.
	if did, err := persist.Finalizer(ctx, r.Client, v.VM, controllerutil.AddFinalizer, v1alpha1.VirtualMachineFinalizer); did || err != nil {
		return did, err
	}
	if v.mayNeedCreation() && runtime.EarlierOf(v.VM) == runtime.TakeOver {
		if did, err := persist.DropLostOwners(ctx, r.Live, r.Client, v.VM); did || err != nil {
			return did, client.IgnoreNotFound(err)
		}
	}
	if !v.ours() && !v.mayNeedCreation() && !v.lacksDisks() {
		return r.report(ctx, v)
	}
	if v.observe(ctx); v.err == nil {
		provide := r.provide
		if v.onlyObserves() {
			provide = r.giveBack
		}
		if did, err := provide(ctx, v); did || err != nil {
			return did, err
		}
	}
	if v.ours() && v.err == nil {
		if did, err := v.Tidy(ctx, &v.seen); did || err != nil {
			return did, err
		}
		v.recordAdoptedPower()
		if did, err := r.advanceSource(ctx, v); did || err != nil {
			return did, err
		}
		if did, err := r.adjust(ctx, v); did || err != nil {
			return did, err
		}
	}
	return r.report(ctx, v)
}

// provide creates the machine and its disks. Disks come first, because some runtimes need them at creation.
func (r *Reconciler) provide(ctx context.Context, v *view) (bool, error) {
	if did, err := r.reconcileBootDisk(ctx, v); did || err != nil || v.imageTrouble != nil {
		return did, err
	}
	if did, err := r.reconcileDisks(ctx, v); did || err != nil {
		return did, err
	}
	return r.ensureInstance(ctx, v)
}

// ensureInstance creates or adopts a machine that was never observed, and adopts one again that has lost its owner
// mark, which is safe. It needs no claim: it does not change an existing machine, and a holder of one that does not
// exist waits for it.
func (r *Reconciler) ensureInstance(ctx context.Context, v *view) (bool, error) {
	adopts := v.VM.Spec.Adopts() && v.ours() && v.VM.Status.ActiveOperation == nil
	switch {
	case v.seen.Exists, !v.mayNeedCreation() && !adopts:
		return false, nil
	case !v.seen.Quiet(), v.Sent():
		v.Later()
		return false, nil
	case r.creationBackingOff(v):
		return false, nil
	case runtime.Can[runtime.FixedDisks](v.Runtime()) && v.diskTrouble != nil:
		v.waitMessage = v.diskTrouble.message // it is created with its disks
		return false, nil
	}
	create, err := r.creation(ctx, v)
	if err == nil && create != nil {
		if did, err := r.recordProvisioning(ctx, v); did || err != nil {
			return did, err
		}
		err = v.Call(ctx, create)
	}
	switch v.err = err; {
	case err != nil:
		v.Troubled("making the machine of VirtualMachine "+v.VM.Name, err)
		return false, nil
	case create == nil:
		return false, nil
	}
	r.attempts().Next(creationKey(v.Key()), v.Time)
	return true, nil
}

// creation returns the call that creates or adopts the machine on its runtime, nil if the machine must wait.
func (r *Reconciler) creation(ctx context.Context, v *view) (func(context.Context, runtime.Machine) error, error) {
	template, waitMessage, err := r.findTemplate(ctx, v.VM)
	if err != nil || waitMessage != "" {
		v.waitMessage = waitMessage
		return nil, err
	}
	userData, err := r.cloudInit(ctx, v.VM)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, m runtime.Machine) error {
		m.CloudInit, m.Template = userData, template
		_, err := v.Runtime().Ensure(ctx, m)
		return err
	}, nil
}

// recordProvisioning persists, before the runtime is first asked, that something of the machine may exist there, and confirms that the
// machine is unchanged. It reports whether everything must be read again.
func (r *Reconciler) recordProvisioning(ctx context.Context, v *view) (bool, error) {
	if !v.VM.MayExist() && r.Halt.Err() == nil {
		v.VM.Status.ProvisioningSince = new(v.now())
		if v.VM.Status.ActiveOperation == nil {
			v.VM.Status.Phase = v1alpha1.VirtualMachineProvisioning
		}
		if _, err := r.save(ctx, v); err != nil {
			return false, err
		}
	}
	same, err := v.Unchanged(ctx)
	return !same, err
}

// forget drops the backoff of a deleted machine.
func (r *Reconciler) forget(key types.NamespacedName) {
	r.attempts().Reset(key.String())
	r.attempts().Reset(creationKey(key))
}
