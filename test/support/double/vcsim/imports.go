package vcsim

import (
	"path"
	"strings"
	"sync/atomic"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// pool imports machines as a vCenter does: the lease is open until it is completed, and takes the machine with it if it is aborted.
type pool struct {
	*simulator.ResourcePool
	center *VCenter
}

// lease is an import under way.
type lease struct {
	mo.HttpNfcLease
	center  *VCenter
	inner   *simulator.HttpNfcLease // The simulator's own, which takes the files.
	machine *machine
	ended   atomic.Bool // The machine is gone.
	aborted bool        // The machine goes, as soon as there is one.
}

// wrapImports has the simulator import machines as a vCenter does.
func (v *VCenter) wrapImports() {
	registry := v.service.Map
	manager := registry.Get(*registry.Get(serviceInstance).(*simulator.ServiceInstance).Content.OvfManager)
	registry.Put(&ovfManager{manager.(*simulator.OvfManager), v})
}

// serviceInstance is what every client begins with.
var serviceInstance = types.ManagedObjectReference{Type: "ServiceInstance", Value: "ServiceInstance"}

// ovfManager lays disks out as it is told to, each in the folder of its machine.
type ovfManager struct {
	*simulator.OvfManager
	center *VCenter
}

// CreateImportSpec says what a machine is made as.
func (m *ovfManager) CreateImportSpec(ctx *simulator.Context, req *types.CreateImportSpec) soap.HasFault {
	// Whoever is logged in goes on with our own pool. For all others it stays the simulator's, which looks for its own type.
	if of, is := ctx.Map.Get(req.ResourcePool).(*simulator.ResourcePool); is && ctx.Session.Registry.Get(req.ResourcePool) == nil {
		ctx.Session.Put(&pool{of, m.center})
	}
	body := m.OvfManager.CreateImportSpec(ctx, req).(*methods.CreateImportSpecBody)
	if body.Res == nil {
		return body
	}
	spec := body.Res.Returnval.ImportSpec.(*types.VirtualMachineImportSpec)
	for _, change := range spec.ConfigSpec.DeviceChange {
		disk, is := change.GetVirtualDeviceConfigSpec().Device.(*types.VirtualDisk)
		if !is {
			continue
		}
		backing := disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo)
		backing.FileName = "" // in whichever folder the machine gets
		switch types.OvfCreateImportSpecParamsDiskProvisioningType(req.Cisp.GetOvfCreateImportSpecParams().DiskProvisioning) {
		case types.OvfCreateImportSpecParamsDiskProvisioningTypeThick:
			backing.ThinProvisioned = new(false)
		case types.OvfCreateImportSpecParamsDiskProvisioningTypeEagerZeroedThick:
			backing.ThinProvisioned, backing.EagerlyScrub = new(false), new(true)
		}
	}
	return body
}

// ImportVApp begins to make a machine, whose name is taken from the beginning.
func (p *pool) ImportVApp(ctx *simulator.Context, req *types.ImportVApp) soap.HasFault {
	body := new(methods.ImportVAppBody)
	spec, is := req.Spec.(*types.VirtualMachineImportSpec)
	if !is || req.Folder == nil {
		body.Fault_ = fault(&types.InvalidArgument{InvalidProperty: "spec"})
		return body
	}
	l := &lease{HttpNfcLease: mo.HttpNfcLease{State: types.HttpNfcLeaseStateInitializing}, center: p.center}
	l.Self = types.ManagedObjectReference{Type: "HttpNfcLease", Value: "lease-of-" + p.center.newTaskID().Value}
	ctx.Session.Put(l)
	folder := ctx.Map.Get(*req.Folder).(*simulator.Folder)
	place := p.center.pathOf(ctx, folder) + "/" + spec.ConfigSpec.Name
	if !p.center.reserve(place) {
		l.fail(ctx, &types.DuplicateName{Name: spec.ConfigSpec.Name, Object: *req.Folder})
	} else {
		p.center.background.Go(func() {
			defer p.center.release(place)
			p.make(l, req, place)
		})
	}
	body.Res = &types.ImportVAppResponse{Returnval: l.Self}
	return body
}

