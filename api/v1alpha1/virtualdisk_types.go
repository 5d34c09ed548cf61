package v1alpha1

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// VirtualDiskFinalizer keeps a VirtualDisk until its data is removed from its runtime. The policy `defaults` adds it, the disk
// reconciler removes it.
const VirtualDiskFinalizer = "sallyport.dev/virtual-disk"

// LabelMachineOfDisk on the VirtualDisk that was created for a VirtualMachine with spec.diskImage has the UID of the VirtualMachine.
const LabelMachineOfDisk = "sallyport.dev/virtual-machine-uid"

// VirtualDiskPhase sums up what is observed of a disk.
//
// +kubebuilder:validation:Enum=Pending;Available;InUse;Lost;Terminating
type VirtualDiskPhase string

const (
	// VirtualDiskPending means that the disk is not created yet.
	VirtualDiskPending VirtualDiskPhase = "Pending"
	// VirtualDiskAvailable means that the disk exists and is not attached to a
	// VirtualMachine.
	VirtualDiskAvailable VirtualDiskPhase = "Available"
	// VirtualDiskInUse means that the disk is attached to a VirtualMachine.
	VirtualDiskInUse VirtualDiskPhase = "InUse"
	// VirtualDiskLost means that the runtime no longer has the disk. Sallyport does
	// not create it again, because its data would be lost.
	VirtualDiskLost VirtualDiskPhase = "Lost"
	// VirtualDiskTerminating means that the object is being deleted.
	VirtualDiskTerminating VirtualDiskPhase = "Terminating"
)

// VirtualDiskSpec is the desired state of a disk. Users own it; no controller of Sallyport writes it, except the size of disks of
// pools.
//
// +kubebuilder:validation:XValidation:rule="has(self.source) == has(oldSelf.source)",message="spec.source cannot be added or removed once the VirtualDisk exists: create another VirtualDisk instead"
// +kubebuilder:validation:XValidation:rule="!has(self.source) || !has(self.runtime.vsphere)",message="spec.source is not allowed for a disk on a vCenter: machines there are cloned from a template, see VSphereTemplate"
type VirtualDiskSpec struct {
	// The size of the disk, such as 40Gi, rounded up to whole mebibytes. It can grow
	// but not shrink.
	// +required
	// +kubebuilder:validation:XValidation:rule="string(self).matches('^[0-9.]*[1-9]')",message="spec.size must be greater than 0, such as 40Gi"
	// +kubebuilder:validation:XValidation:rule="[self, oldSelf].exists(size, string(size).matches('[eE]([.]|.{3})')) || quantity(string(self)).compareTo(quantity(string(oldSelf))) >= 0",message="spec.size cannot shrink: data beyond the new end would be lost; create a smaller VirtualDisk and copy what is needed"
	Size resource.Quantity `json:"size"`

	// Where the disk is. Exactly one of vsphere, pod and kubevirt is set. A disk can be
	// attached only to machines of that runtime.
	// +required
	Runtime VirtualDiskRuntime `json:"runtime"`

	// The data that the disk starts with. Default: none, the disk is empty. Immutable.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.source cannot change once the VirtualDisk exists: create another VirtualDisk instead"
	Source *VirtualDiskSource `json:"source,omitempty"`
}

// VirtualDiskSource is the data that a disk starts with.
type VirtualDiskSource struct {
	// The VMDiskImage that the disk is copied from. The disk is created once the image
	// is ready.
	// +required
	Image VMDiskImageReference `json:"image"`
}

// VirtualDiskRuntime says where a disk is. It is immutable.
//
// +kubebuilder:validation:XValidation:rule="[has(self.vsphere), has(self.pod), has(self.kubevirt)].filter(set, set).size() == 1",message="spec.runtime needs exactly one of vsphere, pod and kubevirt"
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.runtime cannot change once the VirtualDisk exists: create another VirtualDisk instead"
type VirtualDiskRuntime struct {
	// A disk on a datastore of a vCenter.
	// +optional
	VSphere *VSphereDisk `json:"vsphere,omitempty"`

	// A disk for machines that a node agent runs as pods: a PersistentVolumeClaim.
	// +optional
	Pod *VolumeDisk `json:"pod,omitempty"`

	// A disk for machines that KubeVirt runs: a PersistentVolumeClaim.
	// +optional
	KubeVirt *VolumeDisk `json:"kubevirt,omitempty"`
}

