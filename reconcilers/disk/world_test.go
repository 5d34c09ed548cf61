package disk

import (
	"context"
	"errors"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/reconcilers/drive"
	"sallyport.dev/sallyport/reconcilers/operation"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/virtualmachine"
	"sallyport.dev/sallyport/test/support/double/apiserver"
	"sallyport.dev/sallyport/test/support/double/fake"
	"sallyport.dev/sallyport/test/support/mortal"
)

const namespace = "team-a"

func key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// world is an API server, a runtime, and the processes that reconcile machines and disks.
type world struct {
	client.WithWatch
	machines *fake.World
	now      time.Time
	events   *events.FakeRecorder
	ctx      context.Context
}

func newWorld(ctx context.Context) *world {
	scheme := kruntime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme), snapshotv1.AddToScheme(scheme)); err != nil {
		panic(err) // the types of this repository
	}
	api := apiserver.New(fakeclient.NewClientBuilder().WithScheme(scheme).
		WithStatusSubresource(&v1alpha1.VirtualMachine{}, &v1alpha1.VirtualDisk{}, &v1alpha1.VMDiskImage{},
			&snapshotv1.VolumeSnapshot{}, &snapshotv1.VolumeSnapshotContent{}).
		WithIndex(&v1alpha1.VirtualDisk{}, v1alpha1.FieldDiskHolder, holderKeys).
		WithIndex(&v1alpha1.VirtualMachineOperation{}, "spec.virtualMachineName", func(client.Object) []string { return nil }).Build())
	w := &world{WithWatch: api, machines: fake.New(), now: time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC), events: events.NewFakeRecorder(1000), ctx: ctx}
	return w
}

// process is a manager that takes itself for the leader.
type process struct {
	mortal.Process
	*world
	disks *Reconciler
	vms   both
}

// both are the reconcilers of machines: that of operations undoes what nobody wants any more.
type both struct {
	vms *virtualmachine.Reconciler
	ops *operation.Reconciler
}

func (b both) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	_, first := b.ops.Reconcile(ctx, request)
	result, second := b.vms.Reconcile(ctx, request)
	return result, errors.Join(first, second)
}

func (w *world) process(name string) *process {
	p := &process{world: w}
	c := p.Client(w.WithWatch)
	rt := runtime.NewClient(w.machines.Client(name))
	now := func() time.Time { return w.now }
	p.disks = &Reconciler{
		Client: c, Live: c, Events: w.events, Now: now,
		Runtimes: func(context.Context, *v1alpha1.VirtualDisk) (*runtime.Client, error) { return rt, nil },
	}
	driver := &drive.Driver{
		Client: c, Live: c, Locks: &claim.Locks{}, Now: now,
		Runtimes: func(context.Context, *v1alpha1.VirtualMachine) (*runtime.Client, error) { return rt, nil },
	}
	p.vms = both{&virtualmachine.Reconciler{Events: w.events, Driver: driver}, &operation.Reconciler{Events: w.events, Driver: driver}}
	return p
}

// look has the process look at a disk or a machine, and be replaced by another if it dies of it.
func (p *process) look(r interface {
	Reconcile(context.Context, ctrl.Request) (ctrl.Result, error)
}, name string) error {
	_, err := r.Reconcile(p.ctx, ctrl.Request{NamespacedName: key(name)})
	p.Begin()
	return err
}

// disk makes a VirtualDisk.
func (w *world) disk(name string) *v1alpha1.VirtualDisk {
	d := &v1alpha1.VirtualDisk{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.VirtualDiskSpec{Size: resource.MustParse("1Gi"), Runtime: v1alpha1.VirtualDiskRuntime{Pod: &v1alpha1.VolumeDisk{}}},
	}
	w.must(w.Create(w.ctx, d))
	return d
}

// machine makes a VirtualMachine that is kept on, with those disks.
func (w *world) machine(name string, disks ...string) *v1alpha1.VirtualMachine {
	vm := &v1alpha1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.VirtualMachineSpec{
			RunPolicy: v1alpha1.RunPolicyAlwaysOn, BlockDeviceRefs: refs(disks...),
			Runtime: v1alpha1.VirtualMachineRuntime{Pod: &v1alpha1.PodRuntime{}},
		},
	}
	w.must(w.Create(w.ctx, vm))
	return vm
}

func refs(disks ...string) (all []v1alpha1.BlockDeviceRef) {
	for _, name := range disks {
		all = append(all, v1alpha1.BlockDeviceRef{Kind: v1alpha1.BlockDeviceVirtualDisk, Name: name})
	}
	return all
}

func (w *world) allDisks() []v1alpha1.VirtualDisk {
	var list v1alpha1.VirtualDiskList
	w.must(w.List(w.ctx, &list))
	return list.Items
}

func (w *world) allMachines() []v1alpha1.VirtualMachine {
	var list v1alpha1.VirtualMachineList
	w.must(w.List(w.ctx, &list))
	return list.Items
}

// settle has the process look at everything, and the runtime go on, until nothing changes any more.
func (w *world) settle(p *process) (settled bool) {
	for range 60 {
		effects, before := len(w.machines.Effects()), w.versions()
		for _, d := range w.allDisks() {
			_ = p.look(p.disks, d.Name)
		}
		for _, vm := range w.allMachines() {
			_ = p.look(p.vms, vm.Name)
		}
		w.machines.AdvanceAll()
		w.now = w.now.Add(time.Minute)
		if len(w.machines.Effects()) == effects && w.versions() == before {
			return true
		}
	}
	return false
}

// versions is something that changes whenever an object does.
func (w *world) versions() (all string) {
	for _, d := range w.allDisks() {
		all += d.Name + d.ResourceVersion + " "
	}
	for _, vm := range w.allMachines() {
		all += vm.Name + vm.ResourceVersion + " "
	}
	return all
}

// must ends everything on what cannot be: rapid shows it as a failure.
func (w *world) must(err error) {
	if err != nil {
		panic(err)
	}
}

// fixture is a world in a test of its own.
type fixture struct {
	*world
	*testing.T
	p *process
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	w := newWorld(t.Context())
	return &fixture{world: w, T: t, p: w.process("us")}
}

// rests has everything settle.
func (f *fixture) rests() {
	f.Helper()
	if !f.settle(f.p) {
		f.Fatalf("it never comes to rest: %+v", f.machines.Effects())
	}
}
