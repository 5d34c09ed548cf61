package kubevirt

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

const (
	// LabelMachine on a KubeVirt VirtualMachine, or on a migration that Sallyport began, contains the UID of the VirtualMachine.
	LabelMachine = v1alpha1.LabelMachineOfKubeVirt
	// annotationName contains the name of the VirtualMachine of LabelMachine.
	annotationName = "sallyport.dev/virtual-machine"
	// annotationSent contains the kind and the ID of the last change of power, or move, that Sallyport requested; and the UID of the instance
	// that it ends, whose start it cancels if that is the kind.
	annotationSent = "sallyport.dev/sent"
	// annotationAdopted contains the run strategy that a KubeVirt VirtualMachine had when it was adopted.
	annotationAdopted = "sallyport.dev/adopted-with-run-strategy"

	// cloudInitDisk is the name of the disk with the data for cloud-init.
	cloudInitDisk = "cloud-init"
	// shutdown is how many seconds KubeVirt gives the guest of a created machine to shut down before it powers it off. It exceeds the
	// deadlines of Sallyport, which decides by itself when to power off.
	shutdown = 3600
)

// nameOf returns the name of the machine's KubeVirt VirtualMachine. One that is made beside an earlier one has a part of the UID in it.
func nameOf(m runtime.Machine) string {
	k := m.Spec.Runtime.KubeVirt
	switch {
	case m.InstanceID != "":
		return m.InstanceID
	case k.Create == nil && k.Name != "":
		return k.Name
	case k.Create != nil && m.Earlier == runtime.MakeAnew:
		return named(m.Name, strings.ToLower(string(m.UID[:min(len(m.UID), 8)])))
	}
	return m.Name
}

// newVM returns the KubeVirt VirtualMachine for a machine to create. It has no owner reference: when a VirtualMachine is lost, as before a
// restore, the garbage collector would delete its machine.
func newVM(m runtime.Machine) *virtv1.VirtualMachine {
	create := m.Spec.Runtime.KubeVirt.Create
	vm := &virtv1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: nameOf(m), Labels: maps.Clone(m.Labels)},
		Spec: virtv1.VirtualMachineSpec{
			RunStrategy: new(virtv1.RunStrategyManual),
			Template:    &virtv1.VirtualMachineInstanceTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: maps.Clone(m.Labels)}},
		},
	}
	mark(vm, m)
	if of := create.Instancetype; of != nil {
		vm.Spec.Instancetype = &virtv1.InstancetypeMatcher{Kind: kind(of, "Instancetype"), Name: of.Name}
	}
	if of := create.Preference; of != nil {
		vm.Spec.Preference = &virtv1.PreferenceMatcher{Kind: kind(of, "Preference"), Name: of.Name}
	}
	spec := &vm.Spec.Template.Spec
	spec.TerminationGracePeriodSeconds = new(int64(shutdown))
	for i := range create.Disks {
		addDisk(spec, create.Disks[i].Name, uint(i+1), volumeOf(&create.Disks[i]))
	}
	if of := create.CloudInit; of != nil {
		source := &virtv1.CloudInitNoCloudSource{UserDataSecretRef: &corev1.LocalObjectReference{Name: of.SecretRef.Name}}
		addDisk(spec, cloudInitDisk, 0, virtv1.VolumeSource{CloudInitNoCloud: source})
	}
	for i := range create.Networks {
		addNetwork(spec, &create.Networks[i])
	}
	configure(vm, m)
	return vm
}

// mark sets the owner mark.
func mark(o metav1.Object, m runtime.Machine) {
	labels := o.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[LabelMachine] = string(m.UID)
	o.SetLabels(labels)
	annotate(o, annotationName, m.Name)
}

func annotate(o metav1.Object, key, value string) {
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	o.SetAnnotations(annotations)
}

// kind returns the kind of an instance type or a preference.
func kind(of *v1alpha1.KubeVirtReference, what string) string {
	if of.Scope == v1alpha1.KubeVirtScopeNamespace {
		return "VirtualMachine" + what
	}
	return "VirtualMachineCluster" + what
}

// addDisk adds a disk with a volume. It is not booted from if order is 0.
func addDisk(spec *virtv1.VirtualMachineInstanceSpec, name string, order uint, from virtv1.VolumeSource) {
	disk := virtv1.Disk{Name: name, DiskDevice: virtv1.DiskDevice{Disk: &virtv1.DiskTarget{}}}
	if order > 0 {
		disk.BootOrder = &order
	}
	spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, disk)
	spec.Volumes = append(spec.Volumes, virtv1.Volume{Name: name, VolumeSource: from})
}

func volumeOf(d *v1alpha1.KubeVirtDisk) (from virtv1.VolumeSource) {
	switch {
	case d.ContainerDisk != "":
		from.ContainerDisk = &virtv1.ContainerDiskSource{Image: d.ContainerDisk}
	case d.DataVolume != "":
		from.DataVolume = &virtv1.DataVolumeSource{Name: d.DataVolume}
	default:
		from.PersistentVolumeClaim = &virtv1.PersistentVolumeClaimVolumeSource{
			PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: d.PersistentVolumeClaim},
		}
	}
	return from
}

func addNetwork(spec *virtv1.VirtualMachineInstanceSpec, n *v1alpha1.KubeVirtNetwork) {
	network := virtv1.Network{Name: n.Name, NetworkSource: virtv1.NetworkSource{Pod: &virtv1.PodNetwork{}}}
	to := virtv1.Interface{Name: n.Name, InterfaceBindingMethod: virtv1.InterfaceBindingMethod{Masquerade: &virtv1.InterfaceMasquerade{}}}
	if n.NetworkAttachmentDefinition != "" {
		network.NetworkSource = virtv1.NetworkSource{Multus: &virtv1.MultusNetwork{NetworkName: n.NetworkAttachmentDefinition}}
		to.InterfaceBindingMethod = virtv1.InterfaceBindingMethod{Bridge: &virtv1.InterfaceBridge{}}
	}
	spec.Networks = append(spec.Networks, network)
	spec.Domain.Devices.Interfaces = append(spec.Domain.Devices.Interfaces, to)
}

// configure sets what follows the spec of a created machine at each power-on: its size and where it is placed. The rest of the domain is
// from the template.
func configure(vm *virtv1.VirtualMachine, m runtime.Machine) {
	if m.Spec.Adopts() {
		return
	}
	spec := &vm.Spec.Template.Spec
	if m.Spec.CPU != nil {
		if spec.Domain.CPU == nil {
			spec.Domain.CPU = &virtv1.CPU{}
		}
		spec.Domain.CPU.Sockets, spec.Domain.CPU.Cores, spec.Domain.CPU.Threads = uint32(*m.Spec.CPU), 1, 1
	}
	if memory := memoryOf(m); memory != nil {
		if spec.Domain.Memory == nil {
			spec.Domain.Memory = &virtv1.Memory{}
		}
		spec.Domain.Memory.Guest = memory
	}
	orderDisks(spec, m)
	setNodes(spec, m)
}

// memoryOf returns the memory of the spec, rounded up as its documentation says, nil if it sets none.
func memoryOf(m runtime.Machine) *resource.Quantity {
	if m.Spec.Memory == nil {
		return nil
	}
	const unit = 4 << 20
	return resource.NewQuantity((m.Spec.Memory.Value()+unit-1)/unit*unit, resource.BinarySI)
}
