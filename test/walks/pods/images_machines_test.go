//go:build !race

package pods

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/agent"
	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/nodeagent"
	"sallyport.dev/sallyport/test/support/step"
)

// booting is a machine that is a Pod and boots from an image.
func booting(name string, of v1alpha1.MachineDiskImage) *v1alpha1.VirtualMachine {
	return &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1alpha1.VirtualMachineSpec{
		DiskImage: &of, Runtime: v1alpha1.VirtualMachineRuntime{Pod: &v1alpha1.PodRuntime{}},
	}}
}

// showsMachine waits until the machine has a phase and its condition ImageReady a reason.
func (s *imageSite) showsMachine(vm *v1alpha1.VirtualMachine, phase v1alpha1.VirtualMachinePhase, reason v1alpha1.ConditionReason) {
	s.Helper()
	s.Until(fmt.Sprintf("VirtualMachine %s is %s, %s", vm.Name, phase, reason), func() (string, bool) {
		s.read(vm)
		image := v1alpha1.ConditionImageReady.In(vm.Status.Conditions)
		return fmt.Sprintf("%+v", vm.Status), image != nil && vm.Status.Phase == phase && image.Reason == string(reason)
	})
}

// gone waits until the object is gone, and removes the finalizers that the controller manager would.
func (s *imageSite) gone(o client.Object) {
	s.Helper()
	s.Eventually(fmt.Sprintf("%T %s is gone", o, o.GetName()), func() bool {
		if !s.read(o) {
			return true
		}
		if _, claim := o.(*corev1.PersistentVolumeClaim); claim && !o.GetDeletionTimestamp().IsZero() {
			s.Must(client.IgnoreNotFound(s.Patch(s.Context(), o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))))
		}
		return false
	})
}

// machines has a machine wait for its image, get its disk from it, and go.
func (s *imageSite) machines(step.T) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.Context()))
	nodes := nodeagent.New(client.NewNamespacedClient(s.Client, namespace), "node-1")
	s.Must(nodes.Join(s.Context()))
	var running sync.WaitGroup
	running.Go(func() { nodes.Run(ctx, func(err error) { s.Log(err) }) })
	defer running.Wait()
	defer cancel()

	alpine := v1alpha1.MachineDiskImage{Ref: v1alpha1.VMDiskImageReference{Name: "alpine"}}
	refused := func(text string, change func(*v1alpha1.VirtualMachine)) {
		s.Helper()
		vm := booting("refused", alpine)
		change(vm)
		if err := s.Create(s.Context(), vm, client.DryRunAll); err == nil || !strings.Contains(err.Error(), text) {
			s.Errorf("not %q: %v", text, err)
		}
	}
	refused("[images-references/ImageMissing]", func(*v1alpha1.VirtualMachine) {})
	refused("[images-references/ImageNotAllowed]", func(vm *v1alpha1.VirtualMachine) { vm.Spec.DiskImage.Ref.Namespace = "default" })
	refused("spec.diskImage.template is required", func(vm *v1alpha1.VirtualMachine) { vm.Spec.DiskImage.Mode = v1alpha1.CreateIfNotExist })
	refused("name a VirtualDisk with spec.source.image", func(vm *v1alpha1.VirtualMachine) {
		vm.Spec.BlockDeviceRefs = []v1alpha1.BlockDeviceRef{{Kind: v1alpha1.BlockDeviceVMDiskImage, Name: "ubuntu"}}
	})
	refused("see VSphereTemplate", func(vm *v1alpha1.VirtualMachine) {
		vm.Spec.Runtime = v1alpha1.VirtualMachineRuntime{VSphere: &v1alpha1.VSphereRuntime{InventoryPath: "/dc/vm/a"}}
	})

	alpine.Mode = v1alpha1.CreateIfNotExist
	alpine.Template = &v1alpha1.VMDiskImageTemplate{
		URL: "https://images.example.org/alpine.qcow2", Checksum: checksum, DiskSize: resource.MustParse("2Gi"), StorageClass: "fast",
	}
	vm := booting("web", alpine)
	s.Must(s.Create(s.Context(), vm))
	s.showsMachine(vm, v1alpha1.VirtualMachineWaitingForImage, v1alpha1.ReasonImageImporting)
	s.exports(`sallyport_machines_waiting_for_image_since_timestamp_seconds{reason="ImageImporting"}`)
	image := image(alpine.Ref.Name)
	s.read(image)
	volume := s.volume(image)
	s.play(volume)
	snapshot := &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: volume.Name}}
	s.Eventually("there is a snapshot", func() bool { return s.read(snapshot) })
	snapshot.Status = &snapshotv1.VolumeSnapshotStatus{ReadyToUse: new(true), RestoreSize: new(resource.MustParse("2Gi"))}
	s.Must(s.Status().Update(s.Context(), snapshot))
	s.showsMachine(vm, v1alpha1.VirtualMachineRunning, v1alpha1.ReasonImageCopied)

	disk := &v1alpha1.VirtualDisk{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web-boot"}}
	s.read(disk)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: disk.Status.DiskID}}
	if !s.read(claim) || disk.Status.Image == nil || !disk.Status.Image.Is(image) || !metav1.IsControlledBy(disk, vm) {
		s.Errorf("the disk is %+v", disk)
	}
	if from := claim.Spec.DataSource; from == nil || from.Kind != "VolumeSnapshot" || from.Name != snapshot.Name {
		s.Errorf("the claim is made from %+v", from)
	}
	var pods corev1.PodList
	s.Must(s.List(s.Context(), &pods, client.InNamespace(namespace), client.MatchingLabels{agent.LabelMachine: string(vm.UID)}))
	if len(pods.Items) != 1 || !slices.ContainsFunc(pods.Items[0].Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim.Name
	}) {
		s.Errorf("the Pods are %+v", pods.Items)
	}

	if !testing.Short() {
		vm, disk = s.restored(vm, disk, claim)
	}
	s.Must(s.Delete(s.Context(), vm))
	s.gone(vm)
	if testing.Short() {
		s.Must(s.Delete(s.Context(), disk)) // as the garbage collector does
	}
	s.gone(claim)
	s.gone(disk)
	s.kubectl("delete", "vmdi", image.Name, "-n", namespace, "--timeout=2m")
	if !testing.Short() {
		s.abroad()
		s.together()
	}
}

