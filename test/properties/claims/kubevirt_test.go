package claims

import (
	"context"
	"errors"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/kubevirt"
)

// kubeVirt is KubeVirt, with machines of users.
type kubeVirt struct {
	*world
	controller
	added map[types.UID]map[string]string // the claims by the volumes that Sallyport added, by KubeVirt VirtualMachine
}

// controller is virt-controller and the nodes.
type controller interface {
	// runs has it look at everything, until nothing is left to do.
	runs(*kubeVirt)
	subresources() kubevirt.Subresources
	// knows reports whether it knows DataVolumes.
	knowsDataVolumes() bool
}

func newKubeVirt(w *world, by controller) *kubeVirt {
	return &kubeVirt{w, by, map[types.UID]map[string]string{}}
}

func (k *kubeVirt) goesOn() { k.runs(k) }

func (k *kubeVirt) runtime(c client.Client) runtime.Runtime {
	return &kubevirt.Runtime{Client: c, Live: c, Subresources: k.subresources()}
}

func (k *kubeVirt) vms() []virtv1.VirtualMachine {
	return list[virtv1.VirtualMachineList](k.world).Items
}

func (k *kubeVirt) instances() []virtv1.VirtualMachineInstance {
	all := list[virtv1.VirtualMachineInstanceList](k.world).Items
	return slices.DeleteFunc(all, func(vmi virtv1.VirtualMachineInstance) bool { return vmi.IsFinal() })
}

// vm returns the KubeVirt VirtualMachine of that name, or nil.
func (k *kubeVirt) vm(name string) *virtv1.VirtualMachine {
	vm := &virtv1.VirtualMachine{}
	if name == "" { // of which an API server says that it may not be
		return nil
	}
	if err := k.Get(k.ctx, k.key(name), vm); err != nil {
		k.must(client.IgnoreNotFound(err))
		return nil
	}
	return vm
}

func (k *kubeVirt) instance(name string) *virtv1.VirtualMachineInstance {
	all := k.instances()
	if i := slices.IndexFunc(all, func(vmi virtv1.VirtualMachineInstance) bool { return vmi.Name == name }); i >= 0 {
		return &all[i]
	}
	return nil
}

func (k *kubeVirt) versions() (all string) {
	for _, o := range k.vms() {
		all += o.Name + o.ResourceVersion + " "
	}
	return all
}

func (k *kubeVirt) differs(vm *v1alpha1.VirtualMachine) string {
	of := k.vm(vm.Status.InstanceID)
	on := vm.Status.InstanceID != "" && k.instance(vm.Status.InstanceID) != nil
	switch {
	case of == nil || of.Labels[kubevirt.LabelMachine] != string(vm.UID):
		return "has no machine"
	case vm.Spec.RunPolicy == v1alpha1.RunPolicyAlwaysOn && !on:
		return "is not on"
	case vm.Spec.RunPolicy == v1alpha1.RunPolicyAlwaysOff && on:
		return "is not off"
	}
	for _, d := range k.disks() {
		has := slices.Contains(slices.Collect(maps.Values(claimsBy(&of.Spec.Template.Spec))), d.Status.DiskID)
		if vm.Spec.Names(d.Name) && !has {
			return "has no disk " + d.Name
		}
	}
	return ""
}

// played is a controller of a few lines, in memory.
type played struct{}

func (played) knowsDataVolumes() bool              { return true }
func (played) subresources() kubevirt.Subresources { return gate{} }

// gate answers to dry runs as a KubeVirt that plugs what the template of a machine has.
type gate struct{}

func (gate) Put(_ context.Context, resource string, object types.NamespacedName, subresource string, _ any) error {
	if subresource != "removevolume" || resource == "virtualmachineinstances" {
		return apierrors.NewBadRequest("not of a VMI that is owned by a VM")
	}
	return apierrors.NewConflict(virtv1.Resource("virtualmachine"), object.Name, errors.New("there is no such volume"))
}

// runs has virt-controller and the garbage collector look at everything once.
func (p played) runs(k *kubeVirt) {
	vms := k.vms()
	for _, vmi := range k.instances() {
		if !slices.ContainsFunc(vms, func(vm virtv1.VirtualMachine) bool { return metav1.IsControlledBy(&vmi, &vm) }) {
			k.must(k.Delete(k.ctx, &vmi))
		}
	}
	var owners []client.Object
	for i := range vms {
		p.power(k, &vms[i])
		p.plug(k, &vms[i])
		owners = append(owners, &vms[i])
	}
	k.collectGarbage(owners...)
}

// power carries out the requests of a machine, and its run strategy.
func (played) power(k *kubeVirt, vm *virtv1.VirtualMachine) {
	vmi := k.instance(vm.Name)
	stop := func() {
		if vmi != nil {
			k.must(k.Delete(k.ctx, vmi))
		}
		vmi = nil
	}
	start := func() {
		if vmi != nil {
			return
		}
		vmi = &virtv1.VirtualMachineInstance{ObjectMeta: k.meta(vm.Name), Spec: *vm.Spec.Template.Spec.DeepCopy()}
		vmi.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(vm, virtv1.VirtualMachineGroupVersionKind)}
		vmi.Status.Phase, vmi.Status.NodeName = virtv1.Running, "node"
		k.must(k.Create(k.ctx, vmi))
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
		k.must(k.Status().Update(k.ctx, vm))
	}
	switch strategy, err := vm.RunStrategy(); {
	case err != nil:
		k.must(err)
	case strategy == virtv1.RunStrategyAlways && vm.Status.RestoreInProgress == nil:
		start()
	case strategy == virtv1.RunStrategyHalted:
		stop()
	}
}

// plug has the instance get and lose volumes as the template says.
func (played) plug(k *kubeVirt, vm *virtv1.VirtualMachine) {
	vmi := k.instance(vm.Name)
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
		if v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.Hotpluggable && !in(vmi.Spec.Volumes, v.Name) {
			vmi.Spec.Volumes = append(vmi.Spec.Volumes, v)
		}
	}
	vmi.Spec.Domain.Devices.Disks = spec.Domain.Devices.Disks
	vmi.Status.VolumeStatus = nil
	for _, v := range vmi.Spec.Volumes {
		status := virtv1.VolumeStatus{Name: v.Name, Phase: virtv1.VolumeReady}
		if claim := claimOf(&v); claim != nil {
			status.PersistentVolumeClaimInfo = &virtv1.PersistentVolumeClaimInfo{ClaimName: *claim}
		}
		if v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.Hotpluggable {
			status.HotplugVolume = &virtv1.HotplugVolumeStatus{}
		}
		vmi.Status.VolumeStatus = append(vmi.Status.VolumeStatus, status)
	}
	k.must(k.Patch(k.ctx, vmi, client.MergeFrom(was)))
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
