package vcsim

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/simulator/esx"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vim25/xml"
)

// CloneVMTask begins to make a machine. As in a vCenter the task is one of what is cloned, of which several can be in flight, and only its
// event says what is made; the name is taken from the beginning, and the machine is there at the end.
func (m *machine) CloneVMTask(ctx *simulator.Context, req *types.CloneVM_Task) soap.HasFault {
	body := new(methods.CloneVM_TaskBody)
	folder, is := ctx.Map.Get(req.Folder).(*simulator.Folder)
	if !is {
		body.Fault_ = fault(&types.InvalidArgument{InvalidProperty: "folder"})
		return body
	}
	t := m.newTask(ctx, "clone", asked(ctx))
	t.Info.EventChainId = m.center.tellOfClone(ctx, m, folder, req.Name)
	place := m.center.pathOf(ctx, folder) + "/" + req.Name
	taken := !m.center.reserve(place)
	hold, step := m.holds["clone"], m.step
	m.read++
	m.center.background.Go(func() {
		if !taken {
			defer m.center.release(place)
		}
		defer func() {
			ctx := m.center.context()
			ctx.WithLock(m, func() { m.read-- })
		}()
		m.center.runClone(m, t, req, place, taken, hold, step)
	})
	body.Res = &types.CloneVM_TaskResponse{Returnval: t.Self}
	return body
}

// tellOfClone posts the event that says what a clone is to be called, and gives its chain.
func (v *VCenter) tellOfClone(ctx *simulator.Context, m *machine, folder *simulator.Folder, name string) int32 {
	event := &types.VmBeingClonedEvent{
		DestFolder: types.FolderEventArgument{EntityEventArgument: types.EntityEventArgument{Name: folder.Name}, Folder: folder.Self},
		DestName:   name,
	}
	host := ctx.Map.Get(*m.Runtime.Host).(*simulator.HostSystem)
	event.Host = &types.HostEventArgument{EntityEventArgument: types.EntityEventArgument{Name: host.Name}, Host: host.Self}
	center := m.center.first("Datacenter").(*simulator.Datacenter)
	event.Datacenter = &types.DatacenterEventArgument{EntityEventArgument: types.EntityEventArgument{Name: center.Name}, Datacenter: center.Self}
	event.DestHost = *event.Host
	event.Vm = &types.VmEventArgument{EntityEventArgument: types.EntityEventArgument{Name: m.Name}, Vm: m.Self}
	manager := ctx.Map.EventManager()
	ctx.WithLock(manager, func() { manager.PostEvent(ctx, &types.PostEvent{EventToPost: event}) })
	return event.ChainId
}

// reserve takes a place for a machine that is being made, and reports whether it was free.
func (v *VCenter) reserve(place string) bool {
	v.mu.Lock()
	there := v.machines[place]
	v.mu.Unlock()
	if there != nil && !v.listed(there) {
		v.forget(there)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.machines[place] != nil || v.making[place] {
		return false
	}
	v.making[place] = true
	return true
}

// listed reports whether a machine is in its folder. One that was destroyed while it became ours is not: the simulator destroys its own.
func (v *VCenter) listed(m *machine) (is bool) {
	ctx := v.context()
	var parent *types.ManagedObjectReference
	ctx.WithLock(m, func() { parent = m.Parent })
	if parent == nil {
		return false
	}
	folder, known := ctx.Map.Get(*parent).(*simulator.Folder)
	if !known {
		return true
	}
	ctx.WithLock(folder, func() { is = slices.Contains(folder.ChildEntity, m.Self) })
	return is
}

// Making reports whether a machine is being made at that path.
func (v *VCenter) Making(path string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.making[path]
}

func (v *VCenter) release(place string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.making, place)
}

