//go:build kubevirt

package kubevirt

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/virt"
)

// TestVolumes has the shipped program leave the volumes of others alone, and keep two machines from having one claim.
func TestVolumes(t *testing.T) {
	s := newSite(t)
	s.release(nil)
	for name, test := range map[string]func(*site, string){
		"a volume that looks like a VirtualDisk, off": (*site).likeADisk,
		"a volume that looks like a VirtualDisk, on":  (*site).likeADiskOn,
		"released and adopted again":                  (*site).adoptedAgain,
		"restored by KubeVirt":                        (*site).restored,
		"restored in place":                           (*site).restoredInPlace,
		"a claim of another machine":                  (*site).oneClaim,
		"made anew beside what is there":              (*site).madeAnew,
	} {
		t.Run(name, func(t *testing.T) { in := s.in(t); test(in, in.namespace()) })
	}
}

// claims returns the claims of the volumes of a machine of KubeVirt, and of its instance.
func (s *site) claims(namespace, name string) (all []string) {
	s.Helper()
	vm := &virtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	s.Must(s.Get(s.Context(), client.ObjectKeyFromObject(vm), vm))
	volumes := map[string][]virtv1.Volume{"template": vm.Spec.Template.Spec.Volumes}
	vmi := &virtv1.VirtualMachineInstance{}
	if s.Get(s.Context(), client.ObjectKeyFromObject(vm), vmi) == nil && !vmi.IsFinal() {
		volumes["instance"] = vmi.Spec.Volumes
	}
	for _, at := range slices.Sorted(maps.Keys(volumes)) {
		for _, v := range volumes[at] {
			if v.PersistentVolumeClaim != nil {
				all = append(all, at+" "+v.Name+" "+v.PersistentVolumeClaim.ClaimName)
			}
		}
	}
	return all
}

// has waits until a machine of KubeVirt has exactly these claims, and fails if they differ in the end.
func (s *site) has(namespace, name string, want ...string) {
	s.Helper()
	s.Until(name+" has "+strings.Join(want, ", "), func() (string, bool) {
		is := s.claims(namespace, name)
		return strings.Join(is, ", "), slices.Equal(is, want)
	})
}

// claim creates a bound claim.
func (s *site) claim(namespace, name string) *corev1.PersistentVolumeClaim {
	s.Helper()
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: new(virt.StorageClass), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("8Mi")}},
		},
	}
	s.Must(s.Create(s.Context(), claim))
	s.Eventually("claim "+name+" is bound", func() bool { return s.Settled(s.Context(), client.ObjectKeyFromObject(claim), false) })
	return claim
}

func (s *site) disk(namespace, name string) *v1alpha1.VirtualDisk {
	s.Helper()
	d := &v1alpha1.VirtualDisk{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1alpha1.VirtualDiskSpec{
		Size: resource.MustParse("8Mi"), Runtime: v1alpha1.VirtualDiskRuntime{KubeVirt: &v1alpha1.VolumeDisk{StorageClassName: virt.StorageClass}},
	}}
	s.Must(s.Create(s.Context(), d))
	return d
}

// theirs creates a machine of KubeVirt with a volume of a claim.
func (s *site) theirs(namespace, name, volume, claim string, strategy virtv1.VirtualMachineRunStrategy) {
	s.Helper()
	vm := foreignVM(namespace, name)
	vm.Spec.RunStrategy = &strategy
	spec := &vm.Spec.Template.Spec
	spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, virtv1.Disk{Name: volume, DiskDevice: virtv1.DiskDevice{Disk: &virtv1.DiskTarget{Bus: "virtio"}}})
	spec.Volumes = append(spec.Volumes, virtv1.Volume{Name: volume, VolumeSource: virtv1.VolumeSource{PersistentVolumeClaim: &virtv1.PersistentVolumeClaimVolumeSource{
		PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}}})
	s.Must(s.Create(s.Context(), vm))
}

