package vsphere

import (
	"context"
	"strconv"
	"strings"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// holder is a machine that a disk is attached to.
type holder struct {
	vm     mo.VirtualMachine
	disk   *types.VirtualDisk // nil if its file is on the way back to where it belongs.
	marked bool               // Attach has attached it.
	mark   mark
}

// id is the marker of the machine, or what vCenter calls one that has none.
func (h holder) id() string {
	if owner := remembered(&h.vm)[OwnerKey]; owner != "" {
		return owner
	}
	return h.vm.Config.InstanceUuid
}

// String names the machine for people, as vCenter shows it.
func (h holder) String() string {
	name := h.vm.Name
	if len(name) > maxBy {
		name = strings.ToValidUTF8(name[:maxBy], "")
	}
	return "machine " + strconv.Quote(name)
}

// inUse is the error for what cannot be done to a disk that a machine has.
func (h holder) inUse(doing string) error {
	if !h.marked {
		return runtime.NewInvalidState(nil, "the disk cannot be %s: %s has it attached, but not by Sallyport: detach it there", doing, h)
	}
	return runtime.NewInvalidState(nil, "the disk cannot be %s: %s has it attached", doing, h)
}

// holders gives the machines on the datastore of a disk that it is attached to. A copy of the disk may have its UUID: only a mark says
// that what is elsewhere may be the disk.
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

// holdersAnywhere gives the machines of the datacenter that a disk may be attached to which is not where it was made: vCenter has moved it
// with a machine. That is a long look, for a disk that would be taken for lost without.
//
// A machine of which vCenter has lost the configuration could have the disk: as long as nobody is found to have it, nothing is known.
func (r *Runtime) holdersAnywhere(ctx context.Context, d runtime.Disk, at *spot) ([]holder, error) {
	all, unknown, err := r.havingDisk(ctx, d, at, types.ObjectSpec{
		Obj: at.center, Skip: new(true), SelectSet: []types.BaseSelectionSpec{&types.TraversalSpec{
			Type: "Datacenter", Path: "datastore", Skip: new(true),
			SelectSet: []types.BaseSelectionSpec{&types.TraversalSpec{Type: "Datastore", Path: "vm"}},
		}},
	}, "config.hardware.device", "config.extraConfig")
	if err == nil && len(all) == 0 && unknown != "" {
		return nil, runtime.NewUnavailable(nil, "vCenter %s does not show the configuration of machine %s, which may have the disk",
			r.server.config.Name, unknown)
	}
	return all, err
}

// havingDisk looks at machines in one request, and closer at those that may have the disk. A machine that the account may not see into
// could be one: that is an error. One that has no configuration is being made, or vCenter has lost it: it is unknown.
func (r *Runtime) havingDisk(ctx context.Context, d runtime.Disk, at *spot, machines types.ObjectSpec, properties ...string) (
	all []holder, unknown string, err error,
) {
	var close []types.ManagedObjectReference
	err = r.retrieve(ctx, types.PropertyFilterSpec{
		ObjectSet: []types.ObjectSpec{machines}, PropSet: []types.PropertySpec{{Type: "VirtualMachine", PathSet: properties}},
	}, only(func(vm mo.VirtualMachine) {
		if vm.Config == nil {
			unknown = max(unknown, vm.Self.Value) // always the same one
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
			err = nil // It has gone in between.
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

// having reports whether a machine may have a disk: a device of it is the file of the disk, by its name or by the UUID that the disk was made
// with. What the machine's mark says of the UUID does not matter, since everybody can write it who may edit the machine.
func having(vm mo.VirtualMachine, d runtime.Disk) (h holder, has bool) {
	if vm.Config == nil {
		return h, false // What is on keeps its files locked.
	}
	m, marked := markOf(marksOf(vm.Config.ExtraConfig), d.UID)
	h = holder{vm: vm, disk: device(vm.Config.Hardware.Device, d.UID, d.ID), mark: m, marked: marked}
	return h, h.disk != nil || m.away != ""
}
