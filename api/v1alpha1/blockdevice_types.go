package v1alpha1

import (
	"cmp"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Names reports whether a VirtualDisk of that name is a disk of the machine.
func (s *VirtualMachineSpec) Names(disk string) bool {
	return slices.ContainsFunc(s.BlockDeviceRefs, func(ref BlockDeviceRef) bool {
		return ref.Kind == BlockDeviceVirtualDisk && ref.Name == disk
	})
}

// BlockDeviceKind is the kind of an object that is a disk of a machine.
//
// +kubebuilder:validation:Enum=VirtualDisk;VMDiskImage
type BlockDeviceKind string

const (
	// BlockDeviceVirtualDisk is a VirtualDisk.
	BlockDeviceVirtualDisk BlockDeviceKind = "VirtualDisk"
	// BlockDeviceVMDiskImage is denied, with a pointer to spec.diskImage.
	BlockDeviceVMDiskImage BlockDeviceKind = "VMDiskImage"
)

// BlockDeviceRef names an object that is a disk of a machine.
//
// +kubebuilder:validation:XValidation:rule="self.kind != 'VMDiskImage'",message="spec.blockDeviceRefs cannot name a VMDiskImage: to boot from a copy of it, use spec.diskImage; for another disk, name a VirtualDisk with spec.source.image"
type BlockDeviceRef struct {
	// The kind of the object: VirtualDisk. A VMDiskImage is denied: see spec.diskImage.
	// +required
	Kind BlockDeviceKind `json:"kind"`

	// The name of the object, in the namespace of the machine.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// The position of the disk in the boot order: 1 before 2 and so on, and before the
	// machine's own disks. Without it, the machine does not boot from the disk unless
	// its firmware does so by itself. A change takes effect with the next power-on.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16
	BootOrder *int32 `json:"bootOrder,omitempty"`
}

// AttachedDisk is a VirtualDisk that is attached to a machine.
type AttachedDisk struct {
	// The name of the VirtualDisk.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Its UID.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Type=string
	UID types.UID `json:"uid"`
}

// InBootOrder returns the entries of spec.blockDeviceRefs in the order in which the machine boots from them: those with a bootOrder first,
// then the others as they are listed.
func (s *VirtualMachineSpec) InBootOrder() []BlockDeviceRef {
	rank := func(ref BlockDeviceRef) int32 {
		if ref.BootOrder == nil {
			return math.MaxInt32
		}
		return *ref.BootOrder
	}
	return slices.SortedStableFunc(slices.Values(s.BlockDeviceRefs), func(a, b BlockDeviceRef) int { return cmp.Compare(rank(a), rank(b)) })
}
