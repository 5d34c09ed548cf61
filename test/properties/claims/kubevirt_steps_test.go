package claims

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"pgregory.net/rapid"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime/kubevirt"
	"sallyport.dev/sallyport/reconcilers/runtime/volumes"
)

var (
	foreignNames = []string{"f-0", "f-1"}
	cloneNames   = []string{"c-0", "m-0"}
	// Sallyport gives no volume such a name.
	foreignVolumes = []string{"root", "disk-0"}
)

func (k *kubeVirt) users() map[string]func() {
	return map[string]func(){
		"foreign": k.foreign, "virtctl": k.virtctl, "restore": k.restore, "restore again": k.restore, "snapshot": k.snapshot, "clone": k.clone,
		"strip": k.strip,
	}
}

func (k *kubeVirt) disk() v1alpha1.VirtualDiskRuntime {
	return v1alpha1.VirtualDiskRuntime{KubeVirt: &v1alpha1.VolumeDisk{StorageClassName: k.class}}
}

// machine returns one that creates a machine of KubeVirt, or adopts one.
func (k *kubeVirt) machine() v1alpha1.VirtualMachineRuntime {
	if k.flip("creates") {
		return k.template()
	}
	return v1alpha1.VirtualMachineRuntime{KubeVirt: &v1alpha1.KubeVirtRuntime{Name: k.draw(append(foreignNames, cloneNames...), "adopts")}}
}

// template returns one that creates a machine of KubeVirt. What it names may be used by others: policies deny that, and may be off.
func (k *kubeVirt) template() v1alpha1.VirtualMachineRuntime {
	of := &v1alpha1.KubeVirtMachine{}
	switch {
	case k.flip("has a container disk"):
		of.Disks = []v1alpha1.KubeVirtDisk{{Name: "system", ContainerDisk: "registry.test/debian:12"}}
	case k.flip("has a claim of its own"):
		of.Disks = []v1alpha1.KubeVirtDisk{{Name: k.anyVolume(), PersistentVolumeClaim: k.anyClaim()}}
	}
	return v1alpha1.VirtualMachineRuntime{KubeVirt: &v1alpha1.KubeVirtRuntime{Create: of}}
}

// ends ends restores and snapshots.
func (k *kubeVirt) ends() {
	for _, vm := range k.vms() {
		if vm.Status.RestoreInProgress != nil {
			k.endRestore(&vm)
		}
		if vm.Status.SnapshotInProgress != nil {
			vm.Status.SnapshotInProgress = nil
			k.must(k.Status().Update(k.ctx, &vm))
		}
	}
}

// snapshot begins a snapshot of a machine, or ends it.
func (k *kubeVirt) snapshot() {
	vm := k.anyVM()
	if vm == nil || vm.Status.RestoreInProgress != nil {
		return
	}
	if vm.Status.SnapshotInProgress == nil {
		vm.Status.SnapshotInProgress = new("nightly")
	} else {
		vm.Status.SnapshotInProgress = nil
	}
	k.must(k.Status().Update(k.ctx, vm))
}

// anyVM returns a KubeVirt VirtualMachine that is there, or nil.
func (k *kubeVirt) anyVM() *virtv1.VirtualMachine { return one(k.world, k.vms(), "KubeVirt VM") }

// anyVolume is the name of a volume, which may look like one of ours.
func (k *kubeVirt) anyVolume() string {
	names := slices.Clone(foreignVolumes)
	for _, d := range k.disks() {
		names = append(names, volumes.VolumeOf(d.UID))
	}
	return k.draw(names, "volume")
}

// foreign makes a machine of KubeVirt that is a user's.
func (k *kubeVirt) foreign() {
	name := k.draw(foreignNames, "name")
	if k.vm(name) != nil {
		return
	}
	vm := &virtv1.VirtualMachine{ObjectMeta: k.meta(name)}
	strategy := rapid.SampledFrom([]virtv1.VirtualMachineRunStrategy{virtv1.RunStrategyAlways, virtv1.RunStrategyHalted, virtv1.RunStrategyManual}).Draw(k.T, "strategy")
	vm.Spec.RunStrategy, vm.Spec.Template = &strategy, &virtv1.VirtualMachineInstanceTemplateSpec{}
	v, d := newVolume(k.anyVolume(), k.anyClaim(), k.flip("shared"))
	if k.knowsDataVolumes() && k.flip("names a DataVolume") {
		v.VolumeSource = virtv1.VolumeSource{DataVolume: &virtv1.DataVolumeSource{Name: *claimOf(&v)}}
	}
	spec := &vm.Spec.Template.Spec
	spec.TerminationGracePeriodSeconds = new(int64(0))
	spec.Domain.Memory = &virtv1.Memory{Guest: new(resource.MustParse("64Mi"))}
	spec.Volumes, spec.Domain.Devices.Disks = []virtv1.Volume{v}, []virtv1.Disk{d}
	if k.flip("has a container disk") {
		image := virtv1.VolumeSource{ContainerDisk: &virtv1.ContainerDiskSource{Image: "registry.test/debian:12"}}
		spec.Volumes = append(spec.Volumes, virtv1.Volume{Name: "system", VolumeSource: image})
		spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, virtv1.Disk{Name: "system", DiskDevice: virtv1.DiskDevice{Disk: &virtv1.DiskTarget{}}})
	}
	k.must(k.Create(k.ctx, vm))
}

