//go:build !race

package images

import (
	"context"
	"errors"
	"flag"
	"fmt"
	goruntime "runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/event"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/charts"
	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/reconcilers/disk"
	"sallyport.dev/sallyport/reconcilers/diskimage"
	"sallyport.dev/sallyport/reconcilers/drive"
	"sallyport.dev/sallyport/reconcilers/operation"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/virtualmachine"
	"sallyport.dev/sallyport/test/support/definitions"
	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/test/support/step"
)

var (
	manyMachines = flag.Int("machines", 200, "number of VirtualMachines in TestScale, whose figures are compared with those of 100")
	manyImages   = flag.Int("images", 10, "number of VMDiskImages in TestScale, which are compared with 5")
)

// namespace has everything.
const namespace = "farm"

// samples is how many times each cost is measured.
const samples = 4

// How many requests and writes more a sample may have, because of reconciles that happened to be repeated, or that saw a state between two
// writes of others.
const spare, spareWrites = 6, 2

// fleet is an API server with machines that boot from images, all in one namespace and at rest. The reconcilers run in this process, with a
// runtime that costs nothing.
type fleet struct {
	step.T
	client.Client
	scheme  *kruntime.Scheme
	config  *rest.Config
	runtime *standing
	traffic *traffic

	images   []*v1alpha1.VMDiskImage
	machines []*v1alpha1.VirtualMachine
}

// costs are what is measured at one size.
type costs struct {
	takeover sum           // a manager that starts, and finds all at rest
	heap     int           // bytes that the manager takes
	image    sum           // a reconcile of an image, the least of the samples
	deletion sum           // a deletion of a machine with its disk, the least of the samples
	imageCPU time.Duration // of a reconcile
	vmCPU    time.Duration // of a deletion
}

// What does not grow with the number of machines and images: the requests and writes of a deletion of a machine and of a reconcile of an
// image. A manager that starts reads each object once and writes nothing. To measure a large fleet:
//
//	make test-scale
func TestScale(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	ctrl.SetLogger(klog.NewKlogr())
	f := newFleet(t)
	few := f.measure(100, 5)
	many := f.measure(*manyMachines, *manyImages)
	for _, c := range []struct {
		what      string
		few, many sum
	}{{"a deletion of a machine", few.deletion, many.deletion}, {"a reconcile of an image", few.image, many.image}} {
		if c.many.requests > c.few.requests+spare || c.many.writes > c.few.writes+spareWrites {
			t.Errorf("%s takes %d requests with %d writes, but %d with %d beside few others:\n%s\n%s",
				c.what, c.many.requests, c.many.writes, c.few.requests, c.few.writes, c.many.by, c.few.by)
		}
		if c.many.bytes > 2*c.few.bytes {
			t.Errorf("%s reads %d bytes, but %d beside few others", c.what, c.many.bytes, c.few.bytes)
		}
	}
	ratio := func(a, b time.Duration) float64 { return float64(a) / float64(b) }
	t.Logf("%d machines, %d images, against 100 and 5: CPU time of the process for a deletion %.2f times (%v), for a reconcile of an image %.2f times (%v)",
		*manyMachines, *manyImages, ratio(many.vmCPU, few.vmCPU), many.vmCPU, ratio(many.imageCPU, few.imageCPU), many.imageCPU)
	t.Logf("heap of the caches: %.1f KiB for each machine with its disk and its share of an image", float64(many.heap-few.heap)/1024/float64(*manyMachines-100))
}

