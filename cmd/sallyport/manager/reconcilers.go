package manager

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/reconcilers/disk"
	"sallyport.dev/sallyport/reconcilers/diskimage"
	"sallyport.dev/sallyport/reconcilers/drive"
	"sallyport.dev/sallyport/reconcilers/hibernation"
	"sallyport.dev/sallyport/reconcilers/operation"
	"sallyport.dev/sallyport/reconcilers/pool"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/kubevirt"
	"sallyport.dev/sallyport/reconcilers/runtime/templates"
	"sallyport.dev/sallyport/reconcilers/template"
	"sallyport.dev/sallyport/reconcilers/template/ova"
	"sallyport.dev/sallyport/reconcilers/virtualmachine"
	"sallyport.dev/sallyport/reconcilers/vsphereserver"
	"sallyport.dev/sallyport/webhooks/decision"
)

// Runtimes are functions that return the runtimes of machines and disks.
type Runtimes struct {
	Machine func(context.Context, *v1alpha1.VirtualMachine) (*runtime.Client, error)
	Disk    func(context.Context, *v1alpha1.VirtualDisk) (*runtime.Client, error)
	// Template returns the store of the templates of a VSphereTemplate. If it is nil, VSphereTemplates are not reconciled.
	Template func(context.Context, *v1alpha1.VSphereTemplate) (templates.Store, error)
}

// kindOf returns the name of the runtime of a machine or a disk, for messages and metrics.
func kindOf(vsphere, pod bool) string {
	switch {
	case vsphere:
		return "vsphere"
	case pod:
		return "pod"
	default:
		return "kubevirt"
	}
}

func kindOfMachine(vm *v1alpha1.VirtualMachine) string {
	return kindOf(vm.Spec.Runtime.VSphere != nil, vm.Spec.Runtime.Pod != nil)
}

func kindOfDisk(d *v1alpha1.VirtualDisk) string {
	return kindOf(d.Spec.Runtime.VSphere != nil, d.Spec.Runtime.Pod != nil)
}

// wrapped returns the runtimes with their clients wrapped.
func (r Runtimes) wrapped(wrap func(rt *runtime.Client, kind string) *runtime.Client) Runtimes {
	machine, disk := r.Machine, r.Disk
	r.Machine = func(ctx context.Context, vm *v1alpha1.VirtualMachine) (*runtime.Client, error) {
		rt, err := machine(ctx, vm)
		if err != nil {
			return nil, err
		}
		return wrap(rt, kindOfMachine(vm)), nil
	}
	r.Disk = func(ctx context.Context, d *v1alpha1.VirtualDisk) (*runtime.Client, error) {
		rt, err := disk(ctx, d)
		if err != nil {
			return nil, err
		}
		return wrap(rt, kindOfDisk(d)), nil
	}
	return r
}

// within wraps the runtimes so that calls are counted, traced and limited.
func (r Runtimes) within(limits runtime.Limits, registry prometheus.Registerer) Runtimes {
	metrics := runtime.NewMetrics(registry, time.Now)
	return r.wrapped(func(rt *runtime.Client, kind string) *runtime.Client {
		return runtime.NewClient(rt, limits.Keep, metrics.Count(kind), runtime.Trace(kind))
	})
}

// halted makes the runtimes ask before everything but observing.
func (r Runtimes) halted(by func(context.Context) error) Runtimes {
	all := r.wrapped(func(rt *runtime.Client, _ string) *runtime.Client { return rt.Halted(by) })
	if r.Template != nil {
		all.Template = func(ctx context.Context, t *v1alpha1.VSphereTemplate) (templates.Store, error) {
			store, err := r.Template(ctx, t)
			if err != nil {
				return nil, err
			}
			return templates.Halted(store, by), nil
		}
	}
	return all
}

// arbiter adapts the gate to the operation reconciler, which does not depend on the webhooks.
type arbiter struct{ gate *decision.Decider }

func (a arbiter) Arbitrate(
	ctx context.Context, o *v1alpha1.VirtualMachineOperation,
	machine *v1alpha1.VirtualMachine, unfinished []v1alpha1.VirtualMachineOperation,
) (operation.Admission, error) {
	admission, err := a.gate.Arbitrate(ctx, o, machine, unfinished)
	return operation.Admission(admission), err
}

// denialOf returns the reason and the message of a denial; both are empty if the policies admit the request.
func denialOf(admission decision.Admission, err error) (v1alpha1.ConditionReason, string, error) {
	if err != nil || !admission.Denied {
		return "", "", err
	}
	return cmp.Or(v1alpha1.ConditionReason(admission.Reason), "Denied"), admission.Message, nil
}