func (v *VCenter) runClone(m *machine, t *task, req *types.CloneVM_Task, place string, taken bool, hold <-chan struct{}, step time.Duration) {
	if !t.wait(v, hold, step) {
		return
	}
	ctx := v.context()
	var refused types.BaseMethodFault
	switch {
	case t.withdrawn():
		refused = new(types.RequestCanceled)
	case taken:
		refused = &types.DuplicateName{Name: req.Name, Object: req.Folder}
	default:
		refused = v.finishClone(ctx, m, t, req, place)
	}
	ctx.WithLock(t, func() { t.end(ctx, refused, fmt.Sprintf("The machine %s could not be made (%T).", req.Name, refused)) })
}

// finishClone makes the machine. The simulator's own clone would hold on to what is cloned while the machine gets into the views of
// clients, who wait for that with the views in their hands. Nobody finds it as what they asked for before it behaves as the others do.
func (v *VCenter) finishClone(ctx *simulator.Context, m *machine, t *task, req *types.CloneVM_Task, place string) types.BaseMethodFault {
	var config, known types.VirtualMachineConfigSpec
	host := req.Spec.Location.Host
	ctx.WithLock(m, func() {
		config, known = m.copied(req), m.known(req.Spec.Config)
		if host == nil {
			host = m.Runtime.Host
		}
	})
	if v.knows(ctx, known.InstanceUuid) {
		known.InstanceUuid = "" // as a vCenter does, it gives another one
	}
	folder := ctx.Map.Get(req.Folder).(*simulator.Folder)
	var made *simulator.Task
	ctx.WithLock(folder, func() {
		body := folder.CreateVMTask(ctx, &types.CreateVM_Task{This: folder.Self, Config: config, Pool: *req.Spec.Location.Pool, Host: host})
		made = ctx.Map.Get(body.(*methods.CreateVM_TaskBody).Res.Returnval).(*simulator.Task)
	})
	made.Wait()
	if made.Info.Error != nil {
		return made.Info.Error.Fault
	}
	clone := v.wrap(made.Info.Result.(types.ManagedObjectReference), place)
	ctx.WithLock(m, func() {
		clone.step, clone.hotAdd, clone.noTools, clone.ignores, clone.ignoresCancels = m.step, m.hotAdd, m.noTools, m.ignores, m.ignoresCancels
	})
	var changed *simulator.Task
	ctx.WithLock(clone, func() {
		body := clone.VirtualMachine.ReconfigVMTask(ctx, &types.ReconfigVM_Task{This: clone.Self, Spec: known})
		changed = ctx.Map.Get(body.(*methods.ReconfigVM_TaskBody).Res.Returnval).(*simulator.Task)
	})
	changed.Wait()
	// The simulator does not tell of this change, and a watch may have seen the machine before it.
	ctx.WithLock(clone, func() {
		ctx.Update(clone, []types.PropertyChange{{Name: "config.instanceUuid", Val: clone.Config.InstanceUuid}})
	})
	ctx.WithLock(t, func() { t.Info.Result = clone.Self })
	return nil
}

// copied is what a clone is created as: of the size that was asked for, and with copies of all devices that a new machine does not have
// anyway. The files of the disks are its own.
func (m *machine) copied(req *types.CloneVM_Task) types.VirtualMachineConfigSpec {
	hardware := m.Config.Hardware
	config := types.VirtualMachineConfigSpec{
		Name: req.Name, GuestId: m.Config.GuestId, NumCPUs: hardware.NumCPU, MemoryMB: int64(hardware.MemoryMB),
		NumCoresPerSocket: hardware.NumCoresPerSocket, Files: &types.VirtualMachineFileInfo{VmPathName: "[" + m.datastoreOf(req) + "] " + req.Name},
	}
	if asked := req.Spec.Config; asked != nil {
		config.NumCPUs, config.MemoryMB = cmp.Or(asked.NumCPUs, config.NumCPUs), cmp.Or(asked.MemoryMB, config.MemoryMB)
	}
	present := object.VirtualDeviceList(esx.VirtualDevice)
	devices := object.VirtualDeviceList(copyOf(hardware.Device))
	for _, device := range devices {
		if present.Find(devices.Name(device)) != nil {
			continue
		}
		change := &types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationAdd, Device: device}
		if disk, is := device.(*types.VirtualDisk); is {
			change.FileOperation = types.VirtualDeviceConfigSpecFileOperationCreate
			disk.VDiskId = nil // a copy is no First Class Disk
			backing := disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo)
			backing.FileName, backing.Uuid, backing.Datastore = "", "", req.Spec.Location.Datastore
		}
		config.DeviceChange = append(config.DeviceChange, change)
	}
	return config
}

