package pod_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"sallyport.dev/sallyport/api/agent"
	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/pod"
	"sallyport.dev/sallyport/reconcilers/runtime/volumes"
)

func newRuntime() (*pod.Runtime, client.WithWatch) {
	api := newAPI()
	return &pod.Runtime{Client: api, Live: api}, api
}

// newAPI is an API server that has our kinds.
func newAPI() client.WithWatch {
	scheme := kruntime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		panic(err) // the types of this repository
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.VirtualDisk{}).Build()
}

// having is the machine with disks that the status of their VirtualDisks says are attached to it.
func having(m runtime.Machine, disks ...runtime.Disk) runtime.Machine {
	m.Disks = nil
	for _, d := range disks {
		if d.Holder = m.UID; d.ID == "" {
			d.ID = d.Name + "-" + string(d.UID)
		}
		m.Disks = append(m.Disks, d)
	}
	return m
}

// claimOf gives the PersistentVolumeClaim of a disk after a change, as Kubernetes or a person makes it.
func claimOf(t *testing.T, api client.Client, d runtime.Disk, change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name + "-" + string(d.UID)}}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(claim), claim); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		changed := claim.DeepCopy()
		change(changed)
		status := changed.DeepCopy()
		if err := errors.Join(api.Patch(t.Context(), changed, client.MergeFrom(claim)), api.Status().Patch(t.Context(), status, client.MergeFrom(claim))); err != nil {
			t.Fatal(err)
		}
	}
	return claim
}

// source is an image whose claim is of a class and of a mode of its own.
func source(t *testing.T, api client.Client) runtime.DiskSource {
	t.Helper()
	of := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vmdi-1"}, Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: new("imaged"), VolumeMode: new(corev1.PersistentVolumeBlock),
	}}
	if err := api.Create(t.Context(), of); err != nil {
		t.Fatal(err)
	}
	return runtime.DiskSource{Image: "uid-of-image", Snapshot: "vmdi-1", Claim: client.ObjectKeyFromObject(of)}
}

