package vcsim

import (
	"slices"
	"strings"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// Snapshots of machines. Those of the simulator want machines of its own type.

// SetSnapshot has the machine have one more snapshot, or none.
func (v *VCenter) SetSnapshot(path string, has bool) {
	if !has {
		v.Consolidate(path)
		return
	}
	v.at(path, func(ctx *simulator.Context, m *machine) { m.snapshot(ctx) })
}

// snapshot has the machine have one more snapshot, below the last one.
func (m *machine) snapshot(ctx *simulator.Context) {
	s := &simulator.VirtualMachineSnapshot{}
	s.Vm, s.Config = m.Self, *m.Config
	s.Config.Hardware.Device = slices.Clone(m.Config.Hardware.Device)
	for i, device := range s.Config.Hardware.Device {
		if disk, is := device.(*types.VirtualDisk); is {
			as := *disk
			s.Config.Hardware.Device[i] = &as
		}
	}
	ctx.Map.Put(s)
	if m.Snapshot == nil {
		m.Snapshot, m.RootSnapshot = &types.VirtualMachineSnapshotInfo{}, []types.ManagedObjectReference{s.Self}
	} else {
		last := ctx.Map.Get(*m.Snapshot.CurrentSnapshot).(*simulator.VirtualMachineSnapshot)
		last.ChildSnapshot = append(last.ChildSnapshot, s.Self)
	}
	m.Snapshot.CurrentSnapshot = &s.Self
}

// snapshots returns all snapshots of the machine.
func (m *machine) snapshots(ctx *simulator.Context) (all []*simulator.VirtualMachineSnapshot) {
	for left := m.RootSnapshot; len(left) > 0; left = left[1:] {
		s := ctx.Map.Get(left[0]).(*simulator.VirtualMachineSnapshot)
		all, left = append(all, s), append(slices.Clone(left), s.ChildSnapshot...)
	}
	return all
}

// inSnapshots returns the files of disks to which the snapshots of the machine refer.
func (m *machine) inSnapshots(ctx *simulator.Context) (files []string) {
	for _, s := range m.snapshots(ctx) {
		files = append(files, filesOf(&s.Config)...)
	}
	return files
}

// filesOf returns the files of the disks in a configuration.
func filesOf(config *types.VirtualMachineConfigInfo) (files []string) {
	for _, device := range object.VirtualDeviceList(config.Hardware.Device).SelectByType((*types.VirtualDisk)(nil)) {
		files = append(files, fileOf(device.(*types.VirtualDisk)))
	}
	return files
}

// SnapshotDisk takes a snapshot of the machine, which then writes to another file in place of that one, on which it rests.
func (v *VCenter) SnapshotDisk(path, file string) {
	v.at(path, func(ctx *simulator.Context, m *machine) {
		m.snapshot(ctx)
		m.layer(file)
	})
}

// LayerDisk has the machine write to another file in place of that one, on which it rests, without a snapshot. Whether vCenter says then that
// a consolidation is needed, as after a snapshot was deleted in part, is up to the test.
func (v *VCenter) LayerDisk(path, file string, consolidation bool) {
	v.at(path, func(_ *simulator.Context, m *machine) {
		m.layer(file)
		m.Runtime.ConsolidationNeeded = consolidation
	})
}

func (m *machine) layer(file string) {
	for _, device := range object.VirtualDeviceList(m.Config.Hardware.Device).SelectByType((*types.VirtualDisk)(nil)) {
		disk := device.(*types.VirtualDisk)
		if under := disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo); under.FileName == file {
			over := *under
			over.FileName, over.Parent = strings.TrimSuffix(file, ".vmdk")+"-000001.vmdk", under
			disk.Backing = &over
		}
	}
}

// Consolidate removes the snapshots of the machine.
func (v *VCenter) Consolidate(path string) {
	v.at(path, func(ctx *simulator.Context, m *machine) {
		for _, s := range m.snapshots(ctx) {
			ctx.Map.Remove(ctx, s.Self)
		}
		m.Snapshot, m.RootSnapshot, m.Runtime.ConsolidationNeeded = nil, nil, false
		for _, device := range object.VirtualDeviceList(m.Config.Hardware.Device).SelectByType((*types.VirtualDisk)(nil)) {
			disk := device.(*types.VirtualDisk)
			for backing, is := disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo); is && backing.Parent != nil; backing = backing.Parent {
				disk.Backing = backing.Parent
			}
		}
	})
}

// SnapshotDisks returns the IDs of the First Class Disks to which the snapshots of the machine refer.
func (v *VCenter) SnapshotDisks(path string) (ids []string) {
	v.at(path, func(ctx *simulator.Context, m *machine) {
		for _, s := range m.snapshots(ctx) {
			ids = append(ids, idsOf(&s.Config)...)
		}
	})
	return ids
}
