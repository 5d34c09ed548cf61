package vcsim

import (
	"fmt"
	"maps"
	"strings"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// diskManager makes, grows and deletes files of disks as a vCenter does: what a machine that is on has is locked. What a machine has that
// is off is not.
type diskManager struct {
	*simulator.VirtualDiskManager
	center *VCenter
}

// CreateVirtualDiskTask begins to make a disk.
func (d *diskManager) CreateVirtualDiskTask(ctx *simulator.Context, req *types.CreateVirtualDisk_Task) soap.HasFault {
	d.center.mu.Lock()
	hold := d.center.holdsDisks
	d.center.mu.Unlock()
	if hold == nil {
		return d.VirtualDiskManager.CreateVirtualDiskTask(ctx, req)
	}
	t := d.center.newTask(ctx, d, "createVirtualDisk", asked(ctx), true)
	d.center.background.Go(func() {
		if !t.wait(d.center, hold, 0) {
			return
		}
		ctx := d.center.context()
		body := d.VirtualDiskManager.CreateVirtualDiskTask(ctx, req).(*methods.CreateVirtualDisk_TaskBody)
		refused := ended(ctx, body.Res.Returnval)
		ctx.WithLock(t, func() { t.end(ctx, refused, "The disk could not be made.") })
	})
	return &methods.CreateVirtualDisk_TaskBody{Res: &types.CreateVirtualDisk_TaskResponse{Returnval: t.Self}}
}

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

// ExtendVirtualDiskTask begins to grow a disk.
func (d *diskManager) ExtendVirtualDiskTask(ctx *simulator.Context, req *types.ExtendVirtualDisk_Task) soap.HasFault {
	if d.center.locked(req.Name, nil) {
		return &methods.ExtendVirtualDisk_TaskBody{Fault_: fault(new(types.FileLocked))}
	}
	return d.VirtualDiskManager.ExtendVirtualDiskTask(ctx, req)
}

// DeleteVirtualDiskTask begins to delete a disk.
func (d *diskManager) DeleteVirtualDiskTask(ctx *simulator.Context, req *types.DeleteVirtualDisk_Task) soap.HasFault {
	if d.center.locked(req.Name, nil) {
		return &methods.DeleteVirtualDisk_TaskBody{Fault_: fault(new(types.FileLocked))}
	}
	d.center.files.Lock()
	defer d.center.files.Unlock()
	body := d.VirtualDiskManager.DeleteVirtualDiskTask(ctx, req)
	if deleted, is := body.(*methods.DeleteVirtualDisk_TaskBody); is && deleted.Res != nil {
		_ = ended(ctx, deleted.Res.Returnval)
	}
	return body
}

// MoveVirtualDiskTask moves a disk, which keeps its UUID.
func (d *diskManager) MoveVirtualDiskTask(ctx *simulator.Context, req *types.MoveVirtualDisk_Task) soap.HasFault {
	uuid := d.center.diskUUID(ctx, req.SourceName)
	d.center.files.Lock()
	defer d.center.files.Unlock()
	body := d.VirtualDiskManager.MoveVirtualDiskTask(ctx, req)
	if moved, is := body.(*methods.MoveVirtualDisk_TaskBody); is && moved.Res != nil && ended(ctx, moved.Res.Returnval) == nil {
		d.center.mu.Lock()
		defer d.center.mu.Unlock()
		delete(d.center.diskUUIDs, req.SourceName)
		d.center.diskUUIDs[req.DestName] = uuid
	}
	return body
}

// QueryVirtualDiskUuid tells the UUID of a disk.
func (d *diskManager) QueryVirtualDiskUuid(ctx *simulator.Context, req *types.QueryVirtualDiskUuid) soap.HasFault {
	body := d.VirtualDiskManager.QueryVirtualDiskUuid(ctx, req)
	d.center.mu.Lock()
	defer d.center.mu.Unlock()
	if found, is := body.(*methods.QueryVirtualDiskUuidBody); is && found.Res != nil && d.center.diskUUIDs[req.Name] != "" {
		found.Res.Returnval = d.center.diskUUIDs[req.Name]
	}
	return body
}

// diskUUID gives the UUID of a disk, and nothing if it has none.
func (v *VCenter) diskUUID(ctx *simulator.Context, file string) string {
	body := v.service.Map.VirtualDiskManager().(*diskManager).QueryVirtualDiskUuid(ctx, &types.QueryVirtualDiskUuid{
		Name: file, Datacenter: v.datacenter(ctx),
	}).(*methods.QueryVirtualDiskUuidBody)
	if body.Res == nil {
		return ""
	}
	return body.Res.Returnval
}

// SetDiskUUID gives the file of a disk another UUID.
func (v *VCenter) SetDiskUUID(file, uuid string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.diskUUIDs[file] = uuid
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
			m.center.saveSize(ctx, disk)
		}
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
	if backing, is := disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo); is && backing.Uuid == "" {
		backing.Uuid = m.center.diskUUID(ctx, file)
	}
	return nil
}

// saveSize has the file of a disk be as large as its device.
func (v *VCenter) saveSize(ctx *simulator.Context, disk *types.VirtualDisk) {
	manager := v.service.Map.VirtualDiskManager().(*diskManager).VirtualDiskManager // past the lock that the machine has on it
	_ = ended(ctx, manager.ExtendVirtualDiskTask(ctx, &types.ExtendVirtualDisk_Task{
		Name: fileOf(disk), Datacenter: v.datacenter(ctx), NewCapacityKb: disk.CapacityInKB,
	}).(*methods.ExtendVirtualDisk_TaskBody).Res.Returnval)
}

