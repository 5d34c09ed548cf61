package vcsim

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"
)

// FCD is a First Class Disk as vCenter shows it.
type FCD struct {
	// ID is its ID, Name its name, Datastore the name of its datastore, and File its file.
	ID, Name, Datastore, File string
	// Bytes is its size.
	Bytes int64
	// Consumers are how many machines have it.
	Consumers int
	// Metadata are its metadata.
	Metadata map[string]string
}

// FCDs returns all First Class Disks, by their names.
func (v *VCenter) FCDs() (all []FCD) {
	v.fcds.mu.Lock()
	defer v.fcds.mu.Unlock()
	for id, f := range v.fcds.all {
		is := FCD{ID: id, Name: f.Config.Name, File: f.file().FilePath, Bytes: f.Config.CapacityInMB << 20, Consumers: len(f.Config.ConsumerId), Metadata: map[string]string{}}
		var at object.DatastorePath
		at.FromString(is.File)
		is.Datastore = at.Datastore
		for _, value := range f.metadata {
			is.Metadata[value.Key] = value.Value
		}
		all = append(all, is)
	}
	slices.SortFunc(all, func(a, b FCD) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	return all
}

// FCD returns the First Class Disk of that ID, and one without an ID if there is none.
func (v *VCenter) FCD(id string) (is FCD) {
	for _, f := range v.FCDs() {
		if f.ID == id {
			return f
		}
	}
	return is
}

// SetMetadata changes metadata of a disk, as anybody may who can change the disk. An empty value removes the key.
func (v *VCenter) SetMetadata(id, key, value string) {
	if refused := v.fcds.with(id, func(f *fcd) types.BaseMethodFault {
		if value == "" {
			f.set(nil, []string{key})
		} else {
			f.set([]types.KeyValue{{Key: key, Value: value}}, nil)
		}
		return nil
	}); refused != nil {
		panic("vcsim: there is no disk " + id)
	}
}

// MoveDisk moves the disk of a machine into the machine's folder on a datastore, as Storage vMotion does, and returns its new file.
func (v *VCenter) MoveDisk(path, id, datastore string) (moved string) {
	v.at(path, func(ctx *simulator.Context, m *machine) {
		to := object.DatastorePath{Datastore: datastore, Path: m.Name + "/" + id[:8] + ".vmdk"}
		if err := os.MkdirAll(filepath.Dir(v.onDisk(to.String())), 0o750); err != nil {
			panic("vcsim: " + err.Error())
		}
		moved = to.String()
		device := m.device(id)
		if fileOf(device) == moved {
			return
		}
		center := v.datacenter(ctx)
		body := v.service.Map.VirtualDiskManager().MoveVirtualDiskTask(ctx, &types.MoveVirtualDisk_Task{
			SourceName: fileOf(device), SourceDatacenter: center, DestName: moved, DestDatacenter: center,
		})
		if refused := ended(ctx, body.(*methods.MoveVirtualDisk_TaskBody).Res.Returnval); refused != nil {
			panic("vcsim: moving " + moved + " failed")
		}
		on := v.datastore(datastore).Self
		backing := device.Backing.(types.BaseVirtualDeviceFileBackingInfo).GetVirtualDeviceFileBackingInfo()
		backing.FileName, backing.Datastore = moved, &on
		_ = v.fcds.with(id, func(f *fcd) types.BaseMethodFault {
			f.file().FilePath, f.file().Datastore = moved, on
			return nil
		})
		m.relock()
	})
	return moved
}

// Forget takes a disk out of the catalog, and its file away, as one that was lost.
func (v *VCenter) Forget(id string) {
	v.fcds.mu.Lock()
	defer v.fcds.mu.Unlock()
	if f := v.fcds.all[id]; f != nil {
		v.RemoveFile(f.file().FilePath)
		delete(v.fcds.all, id)
	}
}

// Disks returns the IDs of the First Class Disks that the machine has.
func (v *VCenter) Disks(path string) (ids []string) {
	v.at(path, func(_ *simulator.Context, m *machine) { ids = idsOf(m.Config) })
	return ids
}

// idsOf returns the IDs of the First Class Disks in a configuration.
func idsOf(config *types.VirtualMachineConfigInfo) (ids []string) {
	for _, device := range object.VirtualDeviceList(config.Hardware.Device).SelectByType((*types.VirtualDisk)(nil)) {
		if disk := device.(*types.VirtualDisk); disk.VDiskId != nil {
			ids = append(ids, disk.VDiskId.Id)
		}
	}
	return ids
}

// Track turns changed block tracking on for a machine and its disks, as a backup does.
func (v *VCenter) Track(path string) {
	ids := v.Disks(path)
	v.at(path, func(_ *simulator.Context, m *machine) { m.Config.ChangeTrackingEnabled = new(true) })
	for _, id := range ids {
		_ = v.fcds.with(id, func(f *fcd) types.BaseMethodFault {
			f.Config.ChangedBlockTrackingEnabled = new(true)
			return nil
		})
	}
}

// HandDetach detaches a disk as an administrator does, if the machine has it.
func (v *VCenter) HandDetach(path, id string) {
	v.at(path, func(ctx *simulator.Context, m *machine) {
		if device := m.device(id); device != nil {
			_ = m.change(ctx, types.VirtualDeviceConfigSpecOperationRemove, device)
		}
	})
}

// Quiet reports whether nothing is in flight for any machine.
func (v *VCenter) Quiet() bool {
	ctx := v.context()
	for _, m := range v.allMachines() {
		busy := false
		ctx.WithLock(m, func() { busy = m.busy != nil })
		if busy {
			return false
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.making) == 0
}

// SetKeepsDisks says whether First Class Disks that are to be kept survive their machines.
func (v *VCenter) SetKeepsDisks(keeps bool) {
	v.fcds.mu.Lock()
	defer v.fcds.mu.Unlock()
	v.fcds.loses = !keeps
}

// Unregister takes the machine out of the inventory, and leaves its files. The catalog does not learn of it.
func (v *VCenter) Unregister(path string) {
	var gone *machine
	v.at(path, func(_ *simulator.Context, m *machine) { gone = m })
	v.forget(gone)
	gone.UnregisterVM(v.context(), &types.UnregisterVM{This: gone.Self})
}