// make has the simulator make the machine, which is shown as ready when it behaves as the others do.
func (p *pool) make(l *lease, req *types.ImportVApp, place string) {
	ctx := p.center.context()
	var begun types.ManagedObjectReference
	ctx.WithLock(p, func() {
		begun = p.ResourcePool.ImportVApp(ctx, req).(*methods.ImportVAppBody).Res.Returnval
	})
	inner := p.center.service.Session.Get(begun).(*simulator.HttpNfcLease)
	var shown mo.HttpNfcLease
	for shown.State = types.HttpNfcLeaseStateInitializing; shown.State == types.HttpNfcLeaseStateInitializing; {
		if !p.center.pause(time.Millisecond, nil) {
			return
		}
		ctx := p.center.context()
		ctx.WithLock(inner, func() { shown = inner.HttpNfcLease })
	}
	if shown.Error != nil {
		l.fail(ctx, shown.Error.Fault)
		return
	}
	if ctx.Map.Get(shown.Info.Entity) == nil { // somebody was faster, who looks for what has no machine of ours
		l.fail(ctx, &types.ManagedObjectNotFound{Obj: shown.Info.Entity})
		return
	}
	made := p.center.wrap(shown.Info.Entity, place)
	ctx.WithLock(made, func() { made.lease = l })
	aborted := false
	ctx.WithLock(l, func() {
		l.inner, l.machine, aborted = inner, made, l.aborted
		ctx.Update(l, []types.PropertyChange{{Name: "info", Val: shown.Info}, {Name: "state", Val: types.HttpNfcLeaseStateReady}})
	})
	if aborted {
		made.destroy(ctx)
	}
}

func (l *lease) fail(ctx *simulator.Context, f types.BaseMethodFault) {
	ctx.WithLock(l, func() {
		ctx.Update(l, []types.PropertyChange{
			{Name: "error", Val: &types.LocalizedMethodFault{Fault: f}}, {Name: "state", Val: types.HttpNfcLeaseStateError},
		})
	})
}

// unknown is the answer about a lease whose machine is gone.
func (l *lease) unknown() *soap.Fault { return fault(&types.ManagedObjectNotFound{Obj: l.Self}) }

// HttpNfcLeaseComplete ends the import: the machine has its content.
func (l *lease) HttpNfcLeaseComplete(ctx *simulator.Context, req *types.HttpNfcLeaseComplete) soap.HasFault {
	if l.ended.Load() {
		return &methods.HttpNfcLeaseCompleteBody{Fault_: l.unknown()}
	}
	l.close()
	ctx.WithLock(l.machine, func() { l.machine.lease = nil })
	ctx.Session.Remove(ctx, req.This)
	return &methods.HttpNfcLeaseCompleteBody{Res: new(types.HttpNfcLeaseCompleteResponse)}
}

// HttpNfcLeaseAbort ends the import, and the machine with it.
func (l *lease) HttpNfcLeaseAbort(ctx *simulator.Context, req *types.HttpNfcLeaseAbort) soap.HasFault {
	if l.ended.Load() {
		return &methods.HttpNfcLeaseAbortBody{Fault_: l.unknown()}
	}
	if l.aborted = true; l.machine != nil {
		l.machine.destroy(l.center.context())
	}
	ctx.Session.Remove(ctx, req.This)
	return &methods.HttpNfcLeaseAbortBody{Res: new(types.HttpNfcLeaseAbortResponse)}
}

// HttpNfcLeaseProgress says how much is done.
func (l *lease) HttpNfcLeaseProgress(_ *simulator.Context, req *types.HttpNfcLeaseProgress) soap.HasFault {
	if l.ended.Load() {
		return &methods.HttpNfcLeaseProgressBody{Fault_: l.unknown()}
	}
	l.TransferProgress = req.Percent
	return &methods.HttpNfcLeaseProgressBody{Res: new(types.HttpNfcLeaseProgressResponse)}
}

// HttpNfcLeaseGetManifest tells how much of each file there is.
func (l *lease) HttpNfcLeaseGetManifest(ctx *simulator.Context, req *types.HttpNfcLeaseGetManifest) soap.HasFault {
	if l.ended.Load() {
		return &methods.HttpNfcLeaseGetManifestBody{Fault_: l.unknown()}
	}
	body := l.inner.HttpNfcLeaseGetManifest(ctx, req).(*methods.HttpNfcLeaseGetManifestBody)
	if l.center.losesContent.Load() {
		for i := range body.Res.Returnval {
			body.Res.Returnval[i].Size--
		}
	}
	return body
}

// close has no file be taken any more.
func (l *lease) close() {
	l.inner.HttpNfcLeaseAbort(l.center.context(), &types.HttpNfcLeaseAbort{This: l.inner.Self})
}

// LoseContent has vCenter lose the end of each file that is uploaded to it from now on.
func (v *VCenter) LoseContent() { v.losesContent.Store(true) }