func newFleet(t *testing.T) *fleet {
	f := &fleet{T: step.T{T: t}, runtime: newStanding(), traffic: &traffic{}, scheme: kruntime.NewScheme()}
	f.traffic.reset()
	crds, err := charts.CRDs()
	f.Must(err)
	plane, err := env.Start(context.WithoutCancel(t.Context()), env.Options{CRDs: append(append(crds, definitions.DataVolumes(t)), definitions.Snapshots(t)...)})
	f.Must(err)
	t.Cleanup(func() { f.Must(plane.Stop()) })
	f.Must(errors.Join(clientgoscheme.AddToScheme(f.scheme), v1alpha1.AddToScheme(f.scheme), cdiv1.AddToScheme(f.scheme), snapshotv1.AddToScheme(f.scheme)))
	f.Client, err = client.New(plane.Config, client.Options{Scheme: f.scheme})
	f.Must(err)
	f.config = rest.CopyConfig(plane.Config)
	f.config.Wrap(f.traffic.wrap)
	f.Must(f.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	return f
}

// grow makes machines and images until there are so many, at rest.
func (f *fleet) grow(machines, images int) {
	f.Helper()
	f.images = append(f.images, parallel(f, len(f.images), images, f.image)...)
	f.machines = append(f.machines, parallel(f, len(f.machines), machines, f.machine)...)
}

// parallel makes objects with the numbers from one to another.
func parallel[O any](f *fleet, from, to int, create func(i int) (O, error)) []O {
	f.Helper()
	made, failed, numbers := make([]O, max(0, to-from)), make([]error, max(0, to-from)), make(chan int)
	var working sync.WaitGroup
	for range 16 {
		working.Go(func() {
			for i := range numbers {
				made[i-from], failed[i-from] = create(i)
			}
		})
	}
	for i := from; i < to; i++ {
		numbers <- i
	}
	close(numbers)
	working.Wait()
	f.Must(errors.Join(failed...))
	return made
}

// image makes an image that is ready, with its claim and its snapshot.
func (f *fleet) image(i int) (*v1alpha1.VMDiskImage, error) {
	of := &v1alpha1.VMDiskImage{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("image-%d", i), Finalizers: []string{v1alpha1.VMDiskImageFinalizer}},
		Spec:       v1alpha1.VMDiskImageSpec{URL: "https://images.example.org/ubuntu.qcow2", DiskSize: resource.MustParse("1Gi")},
	}
	if err := f.Create(f.Context(), of); err != nil {
		return nil, err
	}
	meta := metav1.ObjectMeta{
		Namespace: namespace, Name: fmt.Sprintf("vmdi-%s-1", of.UID), Annotations: map[string]string{v1alpha1.AnnotationDiskImageName: of.Name},
		Labels: map[string]string{v1alpha1.LabelDiskImage: string(of.UID), v1alpha1.LabelImportAttempt: "1"},
	}
	data := claimOf(meta)
	snapshot := &snapshotv1.VolumeSnapshot{ObjectMeta: meta, Spec: snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &meta.Name}}}
	if err := errors.Join(f.Create(f.Context(), data), f.Create(f.Context(), snapshot)); err != nil {
		return nil, err
	}
	of.Status = v1alpha1.VMDiskImageStatus{
		Phase: v1alpha1.VMDiskImageReady, Attempt: &v1alpha1.VMDiskImageAttempt{Number: 1, StartedAt: metav1.Now()}, VirtualSize: &of.Spec.DiskSize,
		Claim: &v1alpha1.VMDiskImageChild{Name: data.Name, UID: data.UID}, Snapshot: &v1alpha1.VMDiskImageChild{Name: snapshot.Name, UID: snapshot.UID},
	}
	return of, f.Status().Update(f.Context(), of)
}

func claimOf(meta metav1.ObjectMeta) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: meta, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
}

