package vsphere

import (
	"context"
	"errors"
	"slices"

	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/task"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/apimachinery/pkg/api/resource"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

var _ runtime.Disks = (*Runtime)(nil)

// located is a disk found in vCenter.
type located struct {
	*spot
	holders []holder
	file    *types.VmDiskFileInfo // the file where the disk belongs; searched for only if no machine has the disk
	making  bool                  // it does not exist, and may be being created
}

func (l *located) exists() bool { return l.file != nil || len(l.holders) > 0 }

func (l *located) bytes() int64 {
	switch {
	case l.file != nil:
		return l.file.CapacityKb * 1024
	case l.holders[0].disk != nil:
		return capacity(l.holders[0].disk)
	}
	return l.holders[0].mark.bytes
}

// locate searches for a disk. Machines are read first: a machine that gets the disk afterwards has a task in flight
// until then.
func (r *Runtime) locate(ctx context.Context, d runtime.Disk) (*located, error) {
	at, err := r.spotOf(ctx, d)
	if err != nil {
		return nil, err
	}
	l := &located{spot: at}
	for _, look := range []func() error{
		func() (err error) { l.holders, err = r.holders(ctx, d, at); return err },
		func() (err error) { l.file, err = r.fileAt(ctx, at, d.UID); return err },
		func() (err error) {
			if d.ID == "" && d.Earlier != runtime.TakeOver { // a disk to take over has another name, and no ID yet
				l.making, err = r.makingDisks(ctx)
				return err
			}
			l.holders, err = r.holdersAnywhere(ctx, d, at)
			return err
		},
		// It was created or moved back in the meantime.
		func() (err error) { l.file, err = r.fileAt(ctx, at, d.UID); return err },
	} {
		if err := look(); err != nil {
			return nil, r.notGone(err)
		}
		if err := r.withoutCopies(ctx, d, l); err != nil {
			return nil, r.notGone(err)
		}
		if l.exists() {
			l.making = false
			break
		}
	}
	return l, nil
}

// withoutCopies removes machines that have a copy of the disk, with its mark and UUID, while the disk is where it
// belongs. The machine that has the disk according to its status is not removed: only a user can know which of two
// files is the right one.
func (r *Runtime) withoutCopies(ctx context.Context, d runtime.Disk, l *located) (err error) {
	copies := func(h holder) bool {
		return h.disk != nil && !fileOf(h.disk, d.UID) && (d.Holder == "" || h.id() != string(d.Holder))
	}
	if d.ID == "" || !slices.ContainsFunc(l.holders, copies) {
		return nil
	}
	file, err := r.fileAt(ctx, l.spot, d.UID)
	if err == nil && file != nil {
		l.holders = slices.DeleteFunc(l.holders, copies)
	}
	return err
}

// notGone converts the error of a read: another missing object does not mean that the disk is gone.
func (r *Runtime) notGone(err error) error {
	if runtime.IsNotFound(err) {
		return runtime.NewUnavailable(err, "vCenter %s did not show all machines that may have the disk", r.server.Config.Name)
	}
	return err
}

// makingDisks reports whether a disk is being created under our account. vCenter does not report which one.
func (r *Runtime) makingDisks(ctx context.Context) (making bool, err error) {
	err = r.recentTasks(ctx, func(t mo.Task) {
		making = making || verb(t.Info) == "createVirtualDisk" && running(t.Info) && byUser(t.Info, r.server.User())
	}, "info.descriptionId", "info.reason", "info.state")
	return making, err
}

// ObserveDisk observes the disk.
func (r *Runtime) ObserveDisk(ctx context.Context, d runtime.Disk) (seen runtime.DiskObservation, err error) {
	l, err := r.locate(ctx, d)
	if err != nil || !l.exists() {
		return runtime.DiskObservation{InFlight: l != nil && l.making}, err
	}
	id, err := r.idOf(ctx, d, l)
	if err != nil {
		return runtime.DiskObservation{}, err
	}
	seen = runtime.DiskObservation{Exists: true, ID: id, Home: l.datastore.Self.Value, Bytes: l.bytes()}
	for _, h := range l.holders {
		seen.AttachedTo = append(seen.AttachedTo, h.id())
		seen.InFlight = seen.InFlight || h.disk == nil
	}
	return seen, nil
}

// idOf returns the ID of an existing disk: the UUID of its file at creation. A file that replaced it has another one.
func (r *Runtime) idOf(ctx context.Context, d runtime.Disk, l *located) (string, error) {
	if d.ID != "" {
		return d.ID, nil
	}
	for _, h := range l.holders {
		if h.disk != nil && uuidOf(h.disk) != "" {
			return uuidOf(h.disk), nil
		}
	}
	id, err := r.uuidAt(ctx, l.spot, d.UID)
	return id, r.notGone(err)
}

// EnsureDisk creates or grows the disk.
func (r *Runtime) EnsureDisk(ctx context.Context, d runtime.Disk) (diskID string, err error) {
	err = decide(func() (err error) {
		diskID, err = r.ensureDisk(ctx, d)
		return err
	})
	return diskID, err
}

func (r *Runtime) ensureDisk(ctx context.Context, d runtime.Disk) (diskID string, err error) {
	l, err := r.locate(ctx, d)
	if err == nil && !l.exists() && d.ID == "" {
		var did bool
		d.ID, did, err = r.succeedDisk(ctx, d, l.spot)
		if err == nil && !did {
			err = r.makeDisk(ctx, d, l.spot)
		}
		if err != nil {
			return "", err
		}
		l, err = r.locate(ctx, d)
	}
	switch {
	case err != nil:
		return "", err
	case !l.exists() && d.ID != "":
		return "", runtime.NewNotFound(nil, "vCenter %s has no file of VirtualDisk %s on %s, and no machine that has the disk",
			r.server.Config.Name, d, d.Spec.Runtime.VSphere.Datastore)
	case !l.exists():
		return "", nil
	}
	if l.bytes() < d.Bytes() {
		if err := r.grow(ctx, d, l); err != nil {
			return "", err
		}
	}
	return r.idOf(ctx, d, l)
}

// makeDisk creates the file of a disk, unless it exists.
func (r *Runtime) makeDisk(ctx context.Context, d runtime.Disk, at *spot) error {
	summary := at.datastore.Summary
	switch mode := summary.MaintenanceMode; {
	case mode != "" && mode != string(types.DatastoreSummaryMaintenanceModeStateNormal):
		return runtime.NewInvalidSpec(nil, "%s: the datastore is in maintenance mode", datastoreField)
	case d.Bytes() > summary.Capacity:
		return runtime.NewInvalidSpec(nil, "spec.size: the datastore %s has room for %s, but the disk can grow to %s", d.Spec.Runtime.VSphere.Datastore,
			resource.NewQuantity(roundUp(summary.Capacity, mebibyte), resource.BinarySI), d.Spec.Size.String())
	}
	if err := r.makeFolder(ctx, at); err != nil {
		return r.notGone(err)
	}
	if err := r.makeTag(ctx, at, d); err != nil {
		return err
	}
	_, err := r.carryOut(ctx, func(c *vim25.Client) (*object.Task, error) {
		return object.NewVirtualDiskManager(c).CreateVirtualDisk(ctx, at.home(d.UID), at.dc(c), &types.FileBackedVirtualDiskSpec{
			VirtualDiskSpec: types.VirtualDiskSpec{
				DiskType: string(types.VirtualDiskTypeThin), AdapterType: string(types.VirtualDiskAdapterTypeLsiLogic),
			},
			CapacityKb: d.Bytes() / 1024,
		})
	})
	if fault.Is(err, &types.FileAlreadyExists{}) {
		return nil
	}
	return r.notGone(err)
}

// grow enlarges a disk: its file, or the device of the machine that has it.
func (r *Runtime) grow(ctx context.Context, d runtime.Disk, l *located) error {
	if len(l.holders) == 0 {
		if err := r.isDisk(ctx, l.spot, d, "grown"); err != nil {
			return err
		}
		_, err := r.carryOut(ctx, func(c *vim25.Client) (*object.Task, error) {
			return object.NewVirtualDiskManager(c).ExtendVirtualDisk(ctx, l.home(d.UID), l.dc(c), d.Bytes()/1024, nil)
		})
		return r.notGone(err)
	}
	h := l.holders[0]
	if !h.marked || h.disk == nil || len(l.holders) > 1 {
		return h.inUse("grown")
	}
	larger := *h.disk
	larger.CapacityInBytes, larger.CapacityInKB = d.Bytes(), d.Bytes()/1024
	err := r.reconfigure(ctx, &sighting{vm: h.vm}, types.VirtualMachineConfigSpec{DeviceChange: []types.BaseVirtualDeviceConfigSpec{
		&types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationEdit, Device: &larger},
	}})
	if text := said(err); text != "" {
		return runtime.NewInvalidState(err, "the disk cannot be grown while %s has it: %s", h, text)
	}
	return r.notGone(err)
}

// said returns vCenter's message about a rejected task, and "" for any other error.
func said(err error) string {
	failed, is := errors.AsType[task.Error](err)
	if !is || !rejectsSize(err) || failed.LocalizedMethodFault == nil {
		return ""
	}
	return failed.LocalizedMessage
}

// DeleteDisk destroys the disk.
func (r *Runtime) DeleteDisk(ctx context.Context, d runtime.Disk) error {
	l, err := r.locate(ctx, d)
	switch {
	case err != nil:
		return err
	case l.making:
		return runtime.NewInvalidState(nil, "the creation of the disk may still be in progress")
	case !l.exists():
		return nil
	case len(l.holders) > 0:
		return l.holders[0].inUse("deleted")
	}
	if err := r.isDisk(ctx, l.spot, d, "deleted"); err != nil {
		return err
	}
	if err := r.removeTag(ctx, l.spot, d); err != nil {
		return err
	}
	_, err = r.carryOut(ctx, func(c *vim25.Client) (*object.Task, error) {
		return object.NewVirtualDiskManager(c).DeleteVirtualDisk(ctx, l.home(d.UID), l.dc(c))
	})
	if fault.Is(err, &types.FileNotFound{}) {
		return nil
	}
	return r.notGone(err)
}