// A disk with a source is a claim from the snapshot, of the class and the mode of the image unless its spec says otherwise.
func TestDiskFromASnapshot(t *testing.T) {
	r, api := newRuntime()
	from := source(t, api)
	sourced := func(name string, of v1alpha1.VolumeDisk) runtime.Disk {
		d := disk(name)
		d.Spec.Runtime.Pod, d.Source = &of, &from
		d.Spec.Source = &v1alpha1.VirtualDiskSource{Image: v1alpha1.VMDiskImageReference{Name: "ubuntu"}}
		return d
	}
	for class, d := range map[string]runtime.Disk{
		"imaged": sourced("boot", v1alpha1.VolumeDisk{}), "fast": sourced("named", v1alpha1.VolumeDisk{StorageClassName: "fast"}),
	} {
		if _, err := r.EnsureDisk(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		claim := claimOf(t, api, d, nil)
		want := &corev1.TypedLocalObjectReference{APIGroup: new("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: "vmdi-1"}
		if diff := cmp.Diff(want, claim.Spec.DataSource); diff != "" {
			t.Errorf("the source of the claim (-want +got):\n%s", diff)
		}
		if *claim.Spec.StorageClassName != class || *claim.Spec.VolumeMode != corev1.PersistentVolumeBlock || claim.Labels[v1alpha1.LabelDiskImage] != "" {
			t.Errorf("the claim is %+v", claim)
		}
		if seen, err := r.ObserveDisk(t.Context(), d); err != nil || !seen.Exists || !seen.Copying {
			t.Errorf("before the claim is bound, the disk is seen as %+v, %v", seen, err)
		}
		claimOf(t, api, d, func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimBound })
		if seen, err := r.ObserveDisk(t.Context(), d); err != nil || seen.Copying {
			t.Errorf("after the claim is bound, the disk is seen as %+v, %v", seen, err)
		}
	}
	_, err := r.EnsureDisk(t.Context(), sourced("other-mode", v1alpha1.VolumeDisk{VolumeMode: v1alpha1.VolumeFilesystem}))
	if !runtime.IsInvalidSpec(err) || !strings.Contains(err.Error(), "spec.runtime.pod.volumeMode") {
		t.Errorf("another mode: %v", err)
	}
}

func TestDiskIsAClaim(t *testing.T) {
	r, api := newRuntime()
	d := disk("cache")
	d.Spec.Runtime.Pod = &v1alpha1.VolumeDisk{StorageClassName: "fast", VolumeMode: v1alpha1.VolumeBlock}
	id, err := r.EnsureDisk(t.Context(), d)
	claim := claimOf(t, api, d, nil)
	if err != nil || id != claim.Name {
		t.Fatalf("the disk is %q, %v", id, err)
	}
	if *claim.Spec.StorageClassName != "fast" || *claim.Spec.VolumeMode != corev1.PersistentVolumeBlock || claim.Spec.Resources.Requests.Storage().String() != "1Gi" {
		t.Errorf("the claim is %+v", claim.Spec)
	}
}

// The volume of a claim says how large the disk is, and what Kubernetes says of its growth is what people read.
func TestDiskThatGrows(t *testing.T) {
	r, api := newRuntime()
	d := disk("grown")
	if _, err := r.EnsureDisk(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	claimOf(t, api, d, func(c *corev1.PersistentVolumeClaim) {
		c.Status.Phase, c.Status.Capacity = corev1.ClaimBound, corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	})
	larger := d
	larger.Spec = d.Spec.DeepCopy()
	larger.Spec.Size = resource.MustParse("3Gi")
	if _, err := r.EnsureDisk(t.Context(), larger); err != nil {
		t.Fatal(err)
	}
	claim := claimOf(t, api, d, func(c *corev1.PersistentVolumeClaim) {
		c.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{
			Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue, Message: "waiting for a Pod",
		}}
	})
	if got := claim.Spec.Resources.Requests.Storage().String(); got != "3Gi" {
		t.Errorf("the claim requests %s", got)
	}
	seen, err := r.ObserveDisk(t.Context(), larger)
	if err != nil || seen.Bytes != 1<<30 {
		t.Errorf("the disk is seen as %+v, %v", seen, err)
	}
	if _, err := r.EnsureDisk(t.Context(), larger); !runtime.IsInvalidState(err) || !strings.Contains(err.Error(), "waiting for a Pod") {
		t.Errorf("a resize in progress: %v", err)
	}
}

// Kubernetes keeps a claim that is deleted for as long as a Pod uses it. Until then the machine is not taken off its node, and nobody
// else gets the disk.
func TestDiskWhoseClaimIsDeleted(t *testing.T) {
	r, api := newRuntime()
	d := disk("deleted")
	if _, err := r.EnsureDisk(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	claim := claimOf(t, api, d, func(c *corev1.PersistentVolumeClaim) { c.Finalizers = []string{"kubernetes.io/pvc-protection"} })
	if err := api.Delete(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	seen, err := r.ObserveDisk(t.Context(), d)
	if err != nil || !seen.InFlight {
		t.Errorf("the disk is seen as %+v, %v", seen, err)
	}
	if err := r.Attach(t.Context(), machine("vm"), d); !runtime.IsInvalidState(err) {
		t.Errorf("attaching: %v", err)
	}
}

// Deleting the Pod of a machine whose disk is being deleted would destroy the disk.
func TestNoReleaseWithoutTheDisks(t *testing.T) {
	h, m := newHarness(t), machine("moved")
	r, d := h.Runtime.(*pod.Runtime), h.Disk(t, "deleted")
	m.Spec = m.Spec.DeepCopy()
	m.Spec.BlockDeviceRefs = []v1alpha1.BlockDeviceRef{{Kind: v1alpha1.BlockDeviceVirtualDisk, Name: d.Name}}
	_, err := r.EnsureDisk(t.Context(), d)
	if err = errors.Join(err, r.Attach(t.Context(), m, d)); err != nil {
		t.Fatal(err)
	}
	m = having(m, d)
	var id string
	for ; id == ""; h.Advance(m) {
		if id, err = r.Ensure(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	seen, err := r.Observe(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	m.InstanceID = id
	m.Migration = &v1alpha1.Migration{ID: "move", Step: v1alpha1.MigrationHibernate, Instance: seen.Hibernation.ID, Disks: seen.Disks}
	if err := r.Hibernate(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	h.Advance(m)
	m.Migration.Step, m.Migration.Digest = v1alpha1.MigrationRelease, h.Registry.Digest(t, m)
	claim := claimOf(t, r.Client, d, func(c *corev1.PersistentVolumeClaim) { c.Finalizers = []string{"kubernetes.io/pvc-protection"} })
	if err := r.Client.Delete(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	if err := r.Release(t.Context(), m, false); !runtime.IsInvalidState(err) || !strings.Contains(err.Error(), "VirtualDisk deleted") {
		t.Errorf("releasing: %v", err)
	}
	again, err := r.Observe(t.Context(), m)
	if err != nil || again.Hibernation.Instance != runtime.InstanceAsleep {
		t.Errorf("the instance is %+v, %v", again.Hibernation, err)
	}
}

func TestDiskThatIsNotOurs(t *testing.T) {
	r, api := newRuntime()
	for name, change := range map[string]func(*corev1.PersistentVolumeClaim){
		"lost":    func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost },
		"foreign": func(c *corev1.PersistentVolumeClaim) { c.Labels = nil },
	} {
		d := disk(name)
		if _, err := r.EnsureDisk(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		claimOf(t, api, d, change)
		switch seen, err := r.ObserveDisk(t.Context(), d); {
		case name == "lost" && (err != nil || seen.Exists):
			t.Errorf("a claim without its volume is seen as %+v, %v", seen, err)
		case name == "foreign" && !runtime.IsOwnedByAnother(err):
			t.Errorf("a claim without the label is seen as %+v, %v", seen, err)
		}
	}
	long := disk(strings.Repeat("x", 240))
	if _, err := r.EnsureDisk(t.Context(), long); !runtime.IsInvalidSpec(err) {
		t.Errorf("a name that is too long: %v", err)
	}
}

// The volumes of the Pod are in boot order, each where its kind of volume is used.
func TestVolumesOfAPod(t *testing.T) {
	r, api := newRuntime()
	m := machine("vm")
	m.Spec = m.Spec.DeepCopy()
	var disks []runtime.Disk
	for i, name := range []string{"data", "root", "swap"} {
		d := disk(name)
		if name == "root" {
			d.Spec.Runtime.Pod.VolumeMode = v1alpha1.VolumeBlock
		}
		ref := v1alpha1.BlockDeviceRef{Kind: v1alpha1.BlockDeviceVirtualDisk, Name: name}
		if i > 0 {
			ref.BootOrder = new(int32(3 - i))
		}
		m.Spec.BlockDeviceRefs = append(m.Spec.BlockDeviceRefs, ref)
		if _, err := r.EnsureDisk(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if err := r.Attach(t.Context(), m, d); err != nil {
			t.Fatal(err)
		}
		disks = append(disks, d)
	}
	m = having(m, disks...)
	forged := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: m.Namespace, Name: "of-somebody", Labels: map[string]string{volumes.LabelDisk: "uid-data", agent.LabelMachine: string(m.UID)},
	}}
	if err := api.Create(t.Context(), forged); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Ensure(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	made := &corev1.Pod{}
	if err := api.Get(t.Context(), client.ObjectKey{Namespace: m.Namespace, Name: pod.NameOf(m)}, made); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, v := range made.Spec.Volumes {
		names = append(names, v.Name+" "+v.PersistentVolumeClaim.ClaimName)
	}
	if diff := cmp.Diff([]string{"disk-uid-swap swap-uid-swap", "disk-uid-root root-uid-root", "disk-uid-data data-uid-data"}, names); diff != "" {
		t.Errorf("the volumes (-want +got):\n%s", diff)
	}
	c := made.Spec.Containers[0]
	if diff := cmp.Diff([]corev1.VolumeDevice{{Name: "disk-uid-root", DevicePath: "/dev/disks/root"}}, c.VolumeDevices); diff != "" {
		t.Errorf("the devices (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]corev1.VolumeMount{{Name: "disk-uid-swap", MountPath: "/disks/swap"}, {Name: "disk-uid-data", MountPath: "/disks/data"}}, c.VolumeMounts); diff != "" {
		t.Errorf("the mounts (-want +got):\n%s", diff)
	}
}

// The volume of a Pod names the VirtualDisk of before a restore. The machine has the one that took its claim over: velero#2554.
func TestMachineAndDiskAreTakenOver(t *testing.T) {
	r, _ := newRuntime()
	vm, d := machine("restored"), disk("data")
	vm.Spec = vm.Spec.DeepCopy()
	vm.Spec.BlockDeviceRefs = []v1alpha1.BlockDeviceRef{{Kind: v1alpha1.BlockDeviceVirtualDisk, Name: d.Name}}
	if _, err := r.EnsureDisk(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	if err := r.Attach(t.Context(), vm, d); err != nil {
		t.Fatal(err)
	}
	vm = having(vm, d)
	if _, err := r.Ensure(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	vm.UID, vm.Earlier, d.UID, d.Earlier = "vm-2", runtime.TakeOver, "disk-2", runtime.TakeOver
	for range 2 { // the first answer was lost
		id, err := r.EnsureDisk(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		d.ID = id
	}
	vm = having(vm, d)
	if _, err := r.Ensure(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	vm.Earlier, d.Earlier = "", "" // it is known by the status of the VirtualDisk from now on
	disk, err := r.ObserveDisk(t.Context(), d)
	if err != nil || !cmp.Equal(disk.AttachedTo, []string{"vm-2"}) {
		t.Errorf("the disk is seen as %+v, %v", disk, err)
	}
	vm.InstanceID = podName(t, r, "vm-2")
	seen, err := r.Observe(t.Context(), vm)
	if want := []v1alpha1.AttachedDisk{{Name: "data", UID: "disk-2"}}; err != nil || !cmp.Equal(seen.Disks, want) {
		t.Errorf("the machine has %+v, %v", seen.Disks, err)
	}
}

// Whoever may edit claims takes over no disk of an earlier VirtualDisk by their labels, neither for a VirtualDisk nor for the Pod of a
// machine, and takes none away from the VirtualDisk that has recorded it.
func TestLabelsTakeNothingOver(t *testing.T) {
	r, api := newRuntime()
	lost := disk("data")
	id, err := r.EnsureDisk(t.Context(), lost)
	if err != nil {
		t.Fatal(err)
	}
	vm, d := machine("vm"), disk("data")
	d.UID = "disk-2"
	vm = having(vm, d)
	claimOf(t, api, lost, func(c *corev1.PersistentVolumeClaim) {
		c.Labels[volumes.LabelTakenOver], c.Labels[agent.LabelMachine] = string(d.UID), string(vm.UID)
	})
	if seen, err := r.ObserveDisk(t.Context(), d); err != nil || seen.Exists {
		t.Errorf("the disk is seen as %+v, %v", seen, err)
	}
	if _, err := r.EnsureDisk(t.Context(), d); !runtime.IsOwnedByAnother(err) {
		t.Errorf("ensuring: %v", err)
	}
	vm.Spec = vm.Spec.DeepCopy()
	vm.Spec.BlockDeviceRefs = []v1alpha1.BlockDeviceRef{{Kind: v1alpha1.BlockDeviceVirtualDisk, Name: d.Name}}
	if seen, err := r.Observe(t.Context(), vm); err != nil || len(seen.Disks) > 0 {
		t.Errorf("the machine has %+v, %v", seen.Disks, err)
	}
	if _, err := r.Ensure(t.Context(), vm); !runtime.IsInvalidState(err) {
		t.Errorf("a machine was made with the claim: %v", err)
	}
	lost.ID = id
	vm.Spec.BlockDeviceRefs = nil
	if _, err := r.Ensure(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	made := &corev1.Pod{}
	if err := api.Get(t.Context(), client.ObjectKey{Namespace: vm.Namespace, Name: pod.NameOf(vm)}, made); err != nil || len(made.Spec.Volumes) > 0 {
		t.Errorf("the Pod has a disk that the spec does not name: %+v, %v", made.Spec.Volumes, err)
	}
	if seen, err := r.ObserveDisk(t.Context(), lost); err != nil || !seen.Exists {
		t.Errorf("the disk that has the claim is seen as %+v, %v", seen, err)
	}
}

// left is a registry that has snapshots of one machine.
type left struct {
	pod.Snapshots
	uid types.UID
	err error
}

func (l left) Left(_ context.Context, m runtime.Machine) (string, error) {
	if m.UID != l.uid {
		return "", nil
	}
	return "registry.example.com/machines/ns/lost:move", l.err
}

// A restored machine does not start from the disks of one that is in a snapshot of a half-done move, unless somebody decides so.
func TestSnapshotOfAHalfDoneMove(t *testing.T) {
	r, api := newRuntime()
	lost, d := machine("vm"), disk("data")
	if _, err := r.EnsureDisk(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	if err := r.Attach(t.Context(), lost, d); err != nil { // and its Pod is gone
		t.Fatal(err)
	}
	restored := lost
	restored.UID, restored.Spec = "uid-restored", lost.Spec.DeepCopy()
	restored.Spec.BlockDeviceRefs = []v1alpha1.BlockDeviceRef{{Kind: v1alpha1.BlockDeviceVirtualDisk, Name: d.Name}}
	for range 2 {
		if err := r.Attach(t.Context(), restored, d); err != nil {
			t.Fatal(err)
		}
	}
	restored = having(restored, d)
	r.Snapshots = left{uid: lost.UID}
	restored.Earlier = runtime.TakeOver // of another hold
	_, err := r.Ensure(t.Context(), restored)
	for _, word := range []string{"VirtualDisk data", "registry.example.com/machines/ns/lost:move", "kubectl sallyport make-anew svm vm -n ns"} {
		if !runtime.IsOwnedByAnother(err) || !strings.Contains(err.Error(), word) {
			t.Errorf("got error %v, want %s", err, word)
		}
	}
	for name, c := range map[string]struct {
		earlier runtime.Earlier
		left    left
	}{
		"it is made anew":              {runtime.MakeAnew, left{uid: lost.UID}},
		"nothing is left":              {"", left{}},
		"the registry does not answer": {"", left{uid: lost.UID, err: errors.New("away")}},
	} {
		r.Snapshots, restored.Earlier = c.left, c.earlier
		if _, err := r.Ensure(t.Context(), restored); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := api.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(restored.Namespace)); err != nil {
			t.Fatal(err)
		}
	}
}

// podName is the name of the Pod of the machine with that UID.
func podName(t *testing.T, r *pod.Runtime, uid string) string {
	t.Helper()
	pods := &corev1.PodList{}
	err := r.Live.List(t.Context(), pods, client.MatchingLabels{agent.LabelMachine: uid})
	if err != nil || len(pods.Items) != 1 {
		t.Fatalf("it has %d Pods, %v", len(pods.Items), err)
	}
	return pods.Items[0].Name
}

// A label on a claim gives its disk to no machine: the status of the VirtualDisk says whose it is, and what runs with the claim is looked at.
func TestLabelsGiveNoDiskToAMachine(t *testing.T) {
	r, api := newRuntime()
	a, b, d := machine("a"), machine("b"), disk("data")
	id, err := r.EnsureDisk(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	d.ID = id
	a.Spec, b.Spec = a.Spec.DeepCopy(), b.Spec.DeepCopy()
	a.Spec.BlockDeviceRefs = []v1alpha1.BlockDeviceRef{{Kind: v1alpha1.BlockDeviceVirtualDisk, Name: d.Name}}
	b.Spec.BlockDeviceRefs = a.Spec.BlockDeviceRefs
	if err := r.Attach(t.Context(), b, d); err != nil {
		t.Fatal(err)
	}
	b = having(b, d)
	if _, err := r.Ensure(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	claimOf(t, api, d, func(c *corev1.PersistentVolumeClaim) { c.Labels[agent.LabelMachine] = string(a.UID) })
	if seen, err := r.Observe(t.Context(), a); err != nil || len(seen.Disks) > 0 {
		t.Errorf("a has %+v, %v", seen.Disks, err)
	}
	if _, err := r.Ensure(t.Context(), a); !runtime.IsInvalidState(err) {
		t.Errorf("ensuring a: %v", err)
	}
	// Not even if a status says so wrongly.
	_, err = r.Ensure(t.Context(), having(a, d))
	if runtime.Reason(err) != v1alpha1.ReasonDiskInUse || !strings.Contains(err.Error(), "Pod "+pod.NameOf(b)) {
		t.Errorf("ensuring a beside b: %v", err)
	}
	if seen, err := r.Observe(t.Context(), b); err != nil || !cmp.Equal(seen.Disks, []v1alpha1.AttachedDisk{{Name: "data", UID: d.UID}}) {
		t.Errorf("b has %+v, %v", seen.Disks, err)
	}
}
