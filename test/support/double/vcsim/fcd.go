package vcsim

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vslm"
	vslmmethods "github.com/vmware/govmomi/vslm/methods"
	_ "github.com/vmware/govmomi/vslm/simulator" // serves the sessions of the global catalog
	vslmtypes "github.com/vmware/govmomi/vslm/types"
)

// First Class Disks. The simulator has a catalog of them, but its machines do not: its AttachDisk adds no device. What a vCenter does, and
// where that is said:
//
//   - vCenter gives a disk its ID, which stays the same however the disk is moved (Virtual Disk Development Kit, "First Class Disk Backup").
//   - A disk is created with its metadata or not at all (vSphere API, VslmCreateSpec.metadata), and found by them in the global catalog
//     (VslmListVStorageObjectForSpec).
//   - A machine has a disk by a device with its vDiskId (vSphere API, VirtualDisk.vDiskId), which the descriptor of the disk says: it does
//     not matter how it was attached. The machine is then its consumer (VStorageObjectConfigInfo.consumerId).
//   - A disk that has a consumer is neither deleted nor attached to another machine: the vSphere CSI driver and its reports rely on that
//     (kubernetes-sigs/vsphere-csi-driver#221, #663).
//   - A disk with changed block tracking is not attached to a machine without it (kubernetes-sigs/vsphere-csi-driver#1416).
//   - A machine that is destroyed takes its disks along, unless they are kept (BaseConfigInfo.keepAfterDeleteVm;
//     kubernetes-sigs/vsphere-csi-driver#99).
//   - A clone of a machine has copies of its disks, which are no First Class Disks.
//   - Storage vMotion of a machine moves its disks into its folder (vSphere API, VirtualMachine.relocate). Before vCenter 7.0 Update 3 the
//     catalog loses them by that (kubernetes-sigs/vsphere-csi-driver#365, #1192).
//   - A disk that is attached by its ID is part of the snapshots of the machine, and has files of each then. A machine that is destroyed
//     takes all files along to which its snapshots refer, also those of a disk that was detached since (vSphere API, Destroy_Task).
//
// Nobody has asked a real vCenter yet.

// fcd is a First Class Disk.
type fcd struct {
	types.VStorageObject
	metadata []types.KeyValue
}

func (f *fcd) file() *types.BaseConfigInfoDiskFileBackingInfo {
	return f.Config.Backing.(*types.BaseConfigInfoDiskFileBackingInfo)
}

// catalog has the disks of the vCenter. It is the manager that has a datastore's.
type catalog struct {
	mo.VcenterVStorageObjectManager
	center *VCenter

	mu    sync.Mutex
	all   map[string]*fcd
	loses bool // Disks go with their machines, whatever they say.
}

// globalCatalog is the manager that finds disks on whatever datastore they are.
type globalCatalog struct {
	types.ManagedObjectReference
	of *catalog
}

// wrapFCDs has the vCenter have First Class Disks.
func (v *VCenter) wrapFCDs() {
	v.fcds = &catalog{center: v, all: map[string]*fcd{}}
	v.fcds.Self = *v.service.Map.Get(serviceInstance).(*simulator.ServiceInstance).Content.VStorageObjectManager
	v.service.Map.Put(v.fcds)
	global := v.service.For(vslm.Path).Map
	for _, manager := range global.AllReference("VslmVStorageObjectManager") {
		global.Put(&globalCatalog{manager.Reference(), v.fcds})
	}
}

// with calls do with the disk, and returns NotFound if there is none.
func (c *catalog) with(id string, do func(*fcd) types.BaseMethodFault) types.BaseMethodFault {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.all[id]; f != nil {
		return do(f)
	}
	return new(types.NotFound)
}

// begin starts a task that a test cannot hold.
func (c *catalog) begin(ctx *simulator.Context, verb string, effect func(*simulator.Context) types.BaseMethodFault) types.ManagedObjectReference {
	t := c.center.newTask(ctx, c, verb, asked(ctx), true)
	c.center.background.Go(func() { c.run(t, nil, effect) })
	return t.Self
}

func (c *catalog) run(t *task, hold chan struct{}, effect func(*simulator.Context) types.BaseMethodFault) {
	if !t.wait(c.center, hold, 0) {
		return
	}
	ctx := c.center.context()
	refused := effect(ctx)
	ctx.WithLock(t, func() { t.end(ctx, refused, "The operation is not allowed in the current state.") })
}