// datastoreOf is the name of the datastore that a clone is to be on.
func (m *machine) datastoreOf(req *types.CloneVM_Task) string {
	ref := req.Spec.Location.Datastore
	if ref == nil {
		ref = &m.Datastore[0]
	}
	return m.center.service.Map.Get(*ref).(*simulator.Datastore).Name
}

// copyOf copies devices by their encoding.
func copyOf(devices []types.BaseVirtualDevice) []types.BaseVirtualDevice {
	var text bytes.Buffer
	var copied types.ArrayOfVirtualDevice
	decoder := xml.NewDecoder(&text)
	decoder.TypeFunc = types.TypeFunc()
	if err := errors.Join(xml.NewEncoder(&text).Encode(types.ArrayOfVirtualDevice{VirtualDevice: devices}), decoder.Decode(&copied)); err != nil {
		panic("vcsim: " + err.Error())
	}
	return copied.VirtualDevice
}

// known is what a clone becomes when it is there.
func (m *machine) known(asked *types.VirtualMachineConfigSpec) types.VirtualMachineConfigSpec {
	if asked == nil {
		asked = &types.VirtualMachineConfigSpec{}
	}
	return types.VirtualMachineConfigSpec{
		InstanceUuid: asked.InstanceUuid, DeviceChange: asked.DeviceChange, ExtraConfig: m.inherited(asked.ExtraConfig),
		NumCoresPerSocket: asked.NumCoresPerSocket, CpuHotAddEnabled: m.Config.CpuHotAddEnabled, MemoryHotAddEnabled: m.Config.MemoryHotAddEnabled,
	}
}

// inherited is the extraConfig of a clone: that of its source, as far as the request does not say otherwise. The simulator drops it.
func (m *machine) inherited(wanted []types.BaseOptionValue) []types.BaseOptionValue {
	all := object.OptionValueList(slices.Clone(wanted)).Join(m.Config.ExtraConfig...)
	return slices.DeleteFunc(all, func(o types.BaseOptionValue) bool { return o.GetOptionValue().Value == "" })
}

// knows reports whether a machine has that instance UUID.
func (v *VCenter) knows(ctx *simulator.Context, uuid string) bool {
	return uuid != "" && ctx.Map.SearchIndex().FindByUuid(ctx, &types.FindByUuid{
		This: ctx.Map.SearchIndex().Self, Uuid: uuid, VmSearch: true, InstanceUuid: new(true),
	}).(*methods.FindByUuidBody).Res.Returnval != nil
}

// DestroyTask begins to destroy the machine, with every disk that is attached to it, wherever its file is, which the simulator forgets, but
// not First Class Disks that are kept.
// As with a clone, nobody holds on to it while it goes out of the views of clients.
func (m *machine) DestroyTask(ctx *simulator.Context, _ *types.Destroy_Task) soap.HasFault {
	body := new(methods.Destroy_TaskBody)
	if m.busy != nil {
		body.Fault_ = fault(&types.TaskInProgress{Task: m.busy.Self})
		return body
	}
	if m.read > 0 {
		body.Fault_ = fault(new(types.TaskInProgress))
		return body
	}
	t := m.newTask(ctx, "destroy", asked(ctx))
	m.busy = t
	hold, step := m.holds["destroy"], m.step
	m.center.background.Go(func() {
		if !t.wait(m.center, hold, step) {
			return
		}
		ctx := m.center.context()
		refused := m.destroy(ctx)
		ctx.WithLock(t, func() { t.end(ctx, refused, "The operation is not allowed in the current state.") })
		ctx.WithLock(m, func() { m.busy = nil })
	})
	body.Res = &types.Destroy_TaskResponse{Returnval: t.Self}
	return body
}