func adopts(disks ...string) *v1alpha1.VirtualMachineSpec {
	spec := &v1alpha1.VirtualMachineSpec{
		RunPolicy: v1alpha1.RunPolicyAlwaysOnUnlessStoppedManually,
		Runtime:   v1alpha1.VirtualMachineRuntime{KubeVirt: &v1alpha1.KubeVirtRuntime{}},
	}
	for _, name := range disks {
		spec.BlockDeviceRefs = append(spec.BlockDeviceRefs, v1alpha1.BlockDeviceRef{Kind: v1alpha1.BlockDeviceVirtualDisk, Name: name})
	}
	return spec
}

// boots is a machine to create that boots from a VirtualDisk.
func (s *site) boots(namespace, name, disk string) *v1alpha1.VirtualMachine {
	s.Helper()
	spec := machine(namespace, name, true).Spec
	spec.BlockDeviceRefs = []v1alpha1.BlockDeviceRef{{Kind: v1alpha1.BlockDeviceVirtualDisk, Name: disk, BootOrder: new(int32(1))}}
	vm := s.virtualMachine(namespace, name, spec)
	s.shows(vm, v1alpha1.VirtualMachineRunning)
	return vm
}

func (s *site) force(vm *v1alpha1.VirtualMachine, name string, kind v1alpha1.OperationType) {
	s.Helper()
	s.operate(vm, name, v1alpha1.VirtualMachineOperationSpec{Type: kind, Force: kind != v1alpha1.OperationStart})
}

// waits waits until condition Ready of a machine has a reason and words in its message.
func (s *site) waits(vm *v1alpha1.VirtualMachine, condition v1alpha1.ConditionType, reason v1alpha1.ConditionReason, words ...string) {
	s.Helper()
	s.Until(fmt.Sprintf("condition %s of %s has %s", condition, vm.Name, reason), func() (string, bool) {
		s.Must(s.Get(s.Context(), client.ObjectKeyFromObject(vm), vm))
		c := condition.In(vm.Status.Conditions)
		return fmt.Sprintf("%+v", vm.Status), c != nil && c.Reason == string(reason) && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(c.Message, w) })
	})
}

func (s *site) likeADisk(namespace string) {
	s.claim(namespace, "data-0")
	s.theirs(namespace, "db", "disk-0", "data-0", virtv1.RunStrategyHalted)
	vm := s.virtualMachine(namespace, "db", adopts())
	s.shows(vm, v1alpha1.VirtualMachineStopped)
	s.force(vm, "start", v1alpha1.OperationStart)
	s.has(namespace, "db", "instance disk-0 data-0", "template disk-0 data-0")
}

func (s *site) likeADiskOn(namespace string) {
	s.claim(namespace, "data-0")
	s.theirs(namespace, "db", "disk-0", "data-0", virtv1.RunStrategyAlways)
	vm := s.virtualMachine(namespace, "db", adopts())
	s.shows(vm, v1alpha1.VirtualMachineRunning)
	s.force(vm, "restart", v1alpha1.OperationRestart)
	s.shows(vm, v1alpha1.VirtualMachineRunning)
	s.has(namespace, "db", "instance disk-0 data-0", "template disk-0 data-0")
}

// adoptedAgain is a VirtualDisk in a machine that is released and adopted without naming it, and then with naming it.
func (s *site) adoptedAgain(namespace string) {
	theirs := foreignVM(namespace, "db")
	s.Must(s.Create(s.Context(), theirs))
	d := s.disk(namespace, "data")
	vm := s.virtualMachine(namespace, "db", adopts("data"))
	s.waits(vm, v1alpha1.ConditionDisksAttached, v1alpha1.ReasonDisksAttached)
	s.Must(s.Get(s.Context(), client.ObjectKeyFromObject(d), d))
	volume := "disk-" + string(d.UID) + " " + d.Status.DiskID
	for i, spec := range []*v1alpha1.VirtualMachineSpec{adopts(), adopts("data")} {
		s.Must(s.Delete(s.Context(), vm))
		s.gone(vm)
		vm = s.virtualMachine(namespace, "db", spec)
		s.shows(vm, v1alpha1.VirtualMachineStopped)
		s.force(vm, fmt.Sprintf("start-%d", i), v1alpha1.OperationStart)
		s.has(namespace, "db", "instance "+volume, "template "+volume)
		s.force(vm, fmt.Sprintf("stop-%d", i), v1alpha1.OperationStop)
		s.shows(vm, v1alpha1.VirtualMachineStopped)
	}
	if !slices.ContainsFunc(vm.Status.Disks, func(on v1alpha1.AttachedDisk) bool { return on.UID == d.UID }) {
		s.Errorf("the machine that names the disk has %+v", vm.Status.Disks)
	}
}

