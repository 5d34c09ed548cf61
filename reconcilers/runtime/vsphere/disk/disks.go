// Package disk has the VirtualDisks of a vCenter, which are First Class Disks, and attaches them to machines.
package disk

import (
	"context"
	"errors"
	"sync"

	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/task"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vslm"
	"k8s.io/apimachinery/pkg/api/resource"

	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/inventory"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/machine"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/session"
)

// A VirtualDisk is a First Class Disk of vCenter. vCenter gives it an ID, which it keeps wherever it is moved, and which the status of the
// VirtualDisk records: nothing else proves which disk it is. Its metadata have the UID and the name of its VirtualDisk, by which a disk is
// found whose creation had no reply, or that belongs to an earlier VirtualDisk.

// Runtime runs the machines and the disks of one vCenter.
type Runtime struct {
	*machine.Runtime
	creating *sync.Map // UIDs of VirtualDisks, by the reference of the task; shared by the runtimes of the session
}

var (
	_ runtime.Runtime  = (*Runtime)(nil)
	_ runtime.Migrator = (*Runtime)(nil)
)

// New returns the runtime of that vCenter, as [machine.New].
func New(server *session.Server) *Runtime {
	return &Runtime{Runtime: machine.New(server), creating: &sync.Map{}}
}

// Restricted returns a runtime that asks check before it creates a machine.
func (r *Runtime) Restricted(check machine.PlaceCheck) *Runtime {
	return &Runtime{Runtime: r.Runtime.Restricted(check), creating: r.creating}
}

// datastoreField is the field of a disk's spec for its datastore.
const datastoreField = "spec.runtime.vsphere.datastore"

// ObserveDisk observes the disk.
func (r *Runtime) ObserveDisk(ctx context.Context, d runtime.Disk) (runtime.DiskObservation, error) {
	of, making, err := r.findDisk(ctx, d)
	if err != nil || of == nil {
		return runtime.DiskObservation{InFlight: making}, err
	}
	holders, err := r.holders(ctx, of)
	if err != nil {
		return runtime.DiskObservation{}, err
	}
	seen := runtime.DiskObservation{Exists: true, ID: of.Id.Id, Home: of.datastore().Value, Bytes: of.bytes()}
	for _, h := range holders {
		seen.AttachedTo = append(seen.AttachedTo, h.id())
	}
	return seen, nil
}

// EnsureDisk creates or grows the disk.
func (r *Runtime) EnsureDisk(ctx context.Context, d runtime.Disk) (diskID string, err error) {
	err = machine.Decide(func() (err error) {
		diskID, err = r.ensureDisk(ctx, d)
		return err
	})
	return diskID, err
}

func (r *Runtime) ensureDisk(ctx context.Context, d runtime.Disk) (diskID string, err error) {
	of, making, err := r.findDisk(ctx, d)
	switch {
	case err != nil || making:
		return "", err
	case of == nil && d.ID != "":
		return "", runtime.NewNotFound(nil, "vCenter %s has no disk %s (status.diskID) that belongs to VirtualDisk %s", r.Config.Name, d.ID, d)
	case of == nil:
		if of, err = r.succeedDisk(ctx, d); err == nil && of == nil {
			of, err = r.makeDisk(ctx, d)
		}
		if err != nil {
			return "", err
		}
	}
	if of.bytes() < d.Bytes() {
		if err := r.grow(ctx, d, of); err != nil {
			return "", err
		}
	}
	return of.Id.Id, nil
}

// makeDisk creates a disk with its mark. vCenter keeps it when a machine that has it is destroyed.
func (r *Runtime) makeDisk(ctx context.Context, d runtime.Disk) (*disk, error) {
	on, err := r.storeFor(ctx, d)
	if err != nil {
		return nil, err
	}
	info, err := r.CarryOut(ctx, func(c *vim25.Client) (*object.Task, error) {
		begun, err := vslm.NewObjectManager(c).CreateDisk(ctx, types.VslmCreateSpec{
			Name: d.Namespace + "-" + d.Name, KeepAfterDeleteVm: new(true), CapacityInMB: d.Bytes() / inventory.Mebibyte,
			BackingSpec: &types.VslmCreateSpecDiskFileBackingSpec{
				VslmCreateSpecBackingSpec: types.VslmCreateSpecBackingSpec{Datastore: on},
				ProvisioningType:          string(types.BaseConfigInfoDiskFileBackingInfoProvisioningTypeThin),
			},
			Metadata: marksOf(d),
		})
		if err == nil {
			r.creating.Store(begun.Reference(), d.UID)
		}
		return begun, err
	})
	if err != nil {
		return nil, r.NotGone(err)
	}
	made, is := info.Result.(types.VStorageObject)
	if !is {
		return nil, runtime.NewUnavailable(nil, "vCenter %s did not report the disk that it created", r.Config.Name)
	}
	return &disk{VStorageObjectConfigInfo: made.Config}, nil
}

// storeFor returns the datastore for a disk to create. The first reason why it cannot have the disk is an InvalidSpec error.
func (r *Runtime) storeFor(ctx context.Context, d runtime.Disk) (on types.ManagedObjectReference, err error) {
	path, server := d.Spec.Runtime.VSphere.Datastore, r.Config.Name
	ref, err := r.Named(ctx, path, "Datastore")
	switch {
	case err != nil:
		return on, err
	case ref == nil:
		return on, runtime.NewInvalidSpec(nil, "%s: vCenter %s has no datastore at %s, or does not show it", datastoreField, server, path)
	}
	var store mo.Datastore
	if err := r.Read(ctx, *ref, &store, "summary"); err != nil {
		return on, r.NotGone(err)
	}
	switch {
	case !store.Summary.Accessible:
		return on, runtime.NewUnavailable(nil, "vCenter %s shows the datastore %s as not accessible", server, path)
	case inventory.InMaintenance(store.Summary):
		return on, runtime.NewInvalidSpec(nil, "%s: the datastore is in maintenance mode", datastoreField)
	case d.Bytes() > store.Summary.Capacity:
		return on, runtime.NewInvalidSpec(nil, "spec.size: the datastore %s has room for %s, but the disk can grow to %s", path,
			resource.NewQuantity(inventory.RoundUp(store.Summary.Capacity, inventory.Mebibyte), resource.BinarySI), d.Spec.Size.String())
	}
	return *ref, nil
}