// ours reports whether a VirtualMachine has the machine of KubeVirt, or may have it in a moment.
func (k *kubeVirt) ours(vm *virtv1.VirtualMachine) bool {
	for _, o := range k.machines() {
		if string(o.UID) == vm.Labels[kubevirt.LabelMachine] && (o.Status.InstanceID == "" || o.Status.InstanceID == vm.Name) {
			return true
		}
	}
	return false
}

// virtctl starts or stops a machine of a user, or deletes it.
func (k *kubeVirt) virtctl() {
	vm := k.anyVM()
	if vm == nil || k.ours(vm) || busy(vm) != "" { // virt-api denies it then
		return
	}
	verb := k.draw([]string{"start", "stop", "delete"}, "virtctl")
	strategy, _ := vm.RunStrategy()
	vmi := k.instance(vm.Name)
	switch {
	case verb == "delete":
		k.must(k.Delete(k.ctx, vm))
	case strategy != virtv1.RunStrategyManual:
		vm.Spec.RunStrategy = new(map[string]virtv1.VirtualMachineRunStrategy{"start": virtv1.RunStrategyAlways, "stop": virtv1.RunStrategyHalted}[verb])
		k.must(k.Update(k.ctx, vm))
	case verb == "start" && vmi == nil:
		vm.Status.StateChangeRequests = []virtv1.VirtualMachineStateChangeRequest{{Action: virtv1.StartRequest}}
		k.must(k.Status().Update(k.ctx, vm))
	case verb == "stop" && vmi != nil:
		vm.Status.StateChangeRequests = []virtv1.VirtualMachineStateChangeRequest{{Action: virtv1.StopRequest, UID: &vmi.UID}}
		k.must(k.Status().Update(k.ctx, vm))
	}
}

// restore begins KubeVirt's restore of a machine that is off, or ends it: each volume gets a new claim, or its claim gets the machine for owner.
func (k *kubeVirt) restore() {
	vm := k.anyVM()
	switch {
	case vm == nil || k.instance(vm.Name) != nil || starts(vm) || vm.Status.SnapshotInProgress != nil:
		return
	case vm.Status.RestoreInProgress == nil:
		vm.Status.RestoreInProgress = new("restore")
		if k.must(k.Status().Update(k.ctx, vm)); k.flip("takes a while") {
			return
		}
	}
	k.endRestore(vm)
}

func (k *kubeVirt) endRestore(vm *virtv1.VirtualMachine) {
	of := &snapshotv1.VirtualMachineRestore{ObjectMeta: k.meta(k.numbered("restore")), Status: &snapshotv1.VirtualMachineRestoreStatus{Complete: new(true)}}
	of.Spec.Target = corev1.TypedLocalObjectReference{Kind: "VirtualMachine", Name: vm.Name}
	inPlace := k.flip("in place")
	for _, v := range vm.Spec.Template.Spec.Volumes {
		claim := claimOf(&v)
		if claim == nil {
			continue
		}
		if c := (&corev1.PersistentVolumeClaim{}); inPlace && k.Get(k.ctx, k.key(*claim), c) == nil {
			c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachine", Name: vm.Name, UID: vm.UID}}
			k.must(k.Update(k.ctx, c))
		} else if !inPlace {
			*claim = of.Name + "-" + v.Name
			k.claim(*claim)
		}
		of.Status.Restores = append(of.Status.Restores, snapshotv1.VolumeRestore{VolumeName: v.Name, PersistentVolumeClaimName: *claim})
	}
	k.must(k.Update(k.ctx, vm))
	vm.Status.RestoreInProgress = nil
	k.must(k.Status().Update(k.ctx, vm))
	k.must(k.Create(k.ctx, of))
}

// clone copies a machine of KubeVirt with its labels and annotations, or without them, on its claims or on new ones.
func (k *kubeVirt) clone() {
	vm, name := k.anyVM(), k.draw(cloneNames, "clone")
	if vm == nil || k.vm(name) != nil {
		return
	}
	c := &virtv1.VirtualMachine{ObjectMeta: k.meta(name), Spec: *vm.Spec.DeepCopy()}
	if k.flip("with labels") {
		c.Labels, c.Annotations = vm.Labels, vm.Annotations
	}
	if k.flip("with new claims") {
		name := k.numbered("clone")
		for _, v := range c.Spec.Template.Spec.Volumes {
			if claim := claimOf(&v); claim != nil {
				*claim = name + "-" + v.Name
				k.claim(*claim)
			}
		}
	}
	c.Spec.Running, c.Spec.RunStrategy = nil, new(virtv1.RunStrategyHalted)
	k.must(k.Create(k.ctx, c))
}

// strip removes the labels or the annotations of a machine of KubeVirt.
func (k *kubeVirt) strip() {
	vm := k.anyVM()
	if vm == nil {
		return
	}
	ours := func(k, _ string) bool { return strings.HasPrefix(k, "sallyport.dev/") }
	if k.flip("labels") {
		maps.DeleteFunc(vm.Labels, ours)
	} else {
		maps.DeleteFunc(vm.Annotations, ours)
	}
	k.must(k.Update(k.ctx, vm))
}