// CreateDiskTask begins to make a disk.
func (c *catalog) CreateDiskTask(ctx *simulator.Context, req *types.CreateDisk_Task) soap.HasFault {
	on, is := ctx.Map.Get(req.Spec.BackingSpec.GetVslmCreateSpecBackingSpec().Datastore).(*simulator.Datastore)
	if !is {
		return &methods.CreateDisk_TaskBody{Fault_: fault(new(types.InvalidDatastore))}
	}
	c.center.mu.Lock()
	hold := c.center.holdsDisks
	c.center.mu.Unlock()
	t := c.center.newTask(ctx, c, "createDisk", asked(ctx), true)
	c.center.background.Go(func() {
		c.run(t, hold, func(ctx *simulator.Context) types.BaseMethodFault {
			made, refused := c.create(ctx, on, req.Spec)
			if refused == nil {
				ctx.WithLock(t, func() { t.Info.Result = made })
			}
			return refused
		})
	})
	return &methods.CreateDisk_TaskBody{Res: &types.CreateDisk_TaskResponse{Returnval: t.Self}}
}

func (c *catalog) create(ctx *simulator.Context, on *simulator.Datastore, spec types.VslmCreateSpec) (made types.VStorageObject, refused types.BaseMethodFault) {
	id := uuid.NewString()
	file := object.DatastorePath{Datastore: on.Name, Path: "fcd/" + strings.ReplaceAll(uuid.NewString(), "-", "") + ".vmdk"}
	if err := os.MkdirAll(filepath.Dir(c.center.onDisk(file.String())), 0o750); err != nil {
		return made, new(types.FileFault)
	}
	created := ctx.Map.VirtualDiskManager().CreateVirtualDiskTask(ctx, &types.CreateVirtualDisk_Task{
		Name: file.String(), Datacenter: c.center.datacenter(ctx), Spec: &types.FileBackedVirtualDiskSpec{CapacityKb: spec.CapacityInMB * 1024},
	})
	if refused := ended(ctx, created.(*methods.CreateVirtualDisk_TaskBody).Res.Returnval); refused != nil {
		return made, refused
	}
	keep := spec.KeepAfterDeleteVm
	if keep == nil {
		keep = new(true)
	}
	f := &fcd{metadata: spec.Metadata}
	f.Config = types.VStorageObjectConfigInfo{CapacityInMB: spec.CapacityInMB, ConsumptionType: []string{"disk"}}
	f.Config.Id, f.Config.Name, f.Config.CreateTime, f.Config.KeepAfterDeleteVm = types.ID{Id: id}, spec.Name, time.Now(), keep
	f.Config.Backing = &types.BaseConfigInfoDiskFileBackingInfo{
		BaseConfigInfoFileBackingInfo: types.BaseConfigInfoFileBackingInfo{
			BaseConfigInfoBackingInfo: types.BaseConfigInfoBackingInfo{Datastore: on.Self}, FilePath: file.String(),
		},
		ProvisioningType: string(types.BaseConfigInfoDiskFileBackingInfoProvisioningTypeThin),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all[id] = f
	return f.VStorageObject, nil
}

// on returns a disk of a datastore, and nil if it has none of that ID.
func (c *catalog) on(datastore types.ManagedObjectReference, id types.ID) (f *fcd) {
	_ = c.with(id.Id, func(found *fcd) types.BaseMethodFault {
		if found.file().Datastore == datastore {
			copied := *found
			copied.Config.ConsumerId = slices.Clone(found.Config.ConsumerId)
			copied.metadata = slices.Clone(found.metadata)
			f = &copied
		}
		return nil
	})
	return f
}

// RetrieveVStorageObject returns a disk of a datastore.
func (c *catalog) RetrieveVStorageObject(_ *simulator.Context, req *types.RetrieveVStorageObject) soap.HasFault {
	f := c.on(req.Datastore, req.Id)
	if f == nil {
		return &methods.RetrieveVStorageObjectBody{Fault_: fault(new(types.NotFound))}
	}
	return &methods.RetrieveVStorageObjectBody{Res: &types.RetrieveVStorageObjectResponse{Returnval: f.VStorageObject}}
}

// ExtendDiskTask begins to grow a disk, and the device of the machine that has it.
func (c *catalog) ExtendDiskTask(ctx *simulator.Context, req *types.ExtendDisk_Task) soap.HasFault {
	ref := c.begin(ctx, "extendDisk", func(ctx *simulator.Context) types.BaseMethodFault {
		f := c.on(req.Datastore, req.Id)
		if f == nil {
			return new(types.NotFound)
		}
		if req.NewCapacityInMB < f.Config.CapacityInMB {
			return &types.InvalidArgument{InvalidProperty: "newCapacityInMB"}
		}
		refused := c.center.growDevice(ctx, req.Id.Id, req.NewCapacityInMB)
		if refused != nil {
			return refused
		}
		c.center.saveSize(ctx, f.file().FilePath, req.NewCapacityInMB*1024)
		return c.with(req.Id.Id, func(f *fcd) types.BaseMethodFault {
			f.Config.CapacityInMB = req.NewCapacityInMB
			return nil
		})
	})
	return &methods.ExtendDisk_TaskBody{Res: &types.ExtendDisk_TaskResponse{Returnval: ref}}
}

// growDevice has the device of the machine that has the disk be as large as the disk will be.
func (v *VCenter) growDevice(ctx *simulator.Context, id string, mb int64) (refused types.BaseMethodFault) {
	for _, m := range v.allMachines() {
		ctx.WithLock(m, func() {
			device := m.device(id)
			switch {
			case device == nil:
			case m.Snapshot != nil:
				refused = new(types.InvalidState)
			default:
				device.CapacityInBytes, device.CapacityInKB = mb<<20, mb<<10
			}
		})
	}
	return refused
}

func (v *VCenter) allMachines() []*machine {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Collect(maps.Values(v.machines))
}

// DeleteVStorageObjectTask begins to delete a disk that no machine has.
func (c *catalog) DeleteVStorageObjectTask(ctx *simulator.Context, req *types.DeleteVStorageObject_Task) soap.HasFault {
	ref := c.begin(ctx, "deleteVStorageObject", func(*simulator.Context) types.BaseMethodFault {
		return c.with(req.Id.Id, func(f *fcd) types.BaseMethodFault {
			switch {
			case f.file().Datastore != req.Datastore:
				return new(types.NotFound)
			case len(f.Config.ConsumerId) > 0:
				return new(types.InvalidState)
			}
			c.center.RemoveFile(f.file().FilePath)
			delete(c.all, req.Id.Id)
			return nil
		})
	})
	return &methods.DeleteVStorageObject_TaskBody{Res: &types.DeleteVStorageObject_TaskResponse{Returnval: ref}}
}

// VCenterUpdateVStorageObjectMetadataExTask begins to change the metadata of a disk.
func (c *catalog) VCenterUpdateVStorageObjectMetadataExTask(ctx *simulator.Context, req *types.VCenterUpdateVStorageObjectMetadataEx_Task) soap.HasFault {
	ref := c.begin(ctx, "updateVStorageObjectMetadataEx", func(*simulator.Context) types.BaseMethodFault {
		return c.with(req.Id.Id, func(f *fcd) types.BaseMethodFault {
			if f.file().Datastore != req.Datastore {
				return new(types.NotFound)
			}
			f.set(req.Metadata, req.DeleteKeys)
			return nil
		})
	})
	return &methods.VCenterUpdateVStorageObjectMetadataEx_TaskBody{Res: &types.VCenterUpdateVStorageObjectMetadataEx_TaskResponse{Returnval: ref}}
}

func (f *fcd) set(values []types.KeyValue, without []string) {
	f.metadata = slices.DeleteFunc(slices.Clone(f.metadata), func(had types.KeyValue) bool {
		return slices.Contains(without, had.Key) || slices.ContainsFunc(values, func(v types.KeyValue) bool { return v.Key == had.Key })
	})
	f.metadata = append(f.metadata, values...)
}

// VslmRetrieveVStorageObject returns a disk.
func (g *globalCatalog) VslmRetrieveVStorageObject(_ *simulator.Context, req *vslmtypes.VslmRetrieveVStorageObject) soap.HasFault {
	body := &vslmmethods.VslmRetrieveVStorageObjectBody{Res: &vslmtypes.VslmRetrieveVStorageObjectResponse{}}
	if refused := g.of.with(req.Id.Id, func(f *fcd) types.BaseMethodFault {
		body.Res.Returnval = f.VStorageObject
		body.Res.Returnval.Config.ConsumerId = slices.Clone(f.Config.ConsumerId)
		return nil
	}); refused != nil {
		return &vslmmethods.VslmRetrieveVStorageObjectBody{Fault_: fault(refused)}
	}
	return body
}

// VslmRetrieveVStorageObjectMetadata returns the metadata of a disk.
func (g *globalCatalog) VslmRetrieveVStorageObjectMetadata(
	_ *simulator.Context, req *vslmtypes.VslmRetrieveVStorageObjectMetadata,
) soap.HasFault {
	body := &vslmmethods.VslmRetrieveVStorageObjectMetadataBody{Res: &vslmtypes.VslmRetrieveVStorageObjectMetadataResponse{}}
	if refused := g.of.with(req.Id.Id, func(f *fcd) types.BaseMethodFault {
		for _, value := range f.metadata {
			if strings.HasPrefix(value.Key, req.Prefix) {
				body.Res.Returnval = append(body.Res.Returnval, value)
			}
		}
		return nil
	}); refused != nil {
		return &vslmmethods.VslmRetrieveVStorageObjectMetadataBody{Fault_: fault(refused)}
	}
	return body
}

// VslmListVStorageObjectForSpec lists the disks whose metadata are as it says, by their IDs.
func (g *globalCatalog) VslmListVStorageObjectForSpec(_ *simulator.Context, req *vslmtypes.VslmListVStorageObjectForSpec) soap.HasFault {
	found := &vslmtypes.VslmVsoVStorageObjectQueryResult{AllRecordsReturned: true}
	g.of.mu.Lock()
	defer g.of.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(g.of.all)) {
		if f := g.of.all[id]; f.matches(req.Query) && len(found.Id) < int(req.MaxResult) {
			found.Id = append(found.Id, f.Config.Id)
		}
	}
	return &vslmmethods.VslmListVStorageObjectForSpecBody{Res: &vslmtypes.VslmListVStorageObjectForSpecResponse{Returnval: found}}
}

