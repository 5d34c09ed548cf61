package claims

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// virtController has virt-controller and the garbage collector look at everything once.
func (w *world) virtController() {
	vms := w.vms()
	for _, vmi := range w.instances() {
		if !slices.ContainsFunc(vms, func(vm virtv1.VirtualMachine) bool { return metav1.IsControlledBy(&vmi, &vm) }) {
			w.must(w.Delete(w.ctx, &vmi))
		}
	}
	for i := range vms {
		w.power(&vms[i])
		w.plug(&vms[i])
	}
	for _, c := range w.claims() {
		gone := func(o metav1.OwnerReference) bool {
			return !slices.ContainsFunc(vms, func(vm virtv1.VirtualMachine) bool { return vm.UID == o.UID })
		}
		if slices.ContainsFunc(c.OwnerReferences, gone) {
			w.must(w.Delete(w.ctx, &c))
		}
	}
}

// power carries out the requests of a machine, and its run strategy.
func (w *world) power(vm *virtv1.VirtualMachine) {
	vmi := w.instance(vm.Name)
	stop := func() {
		if vmi != nil {
			w.must(w.Delete(w.ctx, vmi))
		}
		vmi = nil
	}
	start := func() {
		if vmi != nil {
			return
		}
		vmi = &virtv1.VirtualMachineInstance{ObjectMeta: meta(vm.Name), Spec: *vm.Spec.Template.Spec.DeepCopy()}
		vmi.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(vm, virtv1.VirtualMachineGroupVersionKind)}
		vmi.Status.Phase, vmi.Status.NodeName = virtv1.Running, "node"
		w.must(w.Create(w.ctx, vmi))
	}
	for _, r := range vm.Status.StateChangeRequests {
		switch {
		case r.Action == virtv1.StartRequest:
			start()
		case vmi != nil && (r.UID == nil || *r.UID == vmi.UID):
			stop()
		}
	}
	if len(vm.Status.StateChangeRequests) > 0 {
		vm.Status.StateChangeRequests = nil
		w.must(w.Status().Update(w.ctx, vm))
	}
	switch strategy, err := vm.RunStrategy(); {
	case err != nil:
		panic(err)
	case strategy == virtv1.RunStrategyAlways && vm.Status.RestoreInProgress == nil:
		start()
	case strategy == virtv1.RunStrategyHalted:
		stop()
	}
}

// plug has the instance get and lose volumes as the template says.
func (w *world) plug(vm *virtv1.VirtualMachine) {
	vmi := w.instance(vm.Name)
	if vmi == nil {
		return
	}
	spec := &vm.Spec.Template.Spec
	in := func(all []virtv1.Volume, name string) bool {
		return slices.ContainsFunc(all, func(v virtv1.Volume) bool { return v.Name == name })
	}
	was := vmi.DeepCopy()
	unplugged := func(v virtv1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.Hotpluggable && !in(spec.Volumes, v.Name)
	}
	vmi.Spec.Volumes = slices.DeleteFunc(vmi.Spec.Volumes, unplugged)
	for _, v := range spec.Volumes {
		if v.PersistentVolumeClaim.Hotpluggable && !in(vmi.Spec.Volumes, v.Name) {
			vmi.Spec.Volumes = append(vmi.Spec.Volumes, v)
		}
	}
	vmi.Spec.Domain.Devices.Disks = spec.Domain.Devices.Disks
	vmi.Status.VolumeStatus = nil
	for _, v := range vmi.Spec.Volumes {
		status := virtv1.VolumeStatus{
			Name: v.Name, Phase: virtv1.VolumeReady, PersistentVolumeClaimInfo: &virtv1.PersistentVolumeClaimInfo{ClaimName: v.PersistentVolumeClaim.ClaimName},
		}
		if v.PersistentVolumeClaim.Hotpluggable {
			status.HotplugVolume = &virtv1.HotplugVolumeStatus{}
		}
		vmi.Status.VolumeStatus = append(vmi.Status.VolumeStatus, status)
	}
	w.must(w.Patch(w.ctx, vmi, client.MergeFrom(was)))
}

// newVolume returns a volume of a claim and its disk.
func newVolume(name, claim string, shared bool) (virtv1.Volume, virtv1.Disk) {
	source := &virtv1.PersistentVolumeClaimVolumeSource{PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}
	d := virtv1.Disk{Name: name, DiskDevice: virtv1.DiskDevice{Disk: &virtv1.DiskTarget{}}}
	if shared {
		d.Shareable = &shared
	}
	return virtv1.Volume{Name: name, VolumeSource: virtv1.VolumeSource{PersistentVolumeClaim: source}}, d
}
