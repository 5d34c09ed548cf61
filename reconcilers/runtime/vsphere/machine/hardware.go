package machine

import (
	"fmt"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/apimachinery/pkg/api/resource"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/inventory"
)

// memoryMB returns an amount of memory in mebibytes, rounded up to a multiple of 4 as vCenter requires.
func memoryMB(q resource.Quantity) int64 {
	return inventory.RoundUp(q.Value(), 4*inventory.Mebibyte) / inventory.Mebibyte
}

func (p *placement) devices(m runtime.Machine) ([]types.BaseVirtualDeviceConfigSpec, error) {
	disks, err := p.disks(cloneOf(m))
	return append(disks, p.adapters()...), err
}

// adapters returns the changes that connect the network adapters. They get new MAC addresses: those of the template
// could be fixed.
func (p *placement) adapters() (changes []types.BaseVirtualDeviceConfigSpec) {
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

func (p *placement) disks(clone *v1alpha1.VSphereClone) (changes []types.BaseVirtualDeviceConfigSpec, err error) {
	present := object.VirtualDeviceList(p.template.Config.Hardware.Device).SelectByType((*types.VirtualDisk)(nil))
	if len(clone.Disks) > len(present) {
		return nil, inventory.Invalid("disks", "the template at %s has %d disks, not %d", clone.Template.InventoryPath, len(present), len(clone.Disks))
	}
	for i, device := range present[:len(clone.Disks)] {
		disk := device.(*types.VirtualDisk)
		wanted, size := clone.Disks[i].Size, inventory.Capacity(disk)
		switch bytes := inventory.RoundUp(wanted.Value(), inventory.Mebibyte); {
		case bytes < size:
			return nil, inventory.Invalid(fmt.Sprintf("disks[%d].size", i), "the disk cannot be %s: the template's disk has %s, and disks cannot shrink",
				wanted.String(), resource.NewQuantity(size, resource.BinarySI))
		case bytes > size:
			disk.CapacityInBytes, disk.CapacityInKB = bytes, bytes/1024
			changes = append(changes, &types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationEdit, Device: disk})
		}
	}
	if lacks := p.room(clone).Lacks(p.datastore.Summary); lacks != "" {
		return nil, inventory.Invalid("datastore", "%s %s", clone.Datastore, lacks)
	}
	return changes, nil
}

func (p *placement) room(clone *v1alpha1.VSphereClone) (r inventory.Space) {
	for i, device := range object.VirtualDeviceList(p.template.Config.Hardware.Device).SelectByType((*types.VirtualDisk)(nil)) {
		disk := device.(*types.VirtualDisk)
		size := inventory.Capacity(disk)
		if i < len(clone.Disks) {
			size = max(size, inventory.RoundUp(clone.Disks[i].Size.Value(), inventory.Mebibyte))
		}
		r.All += size
		if !inventory.Thin(disk) {
			r.Thick += size
		}
	}
	return r
}