// destroy takes the machine away at once, with its disks.
func (m *machine) destroy(ctx *simulator.Context) (refused types.BaseMethodFault) {
	var files []string
	var importing *lease
	ctx.WithLock(m, func() {
		if importing = m.lease; m.Runtime.PowerState != types.VirtualMachinePowerStatePoweredOff {
			refused = m.wrongPower(types.VirtualMachinePowerStatePoweredOff)
			return
		}
		files = m.center.fcds.release(m, m.inSnapshots(ctx))
	})
	if refused != nil {
		return refused
	}
	m.center.forget(m)
	if importing != nil {
		importing.close()
		importing.ended.Store(true)
	}
	for _, file := range files {
		m.center.RemoveFile(file)
	}
	m.UnregisterVM(ctx, &types.UnregisterVM{This: m.Self})
	m.removeFolder(ctx)
	return nil
}

// removeFolder removes what is left of a machine from its datastore, with its folder if nothing else is in it. The simulator leaves all of
// that, and makes the next machine of the same name in another folder, but not its disks.
func (m *machine) removeFolder(ctx *simulator.Context) {
	var vmx object.DatastorePath
	vmx.FromString(m.Config.Files.VmPathName)
	for _, ref := range m.Datastore {
		if on := ctx.Map.Get(ref).(*simulator.Datastore); on.Name == vmx.Datastore {
			folder := filepath.Dir(filepath.Join(on.Summary.Url, vmx.Path))
			for _, pattern := range []string{"*.vmx", "*.nvram", "*.log"} {
				files, _ := filepath.Glob(filepath.Join(folder, pattern))
				for _, file := range files {
					_ = os.Remove(file)
				}
			}
			_ = os.Remove(folder)
		}
	}
}

// forget drops a machine that is gone.
func (v *VCenter) forget(m *machine) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for path, other := range v.machines {
		if other == m {
			delete(v.machines, path)
		}
	}
}

// moved notes that a machine is at another place.
func (v *VCenter) moved(m *machine, place string) {
	v.forget(m)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.machines[place] = m
}

// pathOf gives the inventory path of something.
func (v *VCenter) pathOf(ctx *simulator.Context, of mo.Entity) string {
	var names []string
	for entity := of.Entity(); entity != nil && entity.Parent != nil; {
		names = append(names, entity.Name)
		parent, is := ctx.Map.Get(*entity.Parent).(mo.Entity)
		if !is {
			break
		}
		entity = parent.Entity()
	}
	slices.Reverse(names)
	return "/" + strings.Join(names, "/")
}

// Hardware is what a machine is made of.
type Hardware struct {
	// CPUs is how many processors it has, and MemoryMB how much memory.
	CPUs, MemoryMB int32
	// Disks are the sizes of its disks in bytes, and Files where they are.
	Disks []int64
	Files []string
	// Networks are the names of the networks that its adapters are connected to; in brackets those that they are not connected to when
	// it is powered on.
	Networks []string
}

// Hardware gives what the machine is made of.
func (v *VCenter) Hardware(path string) (h Hardware) {
	v.at(path, func(ctx *simulator.Context, m *machine) {
		h.Files = m.files()
		h.CPUs, h.MemoryMB = m.Config.Hardware.NumCPU, m.Config.Hardware.MemoryMB
		for _, device := range m.Config.Hardware.Device {
			switch device := device.(type) {
			case *types.VirtualDisk:
				h.Disks = append(h.Disks, device.CapacityInBytes)
			case types.BaseVirtualEthernetCard:
				card := device.GetVirtualEthernetCard()
				name := networkOf(ctx, card.Backing)
				if card.Connectable != nil && !card.Connectable.StartConnected {
					name = "(" + name + ")"
				}
				h.Networks = append(h.Networks, name)
			}
		}
	})
	return h
}