// saved is an object as a backup has it, with the owners that it had.
func saved[O client.Object](o O) O {
	again := o.DeepCopyObject().(O)
	again.SetUID("")
	again.SetResourceVersion("")
	again.SetFinalizers(nil)
	return again
}

// restored loses a machine and the disk that it boots from, but not the claim, and restores both with the owners that they had. The garbage
// collector deletes the restored disk, and the data stays.
func (s *imageSite) restored(vm *v1alpha1.VirtualMachine, disk *v1alpha1.VirtualDisk, claim *corev1.PersistentVolumeClaim) (
	*v1alpha1.VirtualMachine, *v1alpha1.VirtualDisk,
) {
	s.Helper()
	s.read(vm)
	s.read(disk)
	before, lost, pods := saved(vm), saved(disk), client.MatchingLabels{agent.LabelMachine: string(vm.UID)}
	s.kubectl("annotate", "svm", vm.Name, "-n", namespace, v1alpha1.AnnotationAbandonInstance+"="+string(vm.UID))
	s.kubectl("delete", "svm", vm.Name, "-n", namespace, "--cascade=orphan", "--timeout=2m")
	s.kubectl("delete", "svd", disk.Name, "-n", namespace, "--wait=false")
	s.kubectl("patch", "svd", disk.Name, "-n", namespace, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	s.gone(disk)
	s.Must(s.DeleteAllOf(s.Context(), &corev1.Pod{}, client.InNamespace(namespace), pods, client.GracePeriodSeconds(0)))

	keeps := func() {
		s.Helper()
		if !s.read(claim) || !claim.DeletionTimestamp.IsZero() {
			s.Fatalf("the data is gone: %+v", claim)
		}
	}
	// Whether the data is taken over first or the garbage collector comes first: the disk has no owner then, or no data.
	early := saved(lost)
	s.Must(s.Create(s.Context(), early))
	take := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationTakeOver, early.UID)
	s.Must(client.IgnoreNotFound(s.Patch(s.Context(), early, client.RawPatch(types.MergePatchType, take))))
	s.Eventually("the disk is gone or has no owner", func() bool { return !s.read(early) || len(early.OwnerReferences) == 0 })
	keeps()

	vm = before
	vm.Status = v1alpha1.VirtualMachineStatus{}
	s.Must(s.Create(s.Context(), vm))
	disk = &v1alpha1.VirtualDisk{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: disk.Name}}
	s.Eventually("the machine has its disk", func() bool { return s.read(disk) && metav1.IsControlledBy(disk, vm) })
	take = fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationTakeOver, disk.UID)
	s.Must(s.Patch(s.Context(), disk, client.RawPatch(types.MergePatchType, take)))
	s.showsMachine(vm, v1alpha1.VirtualMachineRunning, v1alpha1.ReasonImageCopied)
	keeps()
	if s.read(disk); disk.Status.DiskID != claim.Name {
		s.Errorf("the disk is %+v", disk)
	}
	return vm, disk
}
