package claims

import (
	"context"
	"errors"
	"fmt"
	"time"

	volumesnapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/reconcilers/disk"
	"sallyport.dev/sallyport/reconcilers/drive"
	"sallyport.dev/sallyport/reconcilers/operation"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/kubevirt"
	"sallyport.dev/sallyport/reconcilers/virtualmachine"
	"sallyport.dev/sallyport/test/mortal"
)

const namespace = "team"

func key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

func meta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: name} }

// world is an API server, by which users and KubeVirt write, and what is known of the writes of Sallyport.
type world struct {
	client.WithWatch
	ctx    context.Context
	now    time.Time
	uids   int
	added  map[types.UID]map[string]string // the claims by the volumes that Sallyport added, by KubeVirt VirtualMachine
	broken []string                        // the promises that were broken
}

func newWorld(ctx context.Context) *world {
	scheme := kruntime.NewScheme()
	for _, add := range []func(*kruntime.Scheme) error{v1alpha1.AddToScheme, corev1.AddToScheme, virtv1.AddToScheme, snapshotv1.AddToScheme, volumesnapshotv1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	tracker := clienttesting.NewObjectTracker(scheme, serializer.NewCodecFactory(scheme).UniversalDecoder()) // the default one cannot track fields of KubeVirt
	inner := fakeclient.NewClientBuilder().WithScheme(scheme).WithObjectTracker(tracker).
		WithStatusSubresource(&v1alpha1.VirtualMachine{}, &v1alpha1.VirtualDisk{}, &virtv1.VirtualMachine{}).
		WithIndex(&v1alpha1.VirtualDisk{}, v1alpha1.FieldDiskHolder, func(o client.Object) []string {
			if by := o.(*v1alpha1.VirtualDisk).Status.AttachedTo; by != nil {
				return []string{by.Name}
			}
			return nil
		}).
		WithIndex(&v1alpha1.VirtualMachineOperation{}, "spec.virtualMachineName", func(client.Object) []string { return nil }).Build()
	w := &world{ctx: ctx, now: time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC), added: map[types.UID]map[string]string{}}
	// What an API server does beyond that: UIDs, a generation of the spec, and preconditions.
	w.WithWatch = interceptor.NewClient(inner, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			w.uids++
			o.SetUID(types.UID(fmt.Sprintf("uid-%d", w.uids)))
			o.SetGeneration(1)
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			o.SetGeneration(o.GetGeneration() + 1)
			return c.Update(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			present := o.DeepCopyObject().(client.Object)
			if err := c.Get(ctx, client.ObjectKeyFromObject(o), present); err != nil {
				return err
			}
			p := (&client.DeleteOptions{}).ApplyOptions(opts).Preconditions
			if p != nil && (p.UID != nil && *p.UID != present.GetUID() || p.ResourceVersion != nil && *p.ResourceVersion != present.GetResourceVersion()) {
				return apierrors.NewConflict(schema.GroupResource{}, o.GetName(), errors.New("another object"))
			}
			return c.Delete(ctx, o, opts...)
		},
	})
	for _, name := range []string{"root", "data-0", "spare"} {
		w.claim(name)
	}
	return w
}

// claim makes a claim of a user.
func (w *world) claim(name string) {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: meta(name)}
	c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	w.must(w.Create(w.ctx, c))
}

// must ends everything on what cannot be: rapid shows it as a failure.
func (w *world) must(err error) {
	if err != nil {
		panic(err)
	}
}

func list[L any, P interface {
	*L
	client.ObjectList
}](w *world) *L {
	var all L
	w.must(w.List(w.ctx, P(&all)))
	return &all
}

func (w *world) machines() []v1alpha1.VirtualMachine {
	return list[v1alpha1.VirtualMachineList](w).Items
}
func (w *world) disks() []v1alpha1.VirtualDisk { return list[v1alpha1.VirtualDiskList](w).Items }
func (w *world) vms() []virtv1.VirtualMachine  { return list[virtv1.VirtualMachineList](w).Items }
func (w *world) instances() []virtv1.VirtualMachineInstance {
	return list[virtv1.VirtualMachineInstanceList](w).Items
}
func (w *world) claims() []corev1.PersistentVolumeClaim {
	return list[corev1.PersistentVolumeClaimList](w).Items
}

func (w *world) vm(name string) *virtv1.VirtualMachine {
	vm := &virtv1.VirtualMachine{}
	if err := w.Get(w.ctx, key(name), vm); err != nil {
		w.must(client.IgnoreNotFound(err))
		return nil
	}
	return vm
}

func (w *world) instance(name string) *virtv1.VirtualMachineInstance {
	vmi := &virtv1.VirtualMachineInstance{}
	if err := w.Get(w.ctx, key(name), vmi); err != nil {
		w.must(client.IgnoreNotFound(err))
		return nil
	}
	return vmi
}

// process is a manager.
type process struct {
	mortal.Process
	*world
	disks *disk.Reconciler
	vms   *virtualmachine.Reconciler
	ops   *operation.Reconciler
}

// gate answers to dry runs as a KubeVirt that plugs what the template of a machine has.
type gate struct{}

func (gate) Put(_ context.Context, resource string, object types.NamespacedName, subresource string, _ any) error {
	if subresource != "removevolume" || resource == "virtualmachineinstances" {
		return apierrors.NewBadRequest("not of a VMI that is owned by a VM")
	}
	return apierrors.NewConflict(virtv1.Resource("virtualmachine"), object.Name, errors.New("there is no such volume"))
}

func (w *world) process() *process {
	p := &process{world: w}
	c := p.Client(w.guarded())
	rt := runtime.NewClient(&kubevirt.Runtime{Client: c, Live: c, Subresources: gate{}})
	now, recorder := func() time.Time { return w.now }, events.NewFakeRecorder(0)
	recorder.Events = nil // nobody reads them
	p.disks = &disk.Reconciler{
		Client: c, Live: c, Events: recorder, Now: now,
		Runtimes: func(context.Context, *v1alpha1.VirtualDisk) (*runtime.Client, error) { return rt, nil },
	}
	driver := &drive.Driver{
		Client: c, Live: c, Locks: &claim.Locks{}, Now: now,
		Runtimes: func(context.Context, *v1alpha1.VirtualMachine) (*runtime.Client, error) { return rt, nil },
	}
	p.vms, p.ops = &virtualmachine.Reconciler{Events: recorder, Driver: driver}, &operation.Reconciler{Events: recorder, Driver: driver}
	return p
}

// lookAtDisk and lookAtMachine have the process look at something, and be replaced by another if it dies of it.
func (p *process) lookAtDisk(name string) {
	_, _ = p.disks.Reconcile(p.ctx, ctrl.Request{NamespacedName: key(name)})
	p.Begin()
}

func (p *process) lookAtMachine(name string) {
	_, _ = p.ops.Reconcile(p.ctx, ctrl.Request{NamespacedName: key(name)})
	_, _ = p.vms.Reconcile(p.ctx, ctrl.Request{NamespacedName: key(name)})
	p.Begin()
}

// round has the process look at everything, and KubeVirt go on.
func (p *process) round() {
	for _, d := range p.world.disks() {
		p.lookAtDisk(d.Name)
	}
	for _, vm := range p.machines() {
		p.lookAtMachine(vm.Name)
	}
	p.virtController()
	p.now = p.now.Add(time.Minute)
}
