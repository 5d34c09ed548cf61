package claims

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	snapshotclientv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"pgregory.net/rapid"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/reconcilers/disk"
	"sallyport.dev/sallyport/reconcilers/drive"
	"sallyport.dev/sallyport/reconcilers/operation"
	"sallyport.dev/sallyport/reconcilers/pool"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/virtualmachine"
	"sallyport.dev/sallyport/test/support/double/apiserver"
	"sallyport.dev/sallyport/test/support/mortal"
)

// world is an API server, by which users write, and what is known of the writes of Sallyport.
type world struct {
	*rapid.T
	client.WithWatch
	ctx       context.Context
	namespace string
	class     string // the StorageClass of claims
	now       time.Time
	names     int      // how many objects were numbered
	broken    []string // the promises that were broken
}

// platform is what machines run on, and the users of it beside Sallyport.
type platform interface {
	// guard holds each write of Sallyport against what was promised.
	guard() interceptor.Funcs
	runtime(client.Client) runtime.Runtime
	// machine returns what a VirtualMachine is to be, and template that of a pool's.
	machine() v1alpha1.VirtualMachineRuntime
	template() v1alpha1.VirtualMachineRuntime
	disk() v1alpha1.VirtualDiskRuntime
	// users are what users do, beside what they do to VirtualMachines and VirtualDisks.
	users() map[string]func()
	// goesOn carries out what was asked for, and ends ends what users have begun.
	goesOn()
	ends()
	// versions is something that changes whenever a machine does.
	versions() string
	// differs returns how a machine differs from what is wanted, or "".
	differs(*v1alpha1.VirtualMachine) string
}

// inMemory returns a world whose API server is the fake client of controller-runtime.
func inMemory(t *rapid.T, ctx context.Context) *world {
	scheme := newScheme()
	tracker := clienttesting.NewObjectTracker(scheme, serializer.NewCodecFactory(scheme).UniversalDecoder()) // the default one cannot track fields of KubeVirt
	api := apiserver.New(fakeclient.NewClientBuilder().WithScheme(scheme).WithObjectTracker(tracker).
		WithStatusSubresource(&v1alpha1.VirtualMachine{}, &v1alpha1.VirtualDisk{}, &v1alpha1.VirtualMachinePool{}, &v1alpha1.VirtualMachineOperation{},
			&virtv1.VirtualMachine{}, &corev1.Pod{}).
		WithIndex(&v1alpha1.VirtualDisk{}, v1alpha1.FieldDiskHolder, func(o client.Object) []string { return holder(o.(*v1alpha1.VirtualDisk)) }).
		WithIndex(&v1alpha1.VirtualMachineOperation{}, fieldMachine, func(o client.Object) []string {
			return []string{o.(*v1alpha1.VirtualMachineOperation).Spec.VirtualMachineName}
		}).Build())
	w := &world{T: t, WithWatch: api, ctx: ctx, namespace: "team", now: time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)}
	w.begin()
	return w
}

const fieldMachine = "spec.virtualMachineName"

func holder(d *v1alpha1.VirtualDisk) []string {
	if by := d.Status.AttachedTo; by != nil {
		return []string{by.Name}
	}
	return nil
}

func newScheme() *kruntime.Scheme {
	scheme := kruntime.NewScheme()
	for _, add := range []func(*kruntime.Scheme) error{
		v1alpha1.AddToScheme, corev1.AddToScheme, virtv1.AddToScheme, snapshotv1.AddToScheme, snapshotclientv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			panic(err) // the types of this repository
		}
	}
	return scheme
}

// begin makes the claims that there are before anything else.
func (w *world) begin() {
	for _, name := range []string{"root", "data-0", "spare"} {
		w.claim(name)
	}
}

func (w *world) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: w.namespace, Name: name}
}

func (w *world) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: w.namespace, Name: name}
}

// numbered returns a name that nothing has yet.
func (w *world) numbered(of string) string {
	w.names++
	return fmt.Sprintf("%s-%d", of, w.names)
}

// claim makes a claim of a user.
func (w *world) claim(name string) {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: w.meta(name)}
	c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	if w.class != "" {
		c.Spec.StorageClassName = &w.class
	}
	w.must(w.Create(w.ctx, c))
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatalf("%s", err)
	}
}

func (w *world) breaks(format string, args ...any) {
	w.broken = append(w.broken, fmt.Sprintf(format, args...))
}