// machine makes a machine that is off, with the disk that it boots from, and the claim of that.
func (f *fleet) machine(i int) (*v1alpha1.VirtualMachine, error) {
	of := f.images[i%len(f.images)]
	vm := &v1alpha1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("vm-%d", i), Finalizers: []string{v1alpha1.VirtualMachineFinalizer}},
		Spec: v1alpha1.VirtualMachineSpec{
			RunPolicy: v1alpha1.RunPolicyManual, Runtime: v1alpha1.VirtualMachineRuntime{Pod: &v1alpha1.PodRuntime{}},
			DiskImage: &v1alpha1.MachineDiskImage{Ref: v1alpha1.VMDiskImageReference{Name: of.Name}},
		},
	}
	if err := f.Create(f.Context(), vm); err != nil {
		return nil, err
	}
	d := &v1alpha1.VirtualDisk{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: v1alpha1.ImageDiskName(vm.Name), Finalizers: []string{v1alpha1.VirtualDiskFinalizer},
			Labels:          map[string]string{v1alpha1.LabelMachineOfDisk: string(vm.UID)},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vm, v1alpha1.GroupVersion.WithKind("VirtualMachine"))},
		},
		Spec: v1alpha1.VirtualDiskSpec{
			Size: of.Spec.DiskSize, Runtime: v1alpha1.VirtualDiskRuntime{Pod: &v1alpha1.VolumeDisk{}},
			Source: &v1alpha1.VirtualDiskSource{Image: v1alpha1.VMDiskImageReference{Name: of.Name}},
		},
	}
	if err := f.Create(f.Context(), d); err != nil {
		return nil, err
	}
	if err := f.Create(f.Context(), claimOf(metav1.ObjectMeta{Namespace: namespace, Name: "svd-" + string(d.UID)})); err != nil {
		return nil, err
	}
	on := v1alpha1.AttachedDisk{Name: d.Name, UID: d.UID}
	f.runtime.add(vm.UID, on)
	vm.Status.Phase, vm.Status.InstanceID, vm.Status.Disks = v1alpha1.VirtualMachineStopped, "instance-"+string(vm.UID), []v1alpha1.AttachedDisk{on}
	d.Status = v1alpha1.VirtualDiskStatus{
		UID: d.UID, DiskID: "disk-" + string(d.UID), Image: &v1alpha1.UsedDiskImage{Namespace: of.Namespace, Name: of.Name, UID: of.UID},
		AttachedTo: &v1alpha1.DiskHolder{Name: vm.Name, UID: vm.UID, Since: metav1.NowMicro()},
	}
	return vm, errors.Join(f.Status().Update(f.Context(), vm), f.Status().Update(f.Context(), d))
}