// ExpireLeases has vCenter give up the imports into a folder, as it does with those of which it hears nothing for some minutes.
func (v *VCenter) ExpireLeases(folder string) {
	for _, at := range v.Machines() {
		if path.Dir(at) != folder {
			continue
		}
		var importing *machine
		v.ifAt(at, func(_ *simulator.Context, m *machine) {
			if m.lease != nil {
				importing = m
			}
		})
		if importing != nil {
			importing.destroy(v.context())
		}
	}
}

// OpenLeases counts the imports under way.
func (v *VCenter) OpenLeases() (open int) {
	for _, path := range v.Machines() {
		v.ifAt(path, func(_ *simulator.Context, m *machine) {
			if m.lease != nil {
				open++
			}
		})
	}
	return open
}

// SetDatastore says how much room there is on LocalDS_0, in bytes, and in which maintenance mode it is.
func (v *VCenter) SetDatastore(free, capacity int64, mode types.DatastoreSummaryMaintenanceModeState) {
	on, ctx := v.find("/DC0/datastore/LocalDS_0").(*simulator.Datastore), v.context()
	ctx.WithLock(on, func() {
		on.Summary.FreeSpace, on.Summary.Capacity, on.Summary.MaintenanceMode = free, capacity, string(mode)
	})
}

// AddFolder makes a folder for machines at that inventory path, in one that there is.
func (v *VCenter) AddFolder(at string) {
	ctx := v.context()
	parent := v.find(path.Dir(at)).(*simulator.Folder)
	ctx.WithLock(parent, func() { parent.CreateFolder(ctx, &types.CreateFolder{This: parent.Self, Name: path.Base(at)}) })
}

// find gives what is at an inventory path.
func (v *VCenter) find(at string) mo.Reference {
	ctx := v.context()
	index := ctx.Map.SearchIndex()
	body := index.FindByInventoryPath(ctx, &types.FindByInventoryPath{This: index.Self, InventoryPath: strings.Trim(at, "/")})
	found := body.(*methods.FindByInventoryPathBody).Res.Returnval
	if found == nil {
		panic("vcsim: there is nothing at " + at)
	}
	return ctx.Map.Get(*found)
}

// Move moves the machine into another folder, and gives its path there.
func (v *VCenter) Move(at, to string) string {
	target := v.find(to).(*simulator.Folder)
	ctx := v.context()
	var moved *simulator.Task
	ref := v.find(at).Reference()
	ctx.WithLock(target, func() {
		body := target.MoveIntoFolderTask(ctx, &types.MoveIntoFolder_Task{This: target.Self, List: []types.ManagedObjectReference{ref}})
		moved = ctx.Map.Get(body.(*methods.MoveIntoFolder_TaskBody).Res.Returnval).(*simulator.Task)
	})
	moved.Wait()
	place := to + "/" + path.Base(at)
	v.at(at, func(_ *simulator.Context, m *machine) { v.moved(m, place) })
	return place
}

// Version gives the changeVersion of the machine.
func (v *VCenter) Version(path string) (version string) {
	v.at(path, func(_ *simulator.Context, m *machine) { version = m.Config.ChangeVersion })
	return version
}

// MoRef gives what vCenter calls something, without its type.
func (v *VCenter) MoRef(path string) string { return v.find(path).Reference().Value }

// Copy clones the machine, or template, into its own folder as an administrator does, who says nothing of its extraConfig. It gives the
// path of the copy.
func (v *VCenter) Copy(of, name string) string {
	to := path.Dir(of) + "/" + name
	if !v.CopyTo(of, to) {
		panic("vcsim: there is no machine at " + of)
	}
	return to
}

// CopyTo is Copy to another path, and reports whether there was something to copy.
func (v *VCenter) CopyTo(of, to string) bool {
	var copying types.ManagedObjectReference
	own := v.first("ClusterComputeResource").(*simulator.ClusterComputeResource).ResourcePool
	folder := v.find(path.Dir(to)).Reference()
	is := v.ifAt(of, func(ctx *simulator.Context, m *machine) {
		body := m.CloneVMTask(ctx, &types.CloneVM_Task{This: m.Self, Folder: folder, Name: path.Base(to), Spec: types.VirtualMachineCloneSpec{
			Location: types.VirtualMachineRelocateSpec{Pool: own, Datastore: &m.Datastore[0]},
		}})
		copying = body.(*methods.CloneVM_TaskBody).Res.Returnval
	})
	if !is {
		return false
	}
	t := v.service.Map.Get(copying).(*task)
	for done := false; !done && v.pause(time.Millisecond, nil); {
		ctx := v.context()
		ctx.WithLock(t, func() { done = t.Info.CompleteTime != nil })
	}
	return true
}