func list[L any, P interface {
	*L
	client.ObjectList
}](w *world) *L {
	var all L
	w.must(w.List(w.ctx, P(&all), client.InNamespace(w.namespace)))
	return &all
}

func (w *world) machines() []v1alpha1.VirtualMachine {
	return list[v1alpha1.VirtualMachineList](w).Items
}
func (w *world) disks() []v1alpha1.VirtualDisk { return list[v1alpha1.VirtualDiskList](w).Items }
func (w *world) pools() []v1alpha1.VirtualMachinePool {
	return list[v1alpha1.VirtualMachinePoolList](w).Items
}
func (w *world) operations() []v1alpha1.VirtualMachineOperation {
	return list[v1alpha1.VirtualMachineOperationList](w).Items
}
func (w *world) claims() []corev1.PersistentVolumeClaim {
	return list[corev1.PersistentVolumeClaimList](w).Items
}

func (w *world) draw(of []string, label string) string { return rapid.SampledFrom(of).Draw(w.T, label) }
func (w *world) flip(label string) bool                { return rapid.Bool().Draw(w.T, label) }

// one returns one of some objects, or nil if there are none.
func one[O any](w *world, of []O, label string) *O {
	if len(of) == 0 {
		return nil
	}
	return &of[rapid.IntRange(0, len(of)-1).Draw(w.T, label)]
}

func (w *world) anyClaim() string {
	if c := one(w, w.claims(), "claim"); c != nil {
		return c.Name
	}
	return "root"
}

// collectGarbage deletes members and disks whose pool is gone, and claims whose owner is.
func (w *world) collectGarbage(owners ...client.Object) {
	there := map[types.UID]bool{}
	for _, o := range w.pools() {
		there[o.UID] = true
	}
	for _, o := range owners {
		there[o.GetUID()] = true
	}
	var all []client.Object
	for _, o := range w.machines() {
		all = append(all, &o)
	}
	for _, o := range w.disks() {
		all = append(all, &o)
	}
	for _, o := range w.claims() {
		all = append(all, &o)
	}
	for _, o := range all {
		gone := func(by metav1.OwnerReference) bool { return !there[by.UID] }
		if o.GetDeletionTimestamp().IsZero() && slices.ContainsFunc(o.GetOwnerReferences(), gone) {
			w.must(w.Delete(w.ctx, o))
		}
	}
}

// process is a manager.
type process struct {
	mortal.Process
	*world
	platform platform
	disks    *disk.Reconciler
	vms      *virtualmachine.Reconciler
	ops      *operation.Reconciler
	pools    *pool.Reconciler
}

func newProcess(w *world, on platform) *process {
	p := &process{world: w, platform: on}
	c := p.Client(interceptor.NewClient(w.WithWatch, on.guard()))
	rt := runtime.NewClient(on.runtime(c))
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
	p.pools = &pool.Reconciler{Client: c, Live: c, Events: recorder, Now: now}
	return p
}

// lookAtDisk, lookAtMachine and lookAtPool have the process look at something, and be replaced by another if it dies of it.
func (p *process) lookAtDisk(name string) {
	_, _ = p.disks.Reconcile(p.ctx, ctrl.Request{NamespacedName: p.key(name)})
	p.Begin()
}

func (p *process) lookAtMachine(name string) {
	_, _ = p.ops.Reconcile(p.ctx, ctrl.Request{NamespacedName: p.key(name)})
	_, _ = p.vms.Reconcile(p.ctx, ctrl.Request{NamespacedName: p.key(name)})
	p.Begin()
}

func (p *process) lookAtPool(name string) {
	_, _ = p.pools.Reconcile(p.ctx, ctrl.Request{NamespacedName: p.key(name)})
	p.Begin()
}

// round has the process look at everything, and everything else go on.
func (p *process) round() {
	for _, o := range p.world.pools() {
		p.lookAtPool(o.Name)
	}
	for _, d := range p.world.disks() {
		p.lookAtDisk(d.Name)
	}
	names := map[string]bool{} // an operation may be left of a machine that was lost
	for _, o := range p.machines() {
		names[o.Name] = true
	}
	for _, o := range p.operations() {
		names[o.Spec.VirtualMachineName] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		p.lookAtMachine(name)
	}
	p.platform.goesOn()
	p.now = p.now.Add(time.Minute)
}
