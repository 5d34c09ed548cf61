package machine

import (
	"context"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// contents are the devices of a machine, and those that it had when its snapshots were taken.
type contents struct {
	vm        mo.VirtualMachine
	snapshots []mo.VirtualMachineSnapshot
}

func (r *Runtime) readContents(ctx context.Context, of types.ManagedObjectReference) (*contents, error) {
	c := &contents{}
	below := &types.TraversalSpec{SelectionSpec: types.SelectionSpec{Name: "below"}, Type: "VirtualMachineSnapshot", Path: "childSnapshot",
		SelectSet: []types.BaseSelectionSpec{&types.SelectionSpec{Name: "below"}}}
	err := r.Retrieve(ctx, types.PropertyFilterSpec{
		ObjectSet: []types.ObjectSpec{{Obj: of, SelectSet: []types.BaseSelectionSpec{
			&types.TraversalSpec{Type: "VirtualMachine", Path: "rootSnapshot", SelectSet: []types.BaseSelectionSpec{below}},
		}}},
		PropSet: []types.PropertySpec{
			{Type: "VirtualMachine", PathSet: []string{
				"config.changeVersion", "config.files.vmPathName", "config.hardware.device", "runtime.consolidationNeeded", "snapshot",
			}},
			{Type: "VirtualMachineSnapshot", PathSet: []string{"config.hardware.device"}},
		},
	}, func(object any) {
		switch object := object.(type) {
		case mo.VirtualMachine:
			c.vm = object
		case mo.VirtualMachineSnapshot:
			c.snapshots = append(c.snapshots, object)
		}
	})
	switch {
	case err != nil:
		return nil, err
	case c.vm.Self.Value == "":
		return nil, runtime.NewNotFound(nil, "vCenter %s no longer has the machine", r.Config.Name)
	case !c.known():
		return nil, runtime.NewUnavailable(nil, "vCenter %s does not show the devices of the machine and of its snapshots", r.Config.Name)
	}
	return c, nil
}

// known reports whether vCenter has shown all devices: a machine always has some.
func (c *contents) known() bool {
	if c.vm.Config == nil || len(c.vm.Config.Hardware.Device) == 0 || c.vm.Snapshot != nil && len(c.snapshots) == 0 {
		return false
	}
	for _, snapshot := range c.snapshots {
		if len(snapshot.Config.Hardware.Device) == 0 {
			return false
		}
	}
	return true
}

// detachable returns an error if part of the disk's data would stay behind: the machine then writes to another file than that of the disk. A
// disk that rests on another one for any other reason, such as a linked clone, is whole.
func (c *contents) detachable(disk *types.VirtualDisk, name string) error {
	switch {
	case !layered(disk):
		return nil
	case c.vm.Snapshot != nil:
		return heldBySnapshots(name)
	case c.vm.Runtime.ConsolidationNeeded:
		return runtime.NewInvalidState(nil, "disk %s cannot be detached: part of its data is in files of a deleted snapshot. Consolidate the machine's disks "+
			"in vCenter", name)
	}
	return nil
}

func heldBySnapshots(disk string) error {
	return runtime.NewInvalidState(nil, "disk %s cannot be detached: snapshots of the machine hold part of its data. Delete the snapshots in vCenter", disk)
}

// layered reports whether a disk rests on another file.
func layered(disk *types.VirtualDisk) bool {
	switch b := disk.Backing.(type) {
	case *types.VirtualDiskFlatVer2BackingInfo:
		return b.Parent != nil
	case *types.VirtualDiskSeSparseBackingInfo:
		return b.Parent != nil
	case *types.VirtualDiskSparseVer2BackingInfo:
		return b.Parent != nil
	}
	return false
}