// start starts the reconcilers, with their own caches.
func (f *fleet) start() (stop func()) {
	f.Helper()
	mgr, err := ctrl.NewManager(f.config, ctrl.Options{
		Scheme: f.scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)},
		Cache: cache.Options{DefaultTransform: cache.TransformStripManagedFields()},
	})
	f.Must(err)
	rt, silent := runtime.NewClient(f.runtime), &events.FakeRecorder{}
	driver := &drive.Driver{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Locks: &claim.Locks{}, Now: time.Now, Poll: 100 * time.Millisecond,
		Runtimes: func(context.Context, *v1alpha1.VirtualMachine) (*runtime.Client, error) { return rt, nil },
	}
	for _, r := range []interface{ SetupWithManager(ctrl.Manager) error }{
		&operation.Reconciler{Driver: driver, Events: silent},
		&virtualmachine.Reconciler{Driver: driver, Events: silent, Owned: []client.Object{&corev1.Pod{}}, Changes: make(chan event.TypedGenericEvent[runtime.Change])},
		&disk.Reconciler{
			Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: silent, Now: time.Now,
			Runtimes: func(context.Context, *v1alpha1.VirtualDisk) (*runtime.Client, error) { return rt, nil },
		},
		&diskimage.Reconciler{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: silent, Now: time.Now},
	} {
		f.Must(r.SetupWithManager(mgr))
	}
	f.traffic.reset()
	ctx, cancel := context.WithCancel(context.WithoutCancel(f.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := mgr.Start(ctx); err != nil {
			f.Error(err)
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// rests waits until so many objects were read, and no requests were made for a while.
func (f *fleet) rests(read int) sum {
	f.Helper()
	for some := 0; some < read; some += 500 {
		f.Eventually(fmt.Sprintf("%d objects were reconciled", some), func() bool { return f.traffic.sum().read >= some })
	}
	last, quiet := sum{}, time.Now()
	f.Until("the manager is at rest", func() (string, bool) {
		now := f.traffic.sum()
		if now.requests != last.requests || now.open > 0 || now.read < read {
			last, quiet = now, time.Now()
		}
		return now.by, time.Since(quiet) > 1200*time.Millisecond // longer than references are collected
	})
	return last
}

// measure measures a fleet of that size.
func (f *fleet) measure(machines, images int) (c costs) {
	f.Helper()
	f.grow(machines, images)
	f.Logf("there are %d machines and %d images", machines, images)
	f.compareLists()
	objects := 2*machines + images
	before := heap()
	stop := f.start()
	settled := f.rests(objects)
	c.heap = heap() - before
	stop()
	f.Logf("settled: %s", settled.by)

	stop = f.start()
	defer stop()
	c.takeover = f.rests(objects)
	f.Logf("a manager that starts: %s", c.takeover.by)
	if c.takeover.writes > 0 {
		f.Errorf("a manager that starts writes although nothing has changed: %s", c.takeover.by)
	}
	c.image, c.imageCPU = f.least("a reconcile of an image", f.reconcileImage)
	c.deletion, c.vmCPU = f.least("a deletion of a machine", f.deleteMachine)
	return c
}

// compareLists logs how long the API server takes to list the claims of an image by labels, and by its name besides.
func (f *fleet) compareLists() {
	f.Helper()
	of := f.images[0]
	by := []client.ListOption{client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelDiskImage: string(of.UID)}}
	list := func(options ...client.ListOption) time.Duration {
		f.Helper()
		least := time.Hour
		for range samples {
			began := time.Now()
			f.Must(f.List(f.Context(), &corev1.PersistentVolumeClaimList{}, options...))
			least = min(least, time.Since(began))
		}
		return least
	}
	labels := list(by...)
	f.Logf("listing the claims of an image takes %v by labels, %v by its name", labels,
		list(append(by, client.MatchingFields{metav1.ObjectNameField: of.Status.Claim.Name})...))
}

func heap() int {
	goruntime.GC()
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// least does something several times, and returns the least requests and processor time that it took. More are those of reconciles that
// happened to be repeated.
func (f *fleet) least(what string, do func(i int)) (least sum, cpu time.Duration) {
	f.Helper()
	for i := range samples {
		f.traffic.reset()
		before := processor()
		do(i)
		took := processor() - before
		now := f.rests(0)
		if len(now.all) > 0 {
			f.Errorf("%s lists all objects: %v", what, now.all)
		}
		if i == 0 || now.requests < least.requests {
			least = now
		}
		if i == 0 || took < cpu {
			cpu = took
		}
	}
	f.Logf("%s: %d requests, %d bytes, %v: %s", what, least.requests, least.bytes, cpu, least.by)
	return least, cpu
}

// processor is the processor time of this process.
func processor() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err) // the arguments are constant
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// reconcileImage has an image reconciled that is at rest.
func (f *fleet) reconcileImage(i int) {
	f.Helper()
	of := f.images[i%len(f.images)]
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"touched":"%d of %d"}}}`, i, len(f.images))
	f.Must(f.Patch(f.Context(), of, client.RawPatch(types.MergePatchType, patch)))
	f.Eventually("the image is reconciled", func() bool {
		now := f.traffic.sum()
		return now.requests >= 4 && now.open == 0 // the image and what it has
	})
}

// deleteMachine deletes the newest machine, and then its disk, as the garbage collector does, and waits until its image shows that.
func (f *fleet) deleteMachine(int) {
	f.Helper()
	vm := f.machines[len(f.machines)-1]
	f.machines = f.machines[:len(f.machines)-1]
	d := &v1alpha1.VirtualDisk{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.ImageDiskName(vm.Name)}}
	of := &v1alpha1.VMDiskImage{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: vm.Spec.DiskImage.Ref.Name}}
	f.Must(f.Get(f.Context(), client.ObjectKeyFromObject(of), of))
	users := of.Status.References.Count
	for _, o := range []client.Object{vm, d} {
		f.Must(f.Delete(f.Context(), o))
		f.Until(fmt.Sprintf("%s is gone", o.GetName()), func() (string, bool) {
			err := f.Get(f.Context(), client.ObjectKeyFromObject(o), o)
			f.Must(client.IgnoreNotFound(err))
			return fmt.Sprintf("%+v", o), err != nil
		})
	}
	f.Eventually("the image has one user less", func() bool {
		f.Must(f.Get(f.Context(), client.ObjectKeyFromObject(of), of))
		return of.Status.References.Count == users-1
	})
}