// grow enlarges a disk, also one that a machine has, if vCenter lets it.
func (r *Runtime) grow(ctx context.Context, d runtime.Disk, of *disk) error {
	_, err := r.CarryOut(ctx, func(c *vim25.Client) (*object.Task, error) {
		return vslm.NewObjectManager(c).ExtendDisk(ctx, of.datastore(), of.Id.Id, d.Bytes()/inventory.Mebibyte)
	})
	if text := said(err); text != "" && len(of.ConsumerId) > 0 {
		return runtime.NewInvalidState(err, "the disk cannot be grown while a machine has it: %s", text)
	}
	return r.NotGone(err)
}

// said returns vCenter's message about a rejected task, and "" for any other error.
func said(err error) string {
	failed, is := errors.AsType[task.Error](err)
	if !is || !machine.RejectsSize(err) || failed.LocalizedMethodFault == nil {
		return ""
	}
	return failed.LocalizedMessage
}

// Attach attaches the disk to the machine and waits for completion.
func (r *Runtime) Attach(ctx context.Context, m runtime.Machine, d runtime.Disk) error {
	return r.AttachFound(ctx, m, d, func(ctx context.Context) (*types.VStorageObjectConfigInfo, error) { return r.attachable(ctx, m, d) })
}

// attachable returns the disk, or the error of attaching it to the machine.
func (r *Runtime) attachable(ctx context.Context, m runtime.Machine, d runtime.Disk) (*types.VStorageObjectConfigInfo, error) {
	if of := d.Spec.Runtime.VSphere; of != nil && of.ServerRef != m.Spec.Runtime.VSphere.ServerRef {
		return nil, runtime.NewInvalidState(nil, "the disk is on VSphereServer %s, but the machine is on another VSphereServer", of.ServerRef.Name)
	}
	of, _, err := r.findDisk(ctx, d)
	switch {
	case err != nil:
		return nil, err
	case of == nil:
		return nil, runtime.NewNotFound(nil, "vCenter %s has no disk of VirtualDisk %s", r.Config.Name, d)
	}
	if holders, err := r.holders(ctx, of); err != nil || len(holders) > 0 {
		return nil, inUse(err, holders, "attached")
	}
	return &of.VStorageObjectConfigInfo, nil
}

// DeleteDisk destroys the disk.
func (r *Runtime) DeleteDisk(ctx context.Context, d runtime.Disk) error {
	of, making, err := r.findDisk(ctx, d)
	switch {
	case err != nil:
		return err
	case making:
		return runtime.NewInvalidState(nil, "the creation of the disk may still be in progress")
	case of == nil:
		return nil
	}
	if holders, err := r.holders(ctx, of); err != nil || len(holders) > 0 {
		return inUse(err, holders, "deleted")
	}
	_, err = r.CarryOut(ctx, func(c *vim25.Client) (*object.Task, error) {
		return vslm.NewObjectManager(c).Delete(ctx, of.datastore(), of.Id.Id)
	})
	if fault.Is(err, &types.NotFound{}) {
		return nil
	}
	return r.NotGone(err)
}

// succeedDisk checks for the disk of an earlier VirtualDisk of d's name: it is an OwnedByAnother error, or is taken over if d says so. It
// returns nil if there is none, or it does not matter.
func (r *Runtime) succeedDisk(ctx context.Context, d runtime.Disk) (*disk, error) {
	if d.Earlier == runtime.MakeAnew {
		return nil, nil
	}
	all, err := r.disksMarked(ctx, machine.NameKey, d.String())
	switch {
	case err != nil || len(all) == 0:
		return nil, err
	case d.Earlier != runtime.TakeOver:
		return nil, runtime.NewHeldBack("svd", d.NamespacedName, "disk %s in vCenter %s", all[0].Id.Id, r.Config.Name)
	case len(all) > 1:
		return nil, runtime.NewOwnedByAnother(nil, "%d disks belong to an earlier VirtualDisk %s, such as %s and %s: delete all but the one to take over "+
			"(govc disk.rm)", len(all), d, all[0].Id.Id, all[1].Id.Id)
	}
	on, err := r.storeFor(ctx, d)
	if err != nil {
		return nil, err
	}
	if of := all[0]; of.datastore() != on {
		return nil, runtime.NewOwnedByAnother(nil, "%s: disk %s of an earlier VirtualDisk %s is on another datastore: move it there in vCenter, or create "+
			"the VirtualDisk with that datastore", datastoreField, of.Id.Id, d)
	}
	return all[0], r.mark(ctx, d, all[0])
}

// mark makes a disk the one of d.
func (r *Runtime) mark(ctx context.Context, d runtime.Disk, of *disk) error {
	_, err := r.CarryOut(ctx, func(c *vim25.Client) (*object.Task, error) {
		begun, err := updateMetadata(ctx, c, of, marksOf(d))
		if err != nil {
			return nil, err
		}
		return object.NewTask(c, begun), nil
	})
	return r.NotGone(err)
}
