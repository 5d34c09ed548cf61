package machine

import (
	"context"
	"slices"
	"strings"

	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	kubetypes "k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// attachment is a VirtualDisk that a machine has.
type attachment struct {
	runtime.Disk
	device *types.VirtualDisk
}

// DeviceOf returns the device that is the disk with that ID, nil if there is none.
func DeviceOf(all object.VirtualDeviceList, id string) *types.VirtualDisk {
	for _, d := range all {
		if d, is := d.(*types.VirtualDisk); is && d.VDiskId != nil && id != "" && strings.EqualFold(d.VDiskId.Id, id) {
			return d
		}
	}
	return nil
}

// attachmentsOf returns which of the disks the devices are, by their names.
func attachmentsOf(devices object.VirtualDeviceList, disks []runtime.Disk) (all []attachment) {
	for _, d := range disks {
		if on := DeviceOf(devices, d.ID); on != nil {
			all = append(all, attachment{d, on})
		}
	}
	slices.SortFunc(all, func(a, b attachment) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// maxAttached limits the reported disks, like the schema of the status.
const maxAttached = 64

// attached returns the attached VirtualDisks.
func (s *sighting) attached() (disks []v1alpha1.AttachedDisk) {
	for _, on := range s.disks[:min(len(s.disks), maxAttached)] {
		disks = append(disks, v1alpha1.AttachedDisk{Name: on.Name, UID: on.UID})
	}
	return disks
}

// disk returns the attachment of that VirtualDisk, and false if the machine does not have it.
func (s *sighting) disk(uid kubetypes.UID) (on attachment, has bool) {
	i := slices.IndexFunc(s.disks, func(on attachment) bool { return on.UID == uid })
	if i < 0 {
		return on, false
	}
	return s.disks[i], true
}

// nameOf returns the name of the VirtualDisk that a device is, or vCenter's own.
func (s *sighting) nameOf(device *types.VirtualDisk) string {
	for _, on := range s.disks {
		if device.VDiskId != nil && strings.EqualFold(on.ID, device.VDiskId.Id) {
			return on.Name
		}
	}
	return object.VirtualDeviceList{}.Name(device)
}

// AttachFound attaches a disk to the machine and waits for completion. found returns the disk, or an error if it cannot be attached to a
// machine; it is called when the machine is ready.
func (r *Runtime) AttachFound(
	ctx context.Context, m runtime.Machine, d runtime.Disk, found func(context.Context) (*types.VStorageObjectConfigInfo, error),
) error {
	return Decide(func() error { return r.attach(ctx, m.With(d), d, found) })
}

func (r *Runtime) attach(
	ctx context.Context, m runtime.Machine, d runtime.Disk, found func(context.Context) (*types.VStorageObjectConfigInfo, error),
) error {
	s, err := r.existing(ctx, m)
	if err != nil {
		return err
	}
	if _, has := s.disk(d.UID); has && !s.has(runtime.TaskReconfigure) {
		return nil
	}
	// vCenter does not report what a running reconfiguration changes.
	if _, err := s.busy(""); err != nil {
		return err
	}
	of, err := found(ctx)
	if err != nil {
		return err
	}
	controller, unit, err := r.placeFor(ctx, s)
	if err != nil {
		return err
	}
	err = r.plug(ctx, s, of, controller, unit)
	if tracked := of.ChangedBlockTrackingEnabled; tracked != nil && *tracked && fault.Is(err, &types.InvalidState{}) {
		// A backup has turned it on, of a machine that had the disk earlier (kubernetes-sigs/vsphere-csi-driver#1416, VMware KB 88193).
		return runtime.NewInvalidState(err, "vCenter %s refuses to attach the disk. Changed block tracking is on for it, and must then be on for the machine: "+
			"turn it on there (govc vm.change -e ctkEnabled=TRUE), and restart the machine", r.Config.Name)
	}
	return err
}

func (r *Runtime) plug(ctx context.Context, s *sighting, of *types.VStorageObjectConfigInfo, controller, unit int32) error {
	_, err := r.CarryOut(ctx, func(c *vim25.Client) (*object.Task, error) {
		begun, err := methods.AttachDisk_Task(ctx, c, &types.AttachDisk_Task{
			This: s.vm.Self, DiskId: of.Id, Datastore: of.Backing.GetBaseConfigInfoBackingInfo().Datastore, ControllerKey: controller, UnitNumber: &unit,
		})
		if err != nil {
			return nil, err
		}
		return object.NewTask(c, begun.Returnval), nil
	})
	return err
}

// placeFor returns a free place for a disk: the key of a SCSI controller, and a unit. If all are taken, it adds a controller.
func (r *Runtime) placeFor(ctx context.Context, s *sighting) (controller, unit int32, err error) {
	devices, err := r.devices(ctx, s)
	if err != nil {
		return 0, 0, err
	}
	on, unit := freeUnit(devices)
	if on == nil {
		added, err := newController(devices)
		if err != nil {
			return 0, 0, err
		}
		if err := r.Reconfigure(ctx, &s.vm, types.VirtualMachineConfigSpec{DeviceChange: []types.BaseVirtualDeviceConfigSpec{
			&types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationAdd, Device: added},
		}}); err != nil {
			return 0, 0, err
		}
		if devices, err = r.devices(ctx, s); err != nil {
			return 0, 0, err
		}
		if on, unit = freeUnit(devices); on == nil {
			return 0, 0, runtime.NewInvalidState(nil, "the SCSI controller that was added to the machine is full or gone")
		}
	}
	return on.Key, unit, nil
}

func (r *Runtime) devices(ctx context.Context, s *sighting) (object.VirtualDeviceList, error) {
	var vm mo.VirtualMachine
	if err := r.Read(ctx, s.vm.Self, &vm, "config.hardware.device"); err != nil {
		return nil, err
	}
	if vm.Config == nil {
		return nil, runtime.NewUnavailable(nil, "vCenter %s does not show the machine's devices", r.Config.Name)
	}
	return vm.Config.Hardware.Device, nil
}

// The units of a SCSI controller, of which the controller itself takes one. Paravirtual controllers have more.
const scsiUnits = 16

// freeUnit returns a free unit on one of the SCSI controllers, and none if all are taken. The helpers of package
// object panic at an unknown unit.
func freeUnit(devices object.VirtualDeviceList) (*types.VirtualSCSIController, int32) {
	for _, d := range devices {
		is, ok := d.(types.BaseVirtualSCSIController)
		if !ok {
			continue
		}
		controller := is.GetVirtualSCSIController()
		if shared := controller.SharedBus; shared != "" && shared != types.VirtualSCSISharingNoSharing {
			continue // a shared bus is meant for several machines
		}
		taken := map[int32]bool{7: true, controller.ScsiCtlrUnitNumber: true}
		for _, other := range devices {
			if on := other.GetVirtualDevice(); on.ControllerKey == controller.Key && on.UnitNumber != nil {
				taken[*on.UnitNumber] = true
			}
		}
		for unit := range int32(scsiUnits) {
			if !taken[unit] {
				return controller, unit
			}
		}
	}
	return nil, 0
}

// newController returns another SCSI controller for a machine.
func newController(devices object.VirtualDeviceList) (types.BaseVirtualDevice, error) {
	added, err := devices.CreateSCSIController("pvscsi")
	if err != nil {
		return nil, runtime.NewInvalidState(err, "the machine has no room for another SCSI controller")
	}
	controller := added.(types.BaseVirtualSCSIController).GetVirtualSCSIController()
	if controller.BusNumber < 0 {
		return nil, runtime.NewInvalidState(nil, "all slots of the machine's four SCSI controllers are in use")
	}
	controller.Key = devices.NewKey()
	return added, nil
}

// Detach detaches the disk from the machine and waits for completion.
func (r *Runtime) Detach(ctx context.Context, m runtime.Machine, disk kubetypes.UID) error {
	return Decide(func() error { return r.detach(ctx, m, disk) })
}

func (r *Runtime) detach(ctx context.Context, m runtime.Machine, disk kubetypes.UID) error {
	s, err := r.existing(ctx, m)
	if err != nil {
		return err
	}
	on, has := s.disk(disk)
	if !has && !s.has(runtime.TaskReconfigure) {
		return nil
	}
	if _, err := s.busy(""); err != nil {
		return err
	}
	if layered(on.device) {
		c, err := r.readContents(ctx, s.vm.Self)
		if err != nil {
			return err
		}
		if err := c.detachable(on.device, on.Name); err != nil {
			return err
		}
	}
	return r.unplug(ctx, &s.vm, on.device)
}

// unplug takes a First Class Disk from a machine. One that the catalog has lost, as before vCenter 7.0 Update 3 with each Storage vMotion
// (kubernetes-sigs/vsphere-csi-driver#365, #1192), is a disk like others: its file stays.
func (r *Runtime) unplug(ctx context.Context, vm *mo.VirtualMachine, on *types.VirtualDisk) error {
	_, err := r.CarryOut(ctx, func(c *vim25.Client) (*object.Task, error) {
		begun, err := methods.DetachDisk_Task(ctx, c, &types.DetachDisk_Task{This: vm.Self, DiskId: *on.VDiskId})
		if err != nil {
			return nil, err
		}
		return object.NewTask(c, begun.Returnval), nil
	})
	if fault.Is(err, &types.NotFound{}) {
		return r.Reconfigure(ctx, vm, removal(on))
	}
	return err
}

// removal has vCenter take a disk from a machine. Without a file operation its files stay.
func removal(disk *types.VirtualDisk) types.VirtualMachineConfigSpec {
	return types.VirtualMachineConfigSpec{DeviceChange: []types.BaseVirtualDeviceConfigSpec{
		&types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationRemove, Device: disk},
	}}
}
