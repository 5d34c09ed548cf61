package vsphere

import (
	"cmp"
	"slices"
	"strings"

	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

const bootField = "spec.blockDeviceRefs[].bootOrder"

// bootDisks gives the attached disks that a machine is to boot from, the first one first, with their names.
func (s *sighting) bootDisks(m runtime.Machine) (keys []int32, names []string) {
	refs := slices.DeleteFunc(m.Spec.InBootOrder(), func(ref v1alpha1.BlockDeviceRef) bool { return ref.BootOrder == nil })
	for _, ref := range refs {
		for _, of := range s.marks {
			if on := of.device(s.devices); of.name == ref.Name && on != nil {
				keys, names = append(keys, on.Key), append(names, of.name)
			}
		}
	}
	return keys, names
}

// bootKey gives the device that an entry of a boot order is about, and false for one that is no disk.
func bootKey(entry types.BaseVirtualMachineBootOptionsBootableDevice) (int32, bool) {
	disk, is := entry.(*types.VirtualMachineBootOptionsBootableDiskDevice)
	if !is {
		return 0, false
	}
	return disk.DeviceKey, true
}

// bootDifference reports whether a machine boots from other disks first than its spec says. What the spec says nothing of stays as it is.
func (s *sighting) bootDifference(m runtime.Machine) (all []runtime.Difference) {
	keys, names := s.bootDisks(m)
	is := make([]string, 0, len(keys))
	same := len(s.boot) >= len(keys)
	for i, entry := range s.boot[:min(len(s.boot), len(keys))] {
		key, disk := bootKey(entry)
		same = same && disk && key == keys[i]
		is = append(is, s.bootName(key, disk))
	}
	if same {
		return nil
	}
	return []runtime.Difference{{Field: bootField, Is: cmp.Or(strings.Join(is, ", "), "none"), Wanted: strings.Join(names, ", ")}}
}

// bootName is what people call a device that a machine boots from.
func (s *sighting) bootName(key int32, disk bool) string {
	for _, of := range s.marks {
		if on := of.device(s.devices); disk && on != nil && on.Key == key {
			return of.name
		}
	}
	return "a device of its own"
}

// boot puts the boot order that a spec says into a configuration: its disks come first, and whatever else was in the order after them.
func (s *sighting) bootFirst(spec *types.VirtualMachineConfigSpec, m runtime.Machine) {
	keys, _ := s.bootDisks(m)
	var order []types.BaseVirtualMachineBootOptionsBootableDevice
	for _, key := range keys {
		order = append(order, &types.VirtualMachineBootOptionsBootableDiskDevice{DeviceKey: key})
	}
	for _, entry := range s.boot {
		if key, disk := bootKey(entry); !disk || !slices.Contains(keys, key) {
			order = append(order, entry)
		}
	}
	spec.BootOptions = &types.VirtualMachineBootOptions{BootOrder: order}
}
