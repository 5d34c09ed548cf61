package vsphere

import (
	"context"
	"path"
	"slices"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	kubetypes "k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// destroy starts to destroy a machine that Sallyport created, which must be off. vCenter destroys every attached disk
// with it, so disks that are not the machine's own are detached first.
func (r *Runtime) destroy(ctx context.Context, m runtime.Machine, s *sighting) error {
	if s.power() != v1alpha1.PowerStopped {
		return runtime.NewInvalidState(nil, "the machine is not off")
	}
	s, err := r.withoutDisks(ctx, m, s)
	if err != nil {
		return err
	}
	var vm mo.VirtualMachine
	if err := r.read(ctx, s.vm.Self, &vm, "config.files.vmPathName", "config.hardware.device"); err != nil {
		return err
	}
	var foreign []types.BaseVirtualDeviceConfigSpec
	for _, device := range object.VirtualDeviceList(vm.Config.Hardware.Device).SelectByType((*types.VirtualDisk)(nil)) {
		if disk := device.(*types.VirtualDisk); !ownDisk(vm.Config.Files.VmPathName, disk) {
			// Without a file operation the file stays.
			foreign = append(foreign, &types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationRemove, Device: disk})
		}
	}
	if len(foreign) > 0 {
		if err := r.reconfigure(ctx, s, types.VirtualMachineConfigSpec{DeviceChange: foreign}); err != nil {
			return err
		}
	}
	return r.begin(ctx, s, func(vm *object.VirtualMachine) (*object.Task, error) { return vm.Destroy(ctx) })
}

// withoutDisks detaches every VirtualDisk from a machine, wherever its file is now, and reads the machine again. A
// disk that cannot be detached blocks the deletion.
func (r *Runtime) withoutDisks(ctx context.Context, m runtime.Machine, s *sighting) (*sighting, error) {
	var disks []kubetypes.UID
	for _, of := range s.marks {
		disks = append(disks, of.disk)
	}
	for _, d := range m.Disks { // its mark may have been removed
		if !slices.Contains(disks, d.UID) {
			disks = append(disks, d.UID)
		}
	}
	if len(disks) == 0 {
		return s, nil
	}
	for _, uid := range disks {
		if err := r.Detach(ctx, m, uid); err != nil {
			return nil, err
		}
	}
	s, err := r.existing(ctx, m)
	if err == nil && len(s.marks) > 0 {
		return nil, runtime.NewInvalidState(nil, "VirtualDisk %s was attached to the machine while it was being removed", s.marks[0].name)
	}
	return s, err
}

// ownDisk reports whether a disk certainly belongs to the machine with that VMX file: it is in the same folder, and
// is not a first-class disk, such as those of CSI volumes.
func ownDisk(vmx string, disk *types.VirtualDisk) bool {
	backing, is := disk.Backing.(types.BaseVirtualDeviceFileBackingInfo)
	return is && disk.VDiskId == nil && path.Dir(backing.GetVirtualDeviceFileBackingInfo().FileName) == path.Dir(vmx)
}
