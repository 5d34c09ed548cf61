package vsphere

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"

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

func TestMarks(t *testing.T) {
	at := mark{disk: "uid", name: "data", uuid: "6000c29", datastore: "datastore-1"}
	away := at
	away.disk, away.bytes, away.away = "uid-2", 1<<30, "[a datastore] web/web 1.vmdk"
	options := append(at.write(), away.write()...)
	for key, value := range map[string]any{
		DiskKey: "data 6000c29 datastore-1", DiskKey + strings.Repeat("u", 65): "data 6000c29 datastore-1", DiskKey + "short": "data 6000c29",
		DiskKey + "number": 7, DiskKey + "name": "Data 6000c29 datastore-1", DiskKey + "long": "data 6000c29 datastore-1 " + strings.Repeat("x", maxMark),
		OwnerKey: "data 6000c29 datastore-1", DiskKey + "gone": "",
	} {
		options = append(options, &types.OptionValue{Key: key, Value: value})
	}
	if diff := cmp.Diff([]mark{at, away}, marksOf(options), cmp.AllowUnexported(mark{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := marksOf(slices.Repeat(at.write(), 2*maxMarks)); len(got) != maxMarks {
		t.Errorf("got %d marks", len(got))
	}
	if got := diskUUID("60 00 C2 98 5e b5 b8 1c-90 41 6f f6 06 53 9c 7b"); got != "6000c2985eb5b81c90416ff606539c7b" {
		t.Errorf("got the UUID %s", got)
	}
}

// A disk that rests on the file of a VirtualDisk has a part of its data.
func TestDeviceUnderASnapshot(t *testing.T) {
	backing := func(file, uuid string, parent *types.VirtualDiskFlatVer2BackingInfo) *types.VirtualDiskFlatVer2BackingInfo {
		return &types.VirtualDiskFlatVer2BackingInfo{
			VirtualDeviceFileBackingInfo: types.VirtualDeviceFileBackingInfo{FileName: file}, Uuid: uuid, Parent: parent,
		}
	}
	own := &types.VirtualDisk{VirtualDevice: types.VirtualDevice{Backing: backing("[ds] web/web.vmdk", "6000-1", nil)}}
	other := &types.VirtualDisk{VirtualDevice: types.VirtualDevice{
		Backing: &types.VirtualDiskSeSparseBackingInfo{
			VirtualDeviceFileBackingInfo: types.VirtualDeviceFileBackingInfo{FileName: "[ds] web/web_1-000001.vmdk"},
			Parent: &types.VirtualDiskSeSparseBackingInfo{
				VirtualDeviceFileBackingInfo: types.VirtualDeviceFileBackingInfo{FileName: "[ds] sallyport/second.vmdk"},
			},
		},
	}}
	under := &types.VirtualDisk{VirtualDevice: types.VirtualDevice{
		Backing: backing("[ds] web/uid-000001.vmdk", "6000-3", backing("[ds] sallyport/uid.vmdk", "6000-2", nil)),
	}}
	all := object.VirtualDeviceList{own, other, under}
	if device(all, "uid", "") != under || device(all, "second", "60001234") != other || device(all, "renamed", "60001") != own || device(all, "none", "") != nil {
		t.Error("a disk was not found, or another was")
	}
	if got := len(files(under)); got != 2 {
		t.Errorf("got %d files", got)
	}
}
