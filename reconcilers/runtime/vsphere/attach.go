package vsphere

import (
	"cmp"
	"context"
	"path"

	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	kubetypes "k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// Attach attaches the disk to the machine and waits for completion.
func (r *Runtime) Attach(ctx context.Context, m runtime.Machine, d runtime.Disk) error {
	return decide(func() error { return r.attach(ctx, m, d) })
}

func (r *Runtime) attach(ctx context.Context, m runtime.Machine, d runtime.Disk) error {
	s, err := r.existing(ctx, m)
	if err != nil {
		return err
	}
	if of, marked := markOf(s.marks, d.UID); marked && of.away == "" && device(s.devices, d.UID, d.ID) != nil && !s.has(runtime.TaskReconfigure) {
		return nil
	}
	// vCenter does not report what a running reconfiguration changes.
	if _, err := s.busy(""); err != nil {
		return err
	}
	if of := d.Spec.Runtime.VSphere; of != nil && of.ServerRef != m.Spec.Runtime.VSphere.ServerRef {
		return runtime.NewInvalidState(nil, "the disk is on VSphereServer %s, but the machine is on another VSphereServer", of.ServerRef.Name)
	}
	l, err := r.locate(ctx, d)
	switch {
	case err != nil:
		return err
	case !l.exists():
		return runtime.NewNotFound(nil, "vCenter %s has no file of VirtualDisk %s", r.server.Config.Name, d)
	}
	for _, h := range l.holders {
		if h.vm.Self != s.vm.Self || h.disk == nil {
			return h.inUse("attached")
		}
	}
	uuid, err := r.fileUUID(ctx, d, l)
	if err != nil {
		return err
	}
	spec := types.VirtualMachineConfigSpec{
		ExtraConfig: mark{disk: d.UID, name: d.Name, uuid: uuid, datastore: l.datastore.Self.Value}.write(),
	}
	if len(l.holders) == 0 {
		if err := r.isDisk(ctx, l.spot, d, "attached"); err != nil {
			return err
		}
		if spec.DeviceChange, err = r.plug(ctx, s, l, d.UID); err != nil {
			return err
		}
	}
	return r.reconfigure(ctx, s, spec)
}

// fileUUID returns the UUID of the file that is or will be attached.
func (r *Runtime) fileUUID(ctx context.Context, d runtime.Disk, l *located) (string, error) {
	if len(l.holders) > 0 {
		return uuidOf(l.holders[0].disk), nil
	}
	uuid, err := r.uuidAt(ctx, l.spot, d.UID)
	return uuid, r.notGone(err)
}

// plug returns the change that adds the file of a disk to a machine's devices, at a free unit.
//
// The disk is independent of snapshots: after a snapshot with the disk vCenter would write to another file, and
// attaching the disk's own file to the next machine would show old data and corrupt the newer data. Reverting a
// machine leaves the data alone, too.
func (r *Runtime) plug(ctx context.Context, s *sighting, l *located, disk kubetypes.UID) ([]types.BaseVirtualDeviceConfigSpec, error) {
	devices, err := r.devices(ctx, s)
	if err != nil {
		return nil, err
	}
	var changes []types.BaseVirtualDeviceConfigSpec
	add := func(device types.BaseVirtualDevice) {
		changes = append(changes, &types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationAdd, Device: device})
	}
	controller, unit := freeUnit(devices)
	if controller == nil {
		added, err := newController(devices)
		if err != nil {
			return nil, err
		}
		add(added)
		controller = added.(types.BaseVirtualSCSIController).GetVirtualSCSIController()
	}
	datastore := l.datastore.Self
	device := &types.VirtualDisk{VirtualDevice: types.VirtualDevice{
		Key: devices.NewKey() - 1, ControllerKey: controller.Key, UnitNumber: &unit,
		Backing: &types.VirtualDiskFlatVer2BackingInfo{
			VirtualDeviceFileBackingInfo: types.VirtualDeviceFileBackingInfo{FileName: l.home(disk), Datastore: &datastore},
			DiskMode:                     string(types.VirtualDiskModeIndependent_persistent),
			ThinProvisioned:              new(true),
		},
	}}
	add(device)
	return changes, nil
}