func (f *fcd) matches(query []vslmtypes.VslmVsoVStorageObjectQuerySpec) bool {
	for _, q := range query {
		if q.QueryOperator != string(vslmtypes.VslmVsoVStorageObjectQuerySpecQueryOperatorEnumEquals) || len(q.QueryValue) != 1 {
			panic("vcsim: disks are asked for by " + q.QueryOperator)
		}
		of := map[string]func(types.KeyValue) string{
			string(vslmtypes.VslmVsoVStorageObjectQuerySpecQueryFieldEnumMetadataKey):   func(v types.KeyValue) string { return v.Key },
			string(vslmtypes.VslmVsoVStorageObjectQuerySpecQueryFieldEnumMetadataValue): func(v types.KeyValue) string { return v.Value },
		}[q.QueryField]
		if !slices.ContainsFunc(f.metadata, func(v types.KeyValue) bool { return of(v) == q.QueryValue[0] }) {
			return false
		}
	}
	return true
}

// device returns the device of a machine that is the disk, and nil if the machine does not have it.
func (m *machine) device(id string) *types.VirtualDisk {
	for _, device := range object.VirtualDeviceList(m.Config.Hardware.Device).SelectByType((*types.VirtualDisk)(nil)) {
		if disk := device.(*types.VirtualDisk); disk.VDiskId != nil && disk.VDiskId.Id == id {
			return disk
		}
	}
	return nil
}

