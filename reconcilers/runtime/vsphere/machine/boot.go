package machine

import (
	"cmp"
	"slices"
	"strings"

	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

const bootField = "spec.blockDeviceRefs[].bootOrder"

func (s *sighting) bootDisks(m runtime.Machine) (keys []int32, names []string) {
	refs := slices.DeleteFunc(m.Spec.InBootOrder(), func(ref v1alpha1.BlockDeviceRef) bool { return ref.BootOrder == nil })
	for _, ref := range refs {
		for _, on := range s.disks {
			if on.Name == ref.Name {
				keys, names = append(keys, on.device.Key), append(names, on.Name)
			}
		}
	}
	return keys, names
}

// bootKey returns the device of a boot order entry, and false if it is not a disk.
func bootKey(entry types.BaseVirtualMachineBootOptionsBootableDevice) (int32, bool) {
	disk, is := entry.(*types.VirtualMachineBootOptionsBootableDiskDevice)
	if !is {
		return 0, false
	}
	return disk.DeviceKey, true
}

// bootDifference returns the difference between the machine's boot order and its spec. Devices that the spec does not
// name are ignored.
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

func (s *sighting) bootName(key int32, disk bool) string {
	for _, on := range s.disks {
		if disk && on.device.Key == key {
			return on.Name
		}
	}
	return "a device of its own"
}

// bootFirst sets the boot order of the spec in a configuration: its disks first, then the other devices of the
// current order.
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