// VSphereDisk is a disk on a datastore of a vCenter.
type VSphereDisk struct {
	// The vCenter, as an administrator has declared it.
	// +required
	ServerRef VSphereServerReference `json:"serverRef"`

	// The datastore that the disk is on, by inventory path, such as
	// /datacenter/datastore/fast. The namespace must be allowed to use it, and the
	// machines that the disk is attached to are in the same datacenter.
	// +required
	Datastore InventoryPath `json:"datastore"`
}

// VolumeDisk is a disk that is a PersistentVolumeClaim.
type VolumeDisk struct {
	// The StorageClass of the claim. Default: the cluster's default one.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	StorageClassName string `json:"storageClassName,omitempty"`

	// What the volume of the claim is: a file system or a block device. Default:
	// Filesystem.
	// +optional
	VolumeMode VolumeMode `json:"volumeMode,omitempty"`

	// Whether nodes can mount the volume at the same time, which KubeVirt needs to move
	// a running machine: ReadWriteOnce or ReadWriteMany. Default: on KubeVirt, that of the
	// image from which the disk is copied, otherwise ReadWriteOnce.
	// +optional
	AccessMode VolumeAccessMode `json:"accessMode,omitempty"`
}

// VolumeAccessMode is where the volume of a PersistentVolumeClaim can be mounted.
//
// +kubebuilder:validation:Enum=ReadWriteOnce;ReadWriteMany
type VolumeAccessMode string

const (
	// VolumeReadWriteOnce means that one node can mount the volume at a time.
	VolumeReadWriteOnce VolumeAccessMode = "ReadWriteOnce"
	// VolumeReadWriteMany means that many nodes can mount the volume at a time.
	VolumeReadWriteMany VolumeAccessMode = "ReadWriteMany"
)

// VolumeMode is what the volume of a PersistentVolumeClaim is.
//
// +kubebuilder:validation:Enum=Filesystem;Block
type VolumeMode string

const (
	// VolumeFilesystem means that the volume has a file system, and the disk is a file in it.
	VolumeFilesystem VolumeMode = "Filesystem"
	// VolumeBlock means that the volume is a block device, and the disk is that device.
	VolumeBlock VolumeMode = "Block"
)

// Beside reports whether the disk can be attached to machines of that runtime: both are on the same runtime and server.
func (r *VirtualDiskRuntime) Beside(machine *VirtualMachineRuntime) bool {
	switch {
	case r.VSphere != nil:
		return machine.VSphere != nil && machine.VSphere.ServerRef == r.VSphere.ServerRef
	case r.Pod != nil:
		return machine.Pod != nil
	default:
		return machine.KubeVirt != nil
	}
}

// FieldDiskHolder is the field of a VirtualDisk that has the name of the VirtualMachine that has it, for selectors.
const FieldDiskHolder = "status.attachedTo.name"

// DiskHolder is the VirtualMachine that a disk is attached to.
type DiskHolder struct {
	// The name of the VirtualMachine.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Its UID, which excludes another machine of the same name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Type=string
	UID types.UID `json:"uid"`

	// When the last attachment was about to start.
	// +required
	Since metav1.MicroTime `json:"since"`
}

