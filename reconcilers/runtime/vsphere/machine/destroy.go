package machine

import (
	"context"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/inventory"
)

// destroy starts to destroy a machine that Sallyport created, which must be off. vCenter destroys every attached disk with it, so destroy
// detaches the disks that are not the machine's own. It checks all of them before it detaches the first, and reads the machine again after each,
// because another client may have attached one.
func (r *Runtime) destroy(ctx context.Context, s *sighting) error {
	if s.power() != v1alpha1.PowerStopped {
		return runtime.NewInvalidState(nil, "the machine is not off")
	}
	for range maxAttached {
		c, err := r.readContents(ctx, s.vm.Self)
		if err != nil {
			return err
		}
		foreign, err := c.foreign(s)
		switch {
		case err != nil:
			return err
		case len(foreign) == 0:
			return r.begin(ctx, s, func(vm *object.VirtualMachine) (*object.Task, error) { return vm.Destroy(ctx) })
		case foreign[0].VDiskId != nil:
			err = r.unplug(ctx, &c.vm, foreign[0])
		default:
			err = r.Reconfigure(ctx, &c.vm, removal(foreign[0]))
		}
		if err != nil {
			return err
		}
	}
	return runtime.NewInvalidState(nil, "the machine has disks that are not its own: detach them in vCenter")
}

// foreign returns the disks of the machine that are not its own. The files to which a snapshot refers go with the machine, also those of a
// disk that is not attached any more: if one of them is not the machine's own, that is an error.
func (c *contents) foreign(s *sighting) (disks []*types.VirtualDisk, err error) {
	for _, disk := range c.disks(c.vm.Config.Hardware.Device) {
		if err := c.detachable(disk, s.nameOf(disk)); err != nil {
			return nil, err
		}
		disks = append(disks, disk)
	}
	for _, snapshot := range c.snapshots {
		for _, disk := range c.disks(snapshot.Config.Hardware.Device) {
			return nil, runtime.NewInvalidState(nil, "the machine cannot be destroyed: vCenter would destroy disk %s with it, to which its snapshots refer. "+
				"Delete the snapshots in vCenter", s.nameOf(disk))
		}
	}
	return disks, nil
}

// disks returns which of the devices are disks that are not the machine's own.
func (c *contents) disks(of object.VirtualDeviceList) (disks []*types.VirtualDisk) {
	for _, device := range of {
		if disk, is := device.(*types.VirtualDisk); is && !inventory.OwnDisk(c.vm.Config.Files.VmPathName, disk) {
			disks = append(disks, disk)
		}
	}
	return disks
}