// eventSource is the reporting controller of events.
const eventSource = "sallyport"

// addVCenters adds the reconciler of VSphereServers, whose Secrets are in the namespace.
func addVCenters(mgr ctrl.Manager, all vcenters, namespace string) error {
	servers := &vsphereserver.Reconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Namespace: namespace, Servers: all,
		Events: mgr.GetEventRecorder(eventSource), Now: time.Now,
	}
	if err := servers.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("setting up the VSphereServer reconciler: %w", err)
	}
	if err := ctrlmetrics.Registry.Register(vsphereserver.Orphans(mgr.GetClient(), mgr.Elected())); err != nil {
		return fmt.Errorf("registering the metrics of VSphereServers: %w", err)
	}
	return nil
}

func (o *Options) addTemplates(mgr ctrl.Manager, events events.EventRecorder, runtimes Runtimes, halt runtime.Halt) error {
	if runtimes.Template == nil || !o.Templates {
		return nil
	}
	downloads := &ova.Downloader{Forbidden: o.forbidden()}
	reconciler := &template.Reconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Stores: runtimes.Template, Events: events, Now: time.Now, Poll: o.PollInterval,
		Metrics: template.NewMetrics(ctrlmetrics.Registry),
		Fetch: func(ctx context.Context, d templates.Domain) (templates.Archive, error) {
			if err := halt.Err(); err != nil { // nothing is downloaded for an import that does not begin
				return nil, err
			}
			archive, err := downloads.Open(ctx, d.Spec.Source)
			if err != nil {
				return nil, err
			}
			return archive, nil
		},
	}
	if err := reconciler.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("setting up the VSphereTemplate reconciler: %w", err)
	}
	return nil
}

// addReconcilers adds the reconcilers of operations, machines, disks, images, templates and pools to the manager. Operations and machines share
// a driver and its locks.
func (o *Options) addReconcilers(mgr ctrl.Manager, gate *decision.Decider, runtimes Runtimes, changed changes, locks *claim.Locks, halt runtime.Halt) error {
	events := mgr.GetEventRecorder(eventSource)
	driver := &drive.Driver{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Runtimes: runtimes.Machine, Locks: locks, Now: time.Now, Poll: o.PollInterval,
		AdmitsSize: func(ctx context.Context, vm *v1alpha1.VirtualMachine) (v1alpha1.ConditionReason, string, error) {
			return denialOf(gate.AdmitsSize(ctx, vm))
		},
		Halt:  halt,
		Moved: hibernation.NewRecorder(events, ctrlmetrics.Registry).Moved,
	}
	operations := &operation.Reconciler{
		Driver: driver, Arbiter: arbiter{gate}, Events: events, Metrics: operation.NewMetrics(ctrlmetrics.Registry),
	}
	if err := operations.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("setting up the VirtualMachineOperation reconciler: %w", err)
	}
	machines := &virtualmachine.Reconciler{
		Driver: driver, Events: events, Changes: changed, Owned: o.owned(), Followed: o.followed(), InstanceOf: kubevirt.InstanceOf, Resync: o.ResyncInterval, Metrics: ctrlmetrics.Registry,
		AdmitsMove: func(ctx context.Context, vm *v1alpha1.VirtualMachine, node string) (v1alpha1.ConditionReason, string, error) {
			return denialOf(gate.AdmitsMove(ctx, vm, node))
		},
	}
	if err := machines.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("setting up the VirtualMachine reconciler: %w", err)
	}
	disks := &disk.Reconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Runtimes: runtimes.Disk, Events: events, Now: time.Now, Poll: o.PollInterval,
	}
	if o.PodRuntime || o.KubeVirtRuntime {
		disks.Volumes = &corev1.PersistentVolumeClaim{}
	}
	if err := disks.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("setting up the VirtualDisk reconciler: %w", err)
	}
	images := &diskimage.Reconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: events, Now: time.Now, Disabled: !o.DiskImages, Halt: halt,
		Metrics: diskimage.NewMetrics(ctrlmetrics.Registry), SecretHosts: o.DiskImageSecretHosts,
	}
	if err := images.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("setting up the VMDiskImage reconciler: %w", err)
	}
	if err := o.addTemplates(mgr, events, runtimes, halt); err != nil {
		return err
	}
	if !o.Pools {
		return nil
	}
	pools := &pool.Reconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: events, Now: time.Now, Metrics: ctrlmetrics.Registry, Halt: halt,
	}
	if err := pools.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("setting up the VirtualMachinePool reconciler: %w", err)
	}
	return nil
}