// VirtualDiskStatus is the observed state of a disk, and the VirtualMachine that
// it is attached to.
type VirtualDiskStatus struct {
	// The metadata.generation that the rest of the status is based on.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// The UID of the VirtualDisk that the status is of. A status with another UID was
	// restored from a backup, and is replaced.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Type=string
	UID types.UID `json:"uid,omitempty"`

	// What the disk is doing, in one word: Pending, Available, InUse, Lost or
	// Terminating. Derived from the rest.
	// +optional
	Phase VirtualDiskPhase `json:"phase,omitempty"`

	// The identity of the disk on its runtime. Set once the disk is created.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	DiskID string `json:"diskID,omitempty"`

	// Since when the disk is being created. Set before the runtime is first asked to,
	// and removed when diskID is set: in between the disk may exist there.
	// +optional
	ProvisioningSince *metav1.MicroTime `json:"provisioningSince,omitempty"`

	// The ID of the datastore on which the disk was last seen, such as datastore-12. Set
	// once the disk is created on a vCenter, which may move it with a machine.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	DatastoreID string `json:"datastoreID,omitempty"`

	// The VMDiskImage that the disk is copied from. Set before the copy is started, and
	// kept as long as the disk exists, so that the image is not deleted meanwhile.
	// +optional
	Image *UsedDiskImage `json:"image,omitempty"`

	// The name of the VolumeSnapshotContent and VolumeSnapshot that a disk is copied
	// from if its image is in another namespace. Set before they are created, and
	// removed once they are deleted.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	CopySnapshot string `json:"copySnapshot,omitempty"`

	// The observed size of the disk.
	// +optional
	Capacity *resource.Quantity `json:"capacity,omitempty"`

	// The VirtualMachine that the disk is attached to. It is set before the disk is
	// attached, and removed once the disk is observed to be detached or the machine
	// no longer exists. Meanwhile the disk is not attached to another machine.
	// +optional
	AttachedTo *DiskHolder `json:"attachedTo,omitempty"`

	// When the disk was last detached. Absent while it is attached, and on a disk that
	// was never attached. The reclaim.ttl of a pool counts from this time.
	// +optional
	FreeSince *metav1.Time `json:"freeSince,omitempty"`

	// The state of the disk in detail. Ready is true when the disk exists and has the
	// size of the spec.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// VirtualDisk is a disk that is an object of its own: it outlives the machines that it is attached to, and is attached to one at a
// time. A VirtualMachine names it in spec.blockDeviceRefs. When a VirtualDisk is deleted, its data is destroyed once no machine has
// it attached.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=svd,categories=sallyport
// +kubebuilder:selectablefield:JSONPath=`.spec.runtime.vsphere.serverRef.name`
// +kubebuilder:selectablefield:JSONPath=`.status.attachedTo.name`
// +kubebuilder:selectablefield:JSONPath=`.status.image.namespace`
// +kubebuilder:selectablefield:JSONPath=`.status.image.uid`
// +kubebuilder:selectablefield:JSONPath=`.status.phase`
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || has(self.spec.runtime.vsphere) || self.metadata.name.size() <= 216",optionalOldSelf=true,fieldPath=".spec.runtime",message="metadata.name must have at most 216 characters: the name of its PersistentVolumeClaim, NAME-UID, begins with it"
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`,description="Whether it exists and a machine has it."
// +kubebuilder:printcolumn:name="Size",type=string,JSONPath=`.spec.size`,description="How large it is wanted."
// +kubebuilder:printcolumn:name="Machine",type=string,JSONPath=`.status.attachedTo.name`,description="The VirtualMachine that has it."
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether it exists and is as large as wanted."
// +kubebuilder:printcolumn:name="Free-Since",type=date,priority=1,JSONPath=`.status.freeSince`,description="Since when no machine has it."
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since its creation."
type VirtualDisk struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// The desired state of the disk.
	// +required
	Spec VirtualDiskSpec `json:"spec"`

	// The observed state of the disk, and the VirtualMachine that it is attached to.
	// +optional
	Status VirtualDiskStatus `json:"status,omitzero"`
}

// CurrentPhase derives the phase from the status. It never returns Lost, which the disk
// reconciler sets.
func (d *VirtualDisk) CurrentPhase() VirtualDiskPhase {
	switch {
	case !d.DeletionTimestamp.IsZero():
		return VirtualDiskTerminating
	case d.Status.DiskID == "":
		return VirtualDiskPending
	case d.Status.AttachedTo != nil:
		return VirtualDiskInUse
	default:
		return VirtualDiskAvailable
	}
}

// MayExist reports whether the status says that the runtime has, or may have, something of the disk.
func (d *VirtualDisk) MayExist() bool {
	return d.Status.DiskID != "" || d.Status.ProvisioningSince != nil
}

// StatusOfAnother reports whether the status is that of another VirtualDisk, as after a restore from a backup.
func (d *VirtualDisk) StatusOfAnother() bool { return d.Status.UID != "" && d.Status.UID != d.UID }

// Free records that the disk is no longer attached to a VirtualMachine, from that
// time on.
func (d *VirtualDisk) Free(now time.Time) {
	since := metav1.NewTime(now.Truncate(time.Second))
	d.Status.AttachedTo, d.Status.FreeSince = nil, &since
	if d.Status.Phase != VirtualDiskLost {
		d.Status.Phase = d.CurrentPhase()
	}
}

// VirtualDiskList is a list of VirtualDisks.
//
// +kubebuilder:object:root=true
type VirtualDiskList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	// The disks.
	Items []VirtualDisk `json:"items"`
}
