package vcsim

import (
	"fmt"
	"maps"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// HoldDisks keeps disks from being made, from the next on, until release is called.
func (v *VCenter) HoldDisks() (release func()) {
	held := make(chan struct{})
	set := func(to chan struct{}) {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.holdsDisks = to
	}
	set(held)
	return func() {
		set(nil)
		close(held)
	}
}

// ended waits for a task of the simulator, and gives what it failed with.
func ended(ctx *simulator.Context, ref types.ManagedObjectReference) types.BaseMethodFault {
	inner := ctx.Map.Get(ref).(*simulator.Task)
	inner.Wait()
	if inner.Info.Error != nil {
		return inner.Info.Error.Fault
	}
	return nil
}

// locked reports whether a machine that is on, another than that one, has the file.
func (v *VCenter) locked(file string, but *machine) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	by := v.locks[file]
	return by != nil && by != but
}

// relock has the machine lock the files of its disks, if it is on, and no others.
func (m *machine) relock() {
	m.center.mu.Lock()
	defer m.center.mu.Unlock()
	maps.DeleteFunc(m.center.locks, func(_ string, by *machine) bool { return by == m })
	if m.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOff {
		return
	}
	for _, file := range m.files() {
		m.center.locks[file] = m
	}
}

// reconfigureDevices begins to change what the machine is made of. As in a vCenter a disk that is added is as large as its file, and the
// file grows with the device.
func (m *machine) reconfigureDevices(ctx *simulator.Context, req *types.ReconfigVM_Task) soap.HasFault {
	ref, refused := m.begin(ctx, "reconfigVm", asked(ctx), func(ctx *simulator.Context) types.BaseMethodFault {
		var grown []*types.VirtualDisk
		for _, change := range req.Spec.DeviceChange {
			change := change.GetVirtualDeviceConfigSpec()
			disk, is := change.Device.(*types.VirtualDisk)
			if !is {
				continue
			}
			refused := m.plug(ctx, change, disk)
			if refused != nil {
				return refused
			}
			if change.Operation == types.VirtualDeviceConfigSpecOperationEdit {
				grown = append(grown, disk)
			}
		}
		body := m.VirtualMachine.ReconfigVMTask(ctx, req).(*methods.ReconfigVM_TaskBody)
		if refused := ended(ctx, body.Res.Returnval); refused != nil {
			return refused
		}
		for _, disk := range grown {
			m.center.saveSize(ctx, fileOf(disk), disk.CapacityInKB)
		}
		m.consume()
		m.relock()
		return nil
	})
	if refused != nil {
		return &methods.ReconfigVM_TaskBody{Fault_: fault(refused)}
	}
	return &methods.ReconfigVM_TaskBody{Res: &types.ReconfigVM_TaskResponse{Returnval: ref}}
}

// plug refuses a change of a disk that a vCenter refuses, and gives one that is added the size of its file.
func (m *machine) plug(ctx *simulator.Context, change *types.VirtualDeviceConfigSpec, disk *types.VirtualDisk) types.BaseMethodFault {
	switch {
	case change.Operation == types.VirtualDeviceConfigSpecOperationEdit && m.Snapshot != nil:
		return new(types.InvalidDeviceOperation)
	case change.Operation != types.VirtualDeviceConfigSpecOperationAdd || change.FileOperation != "":
		return nil
	}
	file := fileOf(disk)
	if m.center.locked(file, m) {
		return new(types.FileLocked)
	}
	descriptor, _, refused := ctx.Map.FileManager().DiskDescriptor(ctx, m.center.datacenter(ctx), file)
	if refused != nil {
		return refused
	}
	disk.CapacityInBytes = descriptor.Capacity()
	disk.CapacityInKB = disk.CapacityInBytes / 1024
	return nil
}

// saveSize has the file of a disk be that large.
func (v *VCenter) saveSize(ctx *simulator.Context, file string, kb int64) {
	_ = ended(ctx, v.service.Map.VirtualDiskManager().(*simulator.VirtualDiskManager).ExtendVirtualDiskTask(ctx, &types.ExtendVirtualDisk_Task{
		Name: file, Datacenter: v.datacenter(ctx), NewCapacityKb: kb,
	}).(*methods.ExtendVirtualDisk_TaskBody).Res.Returnval)
}

func (v *VCenter) datacenter(*simulator.Context) *types.ManagedObjectReference {
	ref := v.first("Datacenter").Reference()
	return &ref
}

func fileOf(disk *types.VirtualDisk) string {
	return disk.Backing.(types.BaseVirtualDeviceFileBackingInfo).GetVirtualDeviceFileBackingInfo().FileName
}

// HandAttach attaches the file of a disk to the machine as an administrator does.
func (v *VCenter) HandAttach(path, file string) {
	v.at(path, func(ctx *simulator.Context, m *machine) {
		devices := object.VirtualDeviceList(m.Config.Hardware.Device)
		controller, err := devices.FindDiskController("")
		if err != nil {
			panic("vcsim: " + err.Error())
		}
		disk := devices.CreateDisk(controller, types.ManagedObjectReference{}, file)
		body := m.VirtualMachine.ReconfigVMTask(ctx, &types.ReconfigVM_Task{This: m.Self, Spec: types.VirtualMachineConfigSpec{
			DeviceChange: []types.BaseVirtualDeviceConfigSpec{
				&types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationAdd, Device: disk},
			},
		}})
		if refused := ended(ctx, body.(*methods.ReconfigVM_TaskBody).Res.Returnval); refused != nil {
			panic(fmt.Sprintf("vcsim: attaching %s: %T", file, refused))
		}
		m.consume()
		m.relock()
	})
}

// BootOrder gives the files of the disks that the machine boots from, the first one first, and nothing for what is no disk.
func (v *VCenter) BootOrder(path string) (order []string) {
	v.at(path, func(_ *simulator.Context, m *machine) {
		for _, entry := range m.Config.BootOptions.BootOrder {
			var file string
			if disk, is := entry.(*types.VirtualMachineBootOptionsBootableDiskDevice); is {
				if on, is := object.VirtualDeviceList(m.Config.Hardware.Device).FindByKey(disk.DeviceKey).(*types.VirtualDisk); is {
					file = fileOf(on)
				}
			}
			order = append(order, file)
		}
	})
	return order
}

// SetBootOrder has the machine boot from its first disk, and then from the network.
func (v *VCenter) SetBootOrder(path string) {
	v.at(path, func(_ *simulator.Context, m *machine) {
		disks := object.VirtualDeviceList(m.Config.Hardware.Device).SelectByType((*types.VirtualDisk)(nil))
		m.Config.BootOptions.BootOrder = []types.BaseVirtualMachineBootOptionsBootableDevice{
			&types.VirtualMachineBootOptionsBootableDiskDevice{DeviceKey: disks[0].GetVirtualDevice().Key},
			&types.VirtualMachineBootOptionsBootableEthernetDevice{},
		}
	})
}
