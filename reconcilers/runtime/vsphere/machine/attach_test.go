package machine

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"
	kubetypes "k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// controllerWith gives a SCSI controller with disks at those units.
func controllerWith(key, bus int32, shared types.VirtualSCSISharing, units ...int32) (all object.VirtualDeviceList) {
	c := &types.ParaVirtualSCSIController{}
	c.Key, c.BusNumber, c.ScsiCtlrUnitNumber, c.SharedBus = key, bus, 7, shared
	all = append(all, c)
	for _, unit := range units {
		all = append(all, &types.VirtualDisk{VirtualDevice: types.VirtualDevice{Key: key*100 + unit, ControllerKey: key, UnitNumber: &unit}})
	}
	return all
}

func TestFreeUnit(t *testing.T) {
	full := []int32{0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 15}
	const alone, shared = types.VirtualSCSISharingNoSharing, types.VirtualSCSISharingPhysicalSharing
	for name, c := range map[string]struct {
		devices   object.VirtualDeviceList
		key, unit int32
	}{
		"none":                       {nil, 0, 0},
		"empty":                      {controllerWith(1000, 0, alone), 1000, 0},
		"the controller's own place": {controllerWith(1000, 0, alone, 0, 1, 2, 3, 4, 5, 6), 1000, 8},
		"a gap":                      {controllerWith(1000, 0, alone, 0, 2), 1000, 1},
		"far out":                    {controllerWith(1000, 0, alone, 63, 0), 1000, 1},
		"full":                       {controllerWith(1000, 0, alone, full...), 0, 0},
		"the next one":               {append(controllerWith(1000, 0, alone, full...), controllerWith(1001, 1, alone, 0)...), 1001, 1},
		"shared":                     {append(controllerWith(1000, 0, shared), controllerWith(1001, 1, alone)...), 1001, 0},
	} {
		controller, unit := freeUnit(c.devices)
		if controller == nil && c.key != 0 || controller != nil && (controller.Key != c.key || unit != c.unit) {
			t.Errorf("%s: got unit %d of %+v", name, unit, controller)
		}
	}
}

func TestNewController(t *testing.T) {
	var devices object.VirtualDeviceList
	for bus := range int32(4) {
		added, err := newController(devices)
		if err != nil {
			t.Fatal(err)
		}
		controller := added.(*types.ParaVirtualSCSIController)
		if controller.BusNumber != bus || controller.Key >= 0 {
			t.Errorf("got %+v, want it on bus %d", controller, bus)
		}
		devices = append(devices, controllerWith(1000+bus, bus, types.VirtualSCSISharingNoSharing)...)
	}
	if _, err := newController(devices); !runtime.IsInvalidState(err) {
		t.Errorf("a fifth controller: got error %v", err)
	}
}

// A machine has a VirtualDisk if a device has the ID that its status records.
func TestAttachments(t *testing.T) {
	var devices object.VirtualDeviceList
	for _, id := range []string{"", "id-b", "ID-A"} {
		disk := &types.VirtualDisk{}
		if id != "" {
			disk.VDiskId = &types.ID{Id: id}
		}
		devices = append(devices, disk)
	}
	var names []string
	for _, on := range attachmentsOf(devices, []runtime.Disk{
		{UID: "1", ID: "id-b", NamespacedName: kubetypes.NamespacedName{Name: "b"}}, {UID: "2", ID: "id-a", NamespacedName: kubetypes.NamespacedName{Name: "a"}},
		{UID: "3", NamespacedName: kubetypes.NamespacedName{Name: "not-made"}}, {UID: "4", ID: "id-c", NamespacedName: kubetypes.NamespacedName{Name: "elsewhere"}},
	}) {
		names = append(names, on.Name)
	}
	if diff := cmp.Diff([]string{"a", "b"}, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
