package inventory

import (
	"fmt"
	"path"

	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/apimachinery/pkg/api/resource"
)

// OwnDisk reports whether a disk certainly belongs to the machine with that VMX file: it is in the same folder, and
// is not a first-class disk, such as those of CSI volumes.
func OwnDisk(vmx string, disk *types.VirtualDisk) bool {
	backing, is := disk.Backing.(types.BaseVirtualDeviceFileBackingInfo)
	return is && disk.VDiskId == nil && path.Dir(backing.GetVirtualDeviceFileBackingInfo().FileName) == path.Dir(vmx)
}

// Mebibyte is the unit of vCenter for memory and disks, in bytes.
const Mebibyte = 1 << 20

// RoundUp returns n rounded up to a multiple of the unit.
func RoundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }

// Space is the space in bytes that the disks of a machine need on a datastore: in total, and of that immediately.
type Space struct{ All, Thick int64 }

// Lacks returns why a datastore does not have enough space, or "". Thin disks may exceed the free space in total.
func (r Space) Lacks(of types.DatastoreSummary) string {
	bytes := func(n int64) string { return resource.NewQuantity(RoundUp(n, Mebibyte), resource.BinarySI).String() }
	switch {
	case r.Thick > of.FreeSpace:
		return fmt.Sprintf("has %s free, but the disks need %s at once", bytes(of.FreeSpace), bytes(r.Thick))
	case r.All > of.Capacity:
		return fmt.Sprintf("has room for %s, but the disks can grow to %s", bytes(of.Capacity), bytes(r.All))
	}
	return ""
}

// Capacity returns the size of a disk in bytes.
func Capacity(disk *types.VirtualDisk) int64 {
	return max(disk.CapacityInBytes, disk.CapacityInKB*1024)
}

// Thin reports whether a disk allocates space only when it is written.
func Thin(disk *types.VirtualDisk) bool {
	switch backing := disk.Backing.(type) {
	case *types.VirtualDiskFlatVer2BackingInfo:
		return backing.ThinProvisioned != nil && *backing.ThinProvisioned
	case *types.VirtualDiskSparseVer2BackingInfo, *types.VirtualDiskSeSparseBackingInfo:
		return true
	}
	return false
}