func (v *VCenter) datacenter(*simulator.Context) *types.ManagedObjectReference {
	ref := v.first("Datacenter").Reference()
	return &ref
}

func fileOf(disk *types.VirtualDisk) string {
	return disk.Backing.(types.BaseVirtualDeviceFileBackingInfo).GetVirtualDeviceFileBackingInfo().FileName
}

// browser tells of disks how large they are.
type browser struct {
	*simulator.HostDatastoreBrowser
	center *VCenter
}

// SearchDatastoreTask searches a folder.
func (b *browser) SearchDatastoreTask(ctx *simulator.Context, req *types.SearchDatastore_Task) soap.HasFault {
	b.center.files.Lock()
	defer b.center.files.Unlock()
	body := b.HostDatastoreBrowser.SearchDatastoreTask(ctx, req).(*methods.SearchDatastore_TaskBody)
	found := ctx.Map.Get(body.Res.Returnval).(*simulator.Task)
	found.Wait()
	ctx.WithLock(found, func() {
		results, _ := found.Info.Result.(types.HostDatastoreBrowserSearchResults)
		for _, file := range results.File {
			if file, is := file.(*types.VmDiskFileInfo); is {
				descriptor, _, refused := ctx.Map.FileManager().DiskDescriptor(ctx, b.center.datacenter(ctx), req.DatastorePath+"/"+file.Path)
				if refused == nil {
					file.CapacityKb = descriptor.Capacity() / 1024
				}
			}
		}
	})
	return body
}

// wrapDisks has the simulator's disks behave as those of a vCenter.
func (v *VCenter) wrapDisks() {
	registry := v.service.Map
	registry.Put(&diskManager{VirtualDiskManager: registry.VirtualDiskManager().(*simulator.VirtualDiskManager), center: v})
	for _, entity := range registry.All("Datastore") {
		ref := entity.(*simulator.Datastore).Browser
		registry.Put(&browser{registry.Get(ref).(*simulator.HostDatastoreBrowser), v})
	}
}

// SetVSAN has the first datastore behave as one of vSAN does.
func (v *VCenter) SetVSAN() {
	ctx := v.context()
	for _, entity := range v.service.Map.All("Datastore") {
		ds := entity.(*simulator.Datastore)
		ctx.WithLock(ds, func() { ds.Summary.Type = string(types.HostFileSystemVolumeFileSystemTypeVsan) })
	}
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

// MoveDisk moves the file of a disk that the machine has into the machine's folder, and renames it, as Storage vMotion does. It gives its
// new file.
func (v *VCenter) MoveDisk(path, file string) (moved string) {
	v.at(path, func(ctx *simulator.Context, m *machine) {
		var vmx object.DatastorePath
		vmx.FromString(m.Config.Files.VmPathName)
		vmx.Path = vmx.Path[:strings.LastIndex(vmx.Path, "/")+1] + m.Name + "_1.vmdk"
		moved = vmx.String()
		center := v.datacenter(ctx)
		body := v.service.Map.VirtualDiskManager().MoveVirtualDiskTask(ctx, &types.MoveVirtualDisk_Task{
			SourceName: file, SourceDatacenter: center, DestName: moved, DestDatacenter: center,
		})
		if refused := ended(ctx, body.(*methods.MoveVirtualDisk_TaskBody).Res.Returnval); refused != nil {
			panic(fmt.Sprintf("vcsim: moving %s: %T", file, refused))
		}
		for _, device := range object.VirtualDeviceList(m.Config.Hardware.Device).SelectByType((*types.VirtualDisk)(nil)) {
			if disk := device.(*types.VirtualDisk); fileOf(disk) == file {
				disk.Backing.(types.BaseVirtualDeviceFileBackingInfo).GetVirtualDeviceFileBackingInfo().FileName = moved
			}
		}
		m.relock()
	})
	return moved
}

// SnapshotDisk has the machine write to another file in place of that one, on which it rests, as after a snapshot.
func (v *VCenter) SnapshotDisk(path, file string) {
	v.at(path, func(_ *simulator.Context, m *machine) {
		for _, device := range object.VirtualDeviceList(m.Config.Hardware.Device).SelectByType((*types.VirtualDisk)(nil)) {
			disk := device.(*types.VirtualDisk)
			if under := disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo); under.FileName == file {
				over := *under
				over.FileName, over.Parent = strings.TrimSuffix(file, ".vmdk")+"-000001.vmdk", under
				disk.Backing = &over
			}
		}
	})
}

// CopyDisk copies the file of a disk.
func (v *VCenter) CopyDisk(file, to string) {
	ctx := v.context()
	center := v.datacenter(ctx)
	body := v.service.Map.VirtualDiskManager().CopyVirtualDiskTask(ctx, &types.CopyVirtualDisk_Task{
		SourceName: file, SourceDatacenter: center, DestName: to, DestDatacenter: center,
	})
	if refused := ended(ctx, body.(*methods.CopyVirtualDisk_TaskBody).Res.Returnval); refused != nil {
		panic(fmt.Sprintf("vcsim: copying %s: %T", file, refused))
	}
}

// DeviceUUID gives the UUID that the machine shows for its first disk, as Sallyport writes it.
func (v *VCenter) DeviceUUID(path string) (uuid string) {
	v.at(path, func(_ *simulator.Context, m *machine) {
		for _, device := range object.VirtualDeviceList(m.Config.Hardware.Device).SelectByType((*types.VirtualDisk)(nil)) {
			if backing, is := device.GetVirtualDevice().Backing.(*types.VirtualDiskFlatVer2BackingInfo); is && uuid == "" {
				uuid = strings.ReplaceAll(backing.Uuid, "-", "")
			}
		}
	})
	return uuid
}
