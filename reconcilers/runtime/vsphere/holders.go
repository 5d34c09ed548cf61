package vsphere

import (
	"context"
	"strconv"
	"strings"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// holder is a machine to which a disk is attached.
type holder struct {
	vm     mo.VirtualMachine
	disk   *types.VirtualDisk // nil if its file is being moved back to where it belongs
	marked bool               // attached by Attach
	mark   mark
}

// id returns the mark of the machine, or vCenter's ID of one without a mark.
func (h holder) id() string {
	if owner := remembered(&h.vm)[OwnerKey]; owner != "" {
		return owner
	}
	return h.vm.Config.InstanceUuid
}

// String returns the machine's name for messages.
func (h holder) String() string {
	name := h.vm.Name
	if len(name) > maxBy {
		name = strings.ToValidUTF8(name[:maxBy], "")
	}
	return "machine " + strconv.Quote(name)
}

// inUse returns the error of a change that an attached disk does not allow.
func (h holder) inUse(doing string) error {
	if !h.marked {
		return runtime.NewInvalidState(nil, "the disk cannot be %s: %s has it attached, but not by Sallyport: detach it there", doing, h)
	}
	return runtime.NewInvalidState(nil, "the disk cannot be %s: %s has it attached", doing, h)
}

// holders returns the machines on the disk's datastore to which it is attached. A copy of the disk may have its UUID:
// elsewhere only a mark says that a device may be the disk.
func (r *Runtime) holders(ctx context.Context, d runtime.Disk, at *spot) (all []holder, err error) {
	found, _, err := r.havingDisk(ctx, d, at, types.ObjectSpec{
		Obj: at.datastore.Self, Skip: new(true), SelectSet: []types.BaseSelectionSpec{&types.TraversalSpec{Type: "Datastore", Path: "vm"}},
	}, "config.hardware.device")
	for _, h := range found {
		if h.marked || fileOf(h.disk, d.UID) {
			all = append(all, h)
		}
	}
	return all, err
}

// holdersAnywhere returns the machines of the datacenter that may have a disk which is not where it was created:
// vCenter has moved it with a machine. This is a long read, for disks that would otherwise count as lost.
//
// A machine whose configuration vCenter has lost could have the disk: if no holder is found, the state is then
// unknown.
func (r *Runtime) holdersAnywhere(ctx context.Context, d runtime.Disk, at *spot) ([]holder, error) {
	all, unknown, err := r.havingDisk(ctx, d, at, types.ObjectSpec{
		Obj: at.center, Skip: new(true), SelectSet: []types.BaseSelectionSpec{&types.TraversalSpec{
			Type: "Datacenter", Path: "datastore", Skip: new(true),
			SelectSet: []types.BaseSelectionSpec{&types.TraversalSpec{Type: "Datastore", Path: "vm"}},
		}},
	}, "config.hardware.device", "config.extraConfig")
	if err == nil && len(all) == 0 && unknown != "" {
		return nil, runtime.NewUnavailable(nil, "vCenter %s does not show the configuration of machine %s, which may have the disk",
			r.server.Config.Name, unknown)
	}
	return all, err
}

// havingDisk reads machines in one request, and those that may have the disk in detail. A machine whose configuration
// the account may not read could have it: that is an error. A machine without a configuration is being created, or
// vCenter has lost it: that is unknown.
func (r *Runtime) havingDisk(ctx context.Context, d runtime.Disk, at *spot, machines types.ObjectSpec, properties ...string) (
	all []holder, unknown string, err error,
) {
	var close []types.ManagedObjectReference
	err = r.retrieve(ctx, types.PropertyFilterSpec{
		ObjectSet: []types.ObjectSpec{machines}, PropSet: []types.PropertySpec{{Type: "VirtualMachine", PathSet: properties}},
	}, only(func(vm mo.VirtualMachine) {
		if vm.Config == nil {
			unknown = max(unknown, vm.Self.Value) // deterministic
		}
		if _, has := having(vm, d); has {
			close = append(close, vm.Self)
		}
	}))
	for _, ref := range close {
		if err != nil {
			return nil, "", err
		}
		var vm mo.VirtualMachine
		err = r.read(ctx, ref, &vm, "name", "config.changeVersion", "config.extraConfig", "config.hardware.device", "config.instanceUuid")
		if runtime.IsNotFound(err) {
			err = nil // it was removed in the meantime
			continue
		}
		h, has := having(vm, d)
		if err == nil && has && h.disk == nil {
			has, err = r.onItsWay(ctx, d, at, h.mark)
		}
		if has {
			all = append(all, h)
		}
	}
	return all, unknown, err
}

// having reports whether a machine may have a disk: a device has the disk's file, by its name or by the UUID at
// creation. The UUID in the machine's mark is ignored, since users who may edit the machine can write it.
func having(vm mo.VirtualMachine, d runtime.Disk) (h holder, has bool) {
	if vm.Config == nil {
		return h, false // a running machine keeps its files locked
	}
	m, marked := markOf(marksOf(vm.Config.ExtraConfig), d.UID)
	h = holder{vm: vm, disk: device(vm.Config.Hardware.Device, d.UID, d.ID), mark: m, marked: marked}
	return h, h.disk != nil || m.away != ""
}