// AttachDiskTask begins to attach a First Class Disk.
func (m *machine) AttachDiskTask(ctx *simulator.Context, req *types.AttachDisk_Task) soap.HasFault {
	ref, refused := m.begin(ctx, "attachDisk", asked(ctx), func(ctx *simulator.Context) types.BaseMethodFault {
		f := m.center.fcds.on(req.Datastore, req.DiskId)
		switch {
		case f == nil:
			return new(types.NotFound)
		case len(f.Config.ConsumerId) > 0, on(f.Config.ChangedBlockTrackingEnabled) && !on(m.Config.ChangeTrackingEnabled):
			return new(types.InvalidState)
		case m.center.locked(f.file().FilePath, m):
			return new(types.FileLocked)
		}
		devices := object.VirtualDeviceList(m.Config.Hardware.Device)
		if devices.FindByKey(req.ControllerKey) == nil {
			return new(types.MissingController)
		}
		return m.change(ctx, types.VirtualDeviceConfigSpecOperationAdd, &types.VirtualDisk{VirtualDevice: types.VirtualDevice{
			Key: -1, ControllerKey: req.ControllerKey, UnitNumber: req.UnitNumber, Backing: &types.VirtualDiskFlatVer2BackingInfo{
				VirtualDeviceFileBackingInfo: types.VirtualDeviceFileBackingInfo{FileName: f.file().FilePath, Datastore: &req.Datastore},
				DiskMode:                     string(types.VirtualDiskModePersistent), ThinProvisioned: new(true),
			},
		}})
	})
	if refused != nil {
		return &methods.AttachDisk_TaskBody{Fault_: fault(refused)}
	}
	return &methods.AttachDisk_TaskBody{Res: &types.AttachDisk_TaskResponse{Returnval: ref}}
}

