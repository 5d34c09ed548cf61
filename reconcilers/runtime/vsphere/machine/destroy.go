package machine

import (
	"context"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/inventory"
)

// destroy starts to destroy a machine that Sallyport created, which must be off. vCenter destroys every attached disk
// with it, so disks that are not the machine's own are detached first. Snapshots go with the machine, and the files that they refer to, also
// of a disk that is detached: such a disk blocks the deletion.
func (r *Runtime) destroy(ctx context.Context, m runtime.Machine, s *sighting) error {
	if s.power() != v1alpha1.PowerStopped {
		return runtime.NewInvalidState(nil, "the machine is not off")
	}
	s, err := r.withoutDisks(ctx, m, s)
	if err != nil {
		return err
	}
	var vm mo.VirtualMachine
	if err := r.Read(ctx, s.vm.Self, &vm, "config.files.vmPathName", "config.hardware.device"); err != nil {
		return err
	}
	var foreign []*types.VirtualDisk
	for _, device := range object.VirtualDeviceList(vm.Config.Hardware.Device).SelectByType((*types.VirtualDisk)(nil)) {
		switch disk := device.(*types.VirtualDisk); {
		case inventory.OwnDisk(vm.Config.Files.VmPathName, disk):
		case underSnapshot(disk):
			return heldBySnapshots(object.VirtualDeviceList(vm.Config.Hardware.Device).Name(disk))
		case disk.VDiskId != nil:
			if err := r.unplug(ctx, s, disk); err != nil {
				return err
			}
		default:
			foreign = append(foreign, disk)
		}
	}
	if len(foreign) > 0 {
		if s, err = r.existing(ctx, m); err != nil {
			return err
		}
		if err := r.Reconfigure(ctx, &s.vm, removal(foreign...)); err != nil {
			return err
		}
	}
	return r.begin(ctx, s, func(vm *object.VirtualMachine) (*object.Task, error) { return vm.Destroy(ctx) })
}

// withoutDisks detaches every VirtualDisk from a machine, and reads the machine again. A disk that cannot be detached blocks the deletion.
func (r *Runtime) withoutDisks(ctx context.Context, m runtime.Machine, s *sighting) (*sighting, error) {
	if len(s.disks) == 0 {
		return s, nil
	}
	for _, on := range s.disks {
		if err := r.Detach(ctx, m, on.UID); err != nil {
			return nil, err
		}
	}
	s, err := r.existing(ctx, m)
	if err == nil && len(s.disks) > 0 {
		return nil, runtime.NewInvalidState(nil, "VirtualDisk %s was attached to the machine while it was being removed", s.disks[0].Name)
	}
	return s, err
}
