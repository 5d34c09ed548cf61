package vsphere

import (
	"fmt"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/apimachinery/pkg/api/resource"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

const mebibyte = 1 << 20

// memoryMB returns an amount of memory in mebibytes, rounded up to a multiple of 4 as vCenter requires.
func memoryMB(q resource.Quantity) int64 { return roundUp(q.Value(), 4*mebibyte) / mebibyte }

func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }

func (p *parts) devices(m runtime.Machine) ([]types.BaseVirtualDeviceConfigSpec, error) {
	disks, err := p.disks(cloneOf(m))
	return append(disks, p.adapters()...), err
}

// adapters returns the changes that connect the network adapters. They get new MAC addresses: those of the template
// could be fixed.
func (p *parts) adapters() (changes []types.BaseVirtualDeviceConfigSpec) {
	present := object.VirtualDeviceList(p.template.Config.Hardware.Device).SelectByType((*types.VirtualEthernetCard)(nil))
	change := func(operation types.VirtualDeviceConfigSpecOperation, device types.BaseVirtualDevice) {
		changes = append(changes, &types.VirtualDeviceConfigSpec{Operation: operation, Device: device})
	}
	for i, backing := range p.networks {
		if i < len(present) {
			card := present[i].(types.BaseVirtualEthernetCard).GetVirtualEthernetCard()
			card.Backing, card.MacAddress, card.AddressType = backing, "", string(types.VirtualEthernetCardMacTypeGenerated)
			card.Connectable = &types.VirtualDeviceConnectInfo{StartConnected: true, AllowGuestControl: true}
			change(types.VirtualDeviceConfigSpecOperationEdit, present[i])
			continue
		}
		card := &types.VirtualVmxnet3{}
		card.Key, card.Backing = int32(-100-i), backing
		card.Connectable = &types.VirtualDeviceConnectInfo{StartConnected: true, AllowGuestControl: true}
		change(types.VirtualDeviceConfigSpecOperationAdd, card)
	}
	for _, surplus := range present[min(len(p.networks), len(present)):] {
		change(types.VirtualDeviceConfigSpecOperationRemove, surplus)
	}
	return changes
}

func (p *parts) disks(clone *v1alpha1.VSphereClone) (changes []types.BaseVirtualDeviceConfigSpec, err error) {
	present := object.VirtualDeviceList(p.template.Config.Hardware.Device).SelectByType((*types.VirtualDisk)(nil))
	if len(clone.Disks) > len(present) {
		return nil, invalid("disks", "the template at %s has %d disks, not %d", clone.Template.InventoryPath, len(present), len(clone.Disks))
	}
	for i, device := range present[:len(clone.Disks)] {
		disk := device.(*types.VirtualDisk)
		wanted, size := clone.Disks[i].Size, capacity(disk)
		switch bytes := roundUp(wanted.Value(), mebibyte); {
		case bytes < size:
			return nil, invalid(fmt.Sprintf("disks[%d].size", i), "the disk cannot be %s: the template's disk has %s, and disks cannot shrink",
				wanted.String(), resource.NewQuantity(size, resource.BinarySI))
		case bytes > size:
			disk.CapacityInBytes, disk.CapacityInKB = bytes, bytes/1024
			changes = append(changes, &types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationEdit, Device: disk})
		}
	}
	if lacks := p.room(clone).lacks(p.datastore.Summary); lacks != "" {
		return nil, invalid("datastore", "%s %s", clone.Datastore, lacks)
	}
	return changes, nil
}

// room is the space in bytes that the disks of a machine need on a datastore: in total, and of that immediately.
type room struct{ all, thick int64 }

func (p *parts) room(clone *v1alpha1.VSphereClone) (r room) {
	for i, device := range object.VirtualDeviceList(p.template.Config.Hardware.Device).SelectByType((*types.VirtualDisk)(nil)) {
		disk := device.(*types.VirtualDisk)
		size := capacity(disk)
		if i < len(clone.Disks) {
			size = max(size, roundUp(clone.Disks[i].Size.Value(), mebibyte))
		}
		r.all += size
		if !thin(disk) {
			r.thick += size
		}
	}
	return r
}

// lacks returns why a datastore does not have enough space, or "". Thin disks may exceed the free space in total.
func (r room) lacks(of types.DatastoreSummary) string {
	bytes := func(n int64) string { return resource.NewQuantity(roundUp(n, mebibyte), resource.BinarySI).String() }
	switch {
	case r.thick > of.FreeSpace:
		return fmt.Sprintf("has %s free, but the disks need %s at once", bytes(of.FreeSpace), bytes(r.thick))
	case r.all > of.Capacity:
		return fmt.Sprintf("has room for %s, but the disks can grow to %s", bytes(of.Capacity), bytes(r.all))
	}
	return ""
}

func capacity(disk *types.VirtualDisk) int64 {
	return max(disk.CapacityInBytes, disk.CapacityInKB*1024)
}

// thin reports whether a disk allocates space only when it is written.
func thin(disk *types.VirtualDisk) bool {
	switch backing := disk.Backing.(type) {
	case *types.VirtualDiskFlatVer2BackingInfo:
		return backing.ThinProvisioned != nil && *backing.ThinProvisioned
	case *types.VirtualDiskSparseVer2BackingInfo, *types.VirtualDiskSeSparseBackingInfo:
		return true
	}
	return false
}
