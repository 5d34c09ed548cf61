package runtime

import (
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// DiskSource is the data that a disk is created from.
type DiskSource struct {
	// Image is the UID of the VMDiskImage.
	Image types.UID
	// Snapshot is the name of the VolumeSnapshot with the data, in the namespace of the disk.
	Snapshot string
	// Claim is the PersistentVolumeClaim that the snapshot is of. It provides what the spec of the disk does not set.
	Claim types.NamespacedName
}

// NoSource returns the error of EnsureDisk for a disk that needs a source and has none.
func NoSource(d Disk) error {
	return NewInvalidState(nil, "VirtualDisk %s is copied from an image, which is not known to be ready", d.Name)
}

// specOf returns the spec of a machine with all of its disks in blockDeviceRefs.
func specOf(vm *v1alpha1.VirtualMachine) *v1alpha1.VirtualMachineSpec {
	if vm.Spec.DiskImage == nil {
		return &vm.Spec
	}
	spec := vm.Spec
	spec.BlockDeviceRefs = vm.BlockDevices()
	return &spec
}