func networkOf(ctx *simulator.Context, backing types.BaseVirtualDeviceBackingInfo) string {
	switch backing := backing.(type) {
	case *types.VirtualEthernetCardNetworkBackingInfo:
		return backing.DeviceName
	case *types.VirtualEthernetCardDistributedVirtualPortBackingInfo:
		group := ctx.Map.Get(types.ManagedObjectReference{Type: "DistributedVirtualPortgroup", Value: backing.Port.PortgroupKey})
		return group.(*simulator.DistributedVirtualPortgroup).Name
	}
	return ""
}

// AttachDisk attaches a new disk of a gibibyte that is nobody's part, outside of the machine's folder, and gives its file.
func (v *VCenter) AttachDisk(path, name string) (file string) {
	file = "[LocalDS_0] " + name + ".vmdk"
	var attached *simulator.Task
	v.at(path, func(ctx *simulator.Context, m *machine) {
		devices := object.VirtualDeviceList(m.Config.Hardware.Device)
		controller, err := devices.FindDiskController("")
		if err != nil {
			panic("vcsim: " + err.Error())
		}
		disk := devices.CreateDisk(controller, types.ManagedObjectReference{}, file)
		disk.CapacityInKB = 1 << 20
		body := m.VirtualMachine.ReconfigVMTask(ctx, &types.ReconfigVM_Task{This: m.Self, Spec: types.VirtualMachineConfigSpec{
			DeviceChange: []types.BaseVirtualDeviceConfigSpec{&types.VirtualDeviceConfigSpec{
				Operation: types.VirtualDeviceConfigSpecOperationAdd, FileOperation: types.VirtualDeviceConfigSpecFileOperationCreate, Device: disk,
			}},
		}})
		attached = ctx.Map.Get(body.(*methods.ReconfigVM_TaskBody).Res.Returnval).(*simulator.Task)
	})
	attached.Wait()
	return file
}

// HasFile reports whether a file is on its datastore.
func (v *VCenter) HasFile(file string) bool {
	_, err := os.Stat(v.onDisk(file))
	return err == nil
}

// RemoveFile deletes the file of a disk from its datastore, if it is there.
func (v *VCenter) RemoveFile(file string) {
	_ = os.Remove(v.onDisk(file))
	_ = os.Remove(v.onDisk(simulator.VirtualDiskBackingFileName(file)))
}

// onDisk gives where a file of a datastore is on this machine.
func (v *VCenter) onDisk(file string) string {
	var at object.DatastorePath
	if !at.FromString(file) {
		panic("vcsim: " + file + " is no path of a file")
	}
	for _, entity := range v.service.Map.All("Datastore") {
		if ds := entity.(*simulator.Datastore); ds.Name == at.Datastore {
			return filepath.Join(ds.Summary.Url, at.Path)
		}
	}
	panic("vcsim: there is no datastore " + at.Datastore)
}

// files gives the files of the machine's disks.
func (m *machine) files() []string { return filesOf(m.Config) }

// AllowHotAdd has the machine, and those that are cloned from it after that, take processors and memory while it is on.
func (v *VCenter) AllowHotAdd(path string) {
	v.at(path, func(_ *simulator.Context, m *machine) {
		m.hotAdd = true
		m.Config.CpuHotAddEnabled, m.Config.MemoryHotAddEnabled = new(true), new(true)
	})
}

// SetSize changes the size of a machine that is off, as an administrator may.
func (v *VCenter) SetSize(path string, cpus int32, memoryMB int64) {
	v.at(path, func(ctx *simulator.Context, m *machine) {
		m.VirtualMachine.ReconfigVMTask(ctx, &types.ReconfigVM_Task{
			This: m.Self, Spec: types.VirtualMachineConfigSpec{NumCPUs: cpus, MemoryMB: memoryMB},
		})
	})
}

// Remove destroys the machine at once, which is off, or a template.
func (v *VCenter) Remove(path string) {
	var gone *machine
	v.at(path, func(_ *simulator.Context, m *machine) { gone = m })
	gone.destroy(v.context())
}