// restored is what the controller of a VirtualMachineRestore leaves: another claim in the volume of the disk.
func (s *site) restored(namespace string) {
	d := s.disk(namespace, "boot")
	vm := s.boots(namespace, "web", "boot")
	s.force(vm, "stop", v1alpha1.OperationStop)
	s.shows(vm, v1alpha1.VirtualMachineStopped)
	s.Must(s.Get(s.Context(), client.ObjectKeyFromObject(d), d))
	former, volume := d.Status.DiskID, "disk-"+string(d.UID)
	next := s.claim(namespace, "restore-5f1f8b4e-"+volume)
	s.Eventually("the volume is replaced", func() bool {
		theirs := &virtv1.VirtualMachine{}
		s.Must(s.Get(s.Context(), client.ObjectKeyFromObject(vm), theirs))
		for i := range theirs.Spec.Template.Spec.Volumes {
			if v := &theirs.Spec.Template.Spec.Volumes[i]; v.Name == volume {
				v.PersistentVolumeClaim.ClaimName = next.Name
			}
		}
		return s.Update(s.Context(), theirs) == nil
	})
	s.waits(vm, v1alpha1.ConditionDisksAttached, v1alpha1.ReasonRuntimeFailed, next.Name, "kubectl edit virtualmachines.kubevirt.io web")
	of := &snapshotv1.VirtualMachineRestore{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nightly"}}
	of.Spec.Target = corev1.TypedLocalObjectReference{APIGroup: new("kubevirt.io"), Kind: "VirtualMachine", Name: "web"}
	of.Spec.VirtualMachineSnapshotName = "nightly"
	s.Must(s.Unvalidated(s.Context(), "virtualmachinerestore-validator.snapshot.kubevirt.io")) // it demands snapshots
	s.Eventually("there is a restore", func() bool { return client.IgnoreAlreadyExists(s.Create(s.Context(), of)) == nil })
	s.Eventually("the restore is complete", func() bool {
		s.Must(s.Get(s.Context(), client.ObjectKeyFromObject(of), of))
		of.Status = &snapshotv1.VirtualMachineRestoreStatus{Complete: new(true), Restores: []snapshotv1.VolumeRestore{
			{VolumeName: volume, PersistentVolumeClaimName: next.Name, VolumeSnapshotName: "nightly-" + volume},
		}}
		return s.Status().Update(s.Context(), of) == nil
	})
	s.waits(vm, v1alpha1.ConditionDisksAttached, v1alpha1.ReasonDisksAttached)
	s.force(vm, "start", v1alpha1.OperationStart)
	s.has(namespace, "web", "instance "+volume+" "+next.Name, "template "+volume+" "+next.Name)
	s.Must(s.Get(s.Context(), client.ObjectKeyFromObject(d), d))
	if d.Status.DiskID != next.Name || d.Status.AttachedTo == nil {
		s.Errorf("the status of the VirtualDisk is %+v", d.Status)
	}
	s.Must(s.Get(s.Context(), client.ObjectKey{Namespace: namespace, Name: former}, &corev1.PersistentVolumeClaim{}))
}

func (s *site) restoredInPlace(namespace string) {
	d := s.disk(namespace, "data")
	vm := s.boots(namespace, "web", "data")
	s.force(vm, "stop", v1alpha1.OperationStop)
	s.shows(vm, v1alpha1.VirtualMachineStopped)
	theirs := &virtv1.VirtualMachine{}
	s.Must(s.Get(s.Context(), client.ObjectKeyFromObject(vm), theirs))
	s.Must(s.Get(s.Context(), client.ObjectKeyFromObject(d), d))
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: d.Status.DiskID}}
	s.Eventually("the machine owns the claim", func() bool {
		s.Must(s.Get(s.Context(), client.ObjectKeyFromObject(claim), claim))
		claim.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(theirs, virtv1.VirtualMachineGroupVersionKind)}
		return s.Update(s.Context(), claim) == nil
	})
	s.Must(s.Delete(s.Context(), vm))
	s.gone(vm)
	s.Must(s.Get(s.Context(), client.ObjectKeyFromObject(claim), claim))
	if len(claim.OwnerReferences) > 0 || !claim.DeletionTimestamp.IsZero() {
		s.Errorf("the claim of the disk has the owners %+v, and is being deleted since %v", claim.OwnerReferences, claim.DeletionTimestamp)
	}
}