func on(flag *bool) bool { return flag != nil && *flag }

// DetachDiskTask begins to detach a First Class Disk.
func (m *machine) DetachDiskTask(ctx *simulator.Context, req *types.DetachDisk_Task) soap.HasFault {
	ref, refused := m.begin(ctx, "detachDisk", asked(ctx), func(ctx *simulator.Context) types.BaseMethodFault {
		device := m.device(req.DiskId.Id)
		if refused := m.center.fcds.with(req.DiskId.Id, func(*fcd) types.BaseMethodFault { return nil }); device == nil || refused != nil {
			return new(types.NotFound)
		}
		return m.change(ctx, types.VirtualDeviceConfigSpecOperationRemove, device)
	})
	if refused != nil {
		return &methods.DetachDisk_TaskBody{Fault_: fault(refused)}
	}
	return &methods.DetachDisk_TaskBody{Res: &types.DetachDisk_TaskResponse{Returnval: ref}}
}

// change adds a disk to the machine, or takes one away, and keeps its file.
func (m *machine) change(ctx *simulator.Context, operation types.VirtualDeviceConfigSpecOperation, disk *types.VirtualDisk) types.BaseMethodFault {
	change := &types.VirtualDeviceConfigSpec{Operation: operation, Device: disk}
	if refused := m.plug(ctx, change, disk); refused != nil {
		return refused
	}
	body := m.VirtualMachine.ReconfigVMTask(ctx, &types.ReconfigVM_Task{
		This: m.Self, Spec: types.VirtualMachineConfigSpec{DeviceChange: []types.BaseVirtualDeviceConfigSpec{change}},
	})
	if refused := ended(ctx, body.(*methods.ReconfigVM_TaskBody).Res.Returnval); refused != nil {
		return refused
	}
	m.consume()
	m.relock()
	return nil
}

// consume updates the consumers of the catalog's disks, and the IDs of the machine's devices.
func (m *machine) consume() {
	c := m.center.fcds
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.all {
		had := slices.Contains(f.Config.ConsumerId, types.ID{Id: m.Config.Uuid})
		has := false
		for _, device := range object.VirtualDeviceList(m.Config.Hardware.Device).SelectByType((*types.VirtualDisk)(nil)) {
			if disk := device.(*types.VirtualDisk); slices.Contains(chain(disk), f.file().FilePath) {
				disk.VDiskId, has = &f.Config.Id, true
			}
		}
		switch {
		case has && !had:
			f.Config.ConsumerId = append(f.Config.ConsumerId, types.ID{Id: m.Config.Uuid})
		case had && !has:
			f.Config.ConsumerId = slices.DeleteFunc(f.Config.ConsumerId, func(id types.ID) bool { return id.Id == m.Config.Uuid })
		}
	}
}

// chain returns the file of a disk, and those of its parents.
func chain(disk *types.VirtualDisk) (files []string) {
	backing, _ := disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo)
	for ; backing != nil; backing = backing.Parent {
		files = append(files, backing.FileName)
	}
	return files
}

// release returns the files of a machine that are destroyed with it, and removes it from the consumers of the disks that are kept.
func (c *catalog) release(m *machine, snapshots []string) (files []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, file := range append(m.files(), snapshots...) {
		kept := false
		for id, f := range c.all {
			if f.file().FilePath != file {
				continue
			}
			f.Config.ConsumerId = slices.DeleteFunc(f.Config.ConsumerId, func(id types.ID) bool { return id.Id == m.Config.Uuid })
			if kept = *f.Config.KeepAfterDeleteVm && !c.loses && !slices.Contains(snapshots, file); !kept {
				delete(c.all, id)
			}
		}
		if !kept {
			files = append(files, file)
		}
	}
	return files
}