func (r *Runtime) devices(ctx context.Context, s *sighting) (object.VirtualDeviceList, error) {
	var vm mo.VirtualMachine
	if err := r.read(ctx, s.vm.Self, &vm, "config.hardware.device"); err != nil {
		return nil, err
	}
	if vm.Config == nil {
		return nil, runtime.NewUnavailable(nil, "vCenter %s does not show the machine's devices", r.server.Config.Name)
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
	return decide(func() error { return r.detach(ctx, m, disk) })
}

func (r *Runtime) detach(ctx context.Context, m runtime.Machine, disk kubetypes.UID) error {
	s, err := r.existing(ctx, m)
	if err != nil {
		return err
	}
	of, on, err := r.attachment(ctx, s, m, disk)
	if err != nil || on == nil && of.name == "" && !s.has(runtime.TaskReconfigure) {
		return err
	}
	if _, err := s.busy(""); err != nil {
		return err
	}
	switch {
	case of.away != "":
		return r.bringHome(ctx, m, s, of)
	case on == nil:
		return r.reconfigure(ctx, s, types.VirtualMachineConfigSpec{ExtraConfig: of.erase()})
	default:
		return r.unplug(ctx, m, s, of, on)
	}
}

// attachment returns the device of a machine's disk and its mark, which is made up for a disk attached by another
// client. A device that only the mark identifies as the disk is an error: the machine keeps it until a user has
// checked.
func (r *Runtime) attachment(ctx context.Context, s *sighting, m runtime.Machine, disk kubetypes.UID) (mark, *types.VirtualDisk, error) {
	d, _ := m.Disk(disk)
	if of, marked := markOf(s.marks, disk); marked {
		on := device(s.devices, disk, d.ID)
		if on == nil && of.away == "" && of.device(s.devices) != nil {
			_, _, err := r.homeOf(ctx, m, of)
			return of, nil, cmp.Or(err, anotherFile(d, "detached", files(of.device(s.devices))[0], of.uuid))
		}
		return of, on, nil
	}
	devices, err := r.devices(ctx, s)
	if err != nil {
		return mark{}, nil, err
	}
	on := device(devices, disk, d.ID)
	if on == nil {
		return mark{}, nil, nil
	}
	return mark{disk: disk, name: cmp.Or(d.Name, string(disk)), uuid: uuidOf(on)}, on, nil
}

// unplug removes a device from a machine and keeps its file. If vCenter has moved the file with the machine, it is
// moved back to where it belongs.
func (r *Runtime) unplug(ctx context.Context, m runtime.Machine, s *sighting, of mark, on *types.VirtualDisk) error {
	all := files(on)
	if len(all) != 1 {
		return runtime.NewInvalidState(nil, "disk %s cannot be detached: snapshots of the machine hold part of its data. Delete the snapshots in vCenter", of.name)
	}
	spec := types.VirtualMachineConfigSpec{
		// Without a file operation the file stays.
		DeviceChange: []types.BaseVirtualDeviceConfigSpec{
			&types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationRemove, Device: on},
		},
		ExtraConfig: of.erase(),
	}
	if stored, err := r.inStore(ctx, on, of.disk); err != nil {
		return err
	} else if _, known := m.Disk(of.disk); stored && !known {
		return r.reconfigure(ctx, s, spec)
	}
	d, at, err := r.homeOf(ctx, m, of)
	if err != nil {
		return err
	}
	if at.isHome(all[0], on, of.disk) {
		return r.reconfigure(ctx, s, spec)
	}
	if err := r.mayMove(ctx, s, at, d, all[0], uuidOf(on)); err != nil {
		return err
	}
	of.datastore = at.datastore.Self.Value
	of.bytes, of.away = capacity(on), all[0]
	spec.ExtraConfig = of.write()
	if err := r.reconfigure(ctx, s, spec); err != nil {
		return err
	}
	s, err = r.readMachine(ctx, s.vm.Self)
	if err != nil {
		return r.notGone(err)
	}
	return r.bringHome(ctx, m, s, of)
}

// isHome reports whether a file is where the disk belongs. On vSAN the folder is reported by its UUID.
func (at *spot) isHome(file string, on *types.VirtualDisk, disk kubetypes.UID) bool {
	ref := datastoreOf(on)
	return file == at.home(disk) || at.vsan() && ref != nil && *ref == at.datastore.Self && path.Base(file) == fileName(disk)
}

// datastoreOf returns the datastore of a device's file, nil if vCenter does not report it.
func datastoreOf(on *types.VirtualDisk) *types.ManagedObjectReference {
	backing, is := on.Backing.(types.BaseVirtualDeviceFileBackingInfo)
	if !is {
		return nil
	}
	return backing.GetVirtualDeviceFileBackingInfo().Datastore
}

// bringHome moves the file of a disk back to where it belongs, waits for completion and removes the mark. Between
// datastores this is a copy that may take longer than a call: meanwhile the mark stays, and the disk counts as
// attached.
func (r *Runtime) bringHome(ctx context.Context, m runtime.Machine, s *sighting, of mark) error {
	d, at, err := r.homeOf(ctx, m, of)
	if err != nil {
		return err
	}
	uuid, err := r.uuidOfFile(ctx, at, of.away)
	if err == nil {
		err = r.mayMove(ctx, s, at, d, of.away, uuid)
	}
	if err == nil {
		err = r.moveHome(ctx, at, of)
	}
	if fault.Is(err, &types.FileNotFound{}) || fault.Is(err, &types.FileAlreadyExists{}) {
		err = r.isBack(ctx, at, d, of) // an earlier call may have moved it
	}
	if err != nil {
		return r.notGone(err)
	}
	return r.reconfigure(ctx, s, types.VirtualMachineConfigSpec{ExtraConfig: of.erase()})
}

func (r *Runtime) moveHome(ctx context.Context, at *spot, of mark) error {
	_, err := r.carryOut(ctx, func(c *vim25.Client) (*object.Task, error) {
		return object.NewVirtualDiskManager(c).MoveVirtualDisk(ctx, of.away, at.dc(c), at.home(of.disk), at.dc(c), false)
	})
	return err
}

// isBack returns an error unless the file of a disk is where it belongs and no longer at its former place.
func (r *Runtime) isBack(ctx context.Context, at *spot, d runtime.Disk, of mark) error {
	_, err := r.uuidOfFile(ctx, at, of.away)
	switch {
	case err == nil:
		return runtime.NewInvalidState(nil, "disk %s cannot be detached yet: its file is at %s and must move back to %s, where a file already exists. If "+
			"nothing is moving the file anymore, delete the existing one", of.name, of.away, at.home(of.disk))
	case !fault.Is(err, &types.FileNotFound{}):
		return err
	}
	file, err := r.fileAt(ctx, at, of.disk)
	if err == nil && file == nil {
		return runtime.NewInvalidState(nil, "disk %s cannot be detached: its file is neither at %s nor at %s. If it is gone for good, "+
			"remove %s from the machine's extraConfig", of.name, of.away, at.home(of.disk), of.key())
	}
	if err != nil {
		return err
	}
	return r.isDisk(ctx, at, d, "detached")
}