// oneClaim is a claim that two machines name. What admission can see is denied elsewhere; these are machines that were there before.
func (s *site) oneClaim(namespace string) {
	s.claim(namespace, "root")
	s.theirs(namespace, "a", "root-disk", "root", virtv1.RunStrategyHalted)
	s.theirs(namespace, "b", "root-disk", "root", virtv1.RunStrategyHalted)
	a, b := s.virtualMachine(namespace, "a", adopts()), s.virtualMachine(namespace, "b", adopts())
	s.shows(a, v1alpha1.VirtualMachineStopped)
	s.shows(b, v1alpha1.VirtualMachineStopped)
	s.force(a, "start-a", v1alpha1.OperationStart)
	op := &v1alpha1.VirtualMachineOperation{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "start-b"},
		Spec:       v1alpha1.VirtualMachineOperationSpec{Type: v1alpha1.OperationStart, VirtualMachineName: "b"},
	}
	s.Must(s.Create(s.Context(), op))
	s.Until("the start of b names a", func() (string, bool) {
		s.Must(s.Get(s.Context(), client.ObjectKeyFromObject(op), op))
		text := fmt.Sprintf("%+v", op.Status)
		return text, strings.Contains(text, "DiskInUse") && strings.Contains(text, "VirtualMachineInstance a uses PersistentVolumeClaim root")
	})
	s.has(namespace, "b", "template root-disk root")
	s.force(a, "stop-a", v1alpha1.OperationStop)
	s.Until("b is started once a is off", func() (string, bool) {
		s.Must(s.Get(s.Context(), client.ObjectKeyFromObject(op), op))
		return fmt.Sprintf("%+v", op.Status), op.Status.Phase == v1alpha1.OperationCompleted
	})
}

// madeAnew is the command of the message to a restored machine whose former one is still on, with the same claim.
func (s *site) madeAnew(namespace string) {
	s.claim(namespace, "root")
	spec := machine(namespace, "web", true).Spec
	spec.Runtime.KubeVirt.Create.Disks = []v1alpha1.KubeVirtDisk{{Name: "root", PersistentVolumeClaim: "root"}}
	vm := s.virtualMachine(namespace, "web", spec)
	s.shows(vm, v1alpha1.VirtualMachineRunning)
	s.Eventually("the VirtualMachine is lost", func() bool {
		s.Must(client.IgnoreNotFound(s.Get(s.Context(), client.ObjectKeyFromObject(vm), vm)))
		vm.Finalizers = nil
		return s.Update(s.Context(), vm) == nil && s.Delete(s.Context(), vm) == nil
	})
	s.gone(vm)
	vm = s.virtualMachine(namespace, "web", spec)
	s.waits(vm, v1alpha1.ConditionReady, v1alpha1.ReasonOwnedByAnother, "kubectl sallyport make-anew svm web")
	s.Eventually("it is to be made anew", func() bool {
		s.Must(s.Get(s.Context(), client.ObjectKeyFromObject(vm), vm))
		metav1.SetMetaDataAnnotation(&vm.ObjectMeta, v1alpha1.AnnotationMakeAnew, string(vm.UID))
		return s.Update(s.Context(), vm) == nil
	})
	s.waits(vm, v1alpha1.ConditionReady, v1alpha1.ReasonDiskInUse, "VirtualMachineInstance web uses PersistentVolumeClaim root")
	var instances virtv1.VirtualMachineInstanceList
	s.Must(s.List(s.Context(), &instances, client.InNamespace(namespace)))
	if len(instances.Items) != 1 {
		s.Errorf("there are %d instances", len(instances.Items))
	}
}
