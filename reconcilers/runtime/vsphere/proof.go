package vsphere

import (
	"context"
	"path"
	"strings"

	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	kubetypes "k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// Users who may edit or copy a machine in vCenter can write its extraConfig, so a mark there only says where to look.
// The file and the datastore of a disk are known from the status of its VirtualDisk: the UUID of the file (Disk.ID)
// and the datastore (Disk.Home). They are compared with vCenter's before anything is moved, attached, grown or
// destroyed.

// anotherFile returns the error for a file in the place of a disk that is not the disk.
func anotherFile(d runtime.Disk, doing, file, uuid string) error {
	return runtime.NewInvalidState(nil, "the disk cannot be %s: %s has UUID %s, but status.diskID of VirtualDisk %s is %s: put the file of the disk back in "+
		"vCenter, or remove the other one", doing, file, uuid, d.Name, d.ID)
}

// isDisk checks that the file where a disk belongs is the disk that was created. A disk without a known ID is
// identified by the file's name.
func (r *Runtime) isDisk(ctx context.Context, at *spot, d runtime.Disk, doing string) error {
	if d.ID == "" {
		return nil
	}
	uuid, err := r.uuidAt(ctx, at, d.UID)
	switch {
	case err != nil:
		return r.notGone(err)
	case uuid != d.ID:
		return anotherFile(d, doing, at.home(d.UID), uuid)
	}
	return nil
}

// homeOf reads the datastore to which a disk of the machine is moved back. A disk that is not among the machine's
// VirtualDisks has none.
func (r *Runtime) homeOf(ctx context.Context, m runtime.Machine, of mark) (d runtime.Disk, at *spot, err error) {
	d, known := m.Disk(of.disk)
	if !known || d.ID == "" {
		return d, nil, runtime.NewInvalidState(nil, "disk %s cannot be detached: no VirtualDisk that is attached to this machine has the UID %s, and the "+
			"machine's extraConfig alone does not prove which file is the disk. Detach it in vCenter and remove %s from the machine's extraConfig",
			of.name, of.disk, of.key())
	}
	if d.Home == "" {
		at, err = r.spotOf(ctx, d)
		return d, at, err
	}
	at, err = r.spotAt(ctx, types.ManagedObjectReference{Type: "Datastore", Value: d.Home}, "")
	if runtime.IsUnavailable(err) && ctx.Err() == nil {
		err = runtime.NewInvalidState(err, "disk %s cannot be detached: the datastore it belongs to does not exist or is not accessible", of.name)
	}
	return d, at, err
}

// mayMove checks that a file is the disk, and is in the machine's own folder, to which vCenter moves the disks of a
// machine, or in the folder of disks, where a disk that was taken over has the name of the former VirtualDisk.
func (r *Runtime) mayMove(ctx context.Context, s *sighting, at *spot, d runtime.Disk, file, uuid string) error {
	switch {
	case uuid != d.ID:
		return anotherFile(d, "detached", file, uuid)
	case path.Dir(file) == at.folder():
		return nil
	}
	var vm mo.VirtualMachine
	if err := r.read(ctx, s.vm.Self, &vm, "config.files.vmPathName"); err != nil {
		return err
	}
	if vm.Config == nil || !sameFolder(vm.Config.Files.VmPathName, file) {
		return runtime.NewInvalidState(nil, "disk %s cannot be detached: its file %s is not in the folder of the machine. Move it in vCenter to %s.vmdk in the "+
			"folder sallyport of its datastore", d.Name, file, d.UID)
	}
	return nil
}

// sameFolder reports whether two files are in the same folder. On another datastore that is the folder with the same
// path, which vCenter uses for a disk of the machine that is moved alone.
func sameFolder(one, other string) bool {
	var a, b object.DatastorePath
	if !a.FromString(one) || !b.FromString(other) {
		return false
	}
	folder := path.Dir(a.Path)
	return folder != "." && folder != disksFolder && !strings.HasPrefix(folder, "..") && folder == path.Dir(b.Path)
}

// inStore reports whether a device is the file of that VirtualDisk in the datastore's folder of disks.
func (r *Runtime) inStore(ctx context.Context, on *types.VirtualDisk, disk kubetypes.UID) (bool, error) {
	ref := datastoreOf(on)
	if ref == nil {
		return false, nil
	}
	at, err := r.spotAt(ctx, *ref, "")
	return err == nil && at.isHome(files(on)[0], on, disk), err
}

// onItsWay reports whether the file of a disk is where its mark says that it was left. Unknown state is an error.
func (r *Runtime) onItsWay(ctx context.Context, d runtime.Disk, at *spot, m mark) (bool, error) {
	if d.ID == "" {
		return false, nil
	}
	uuid, err := r.uuidOfFile(ctx, at, m.away)
	if fault.Is(err, &types.FileNotFound{}) || fault.Is(err, &types.InvalidDatastorePath{}) || fault.Is(err, &types.InvalidDatastore{}) {
		return false, nil
	}
	return err == nil && (d.ID == anyID || uuid == d.ID), err
}
