package disk

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vslm"
	vslmmethods "github.com/vmware/govmomi/vslm/methods"
	vslmtypes "github.com/vmware/govmomi/vslm/types"

	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/inventory"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/machine"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/session"
)

// disk is a First Class Disk as read from vCenter.
type disk struct {
	types.VStorageObjectConfigInfo
	marks map[string]string
}

func (d *disk) datastore() types.ManagedObjectReference {
	return d.Backing.GetBaseConfigInfoBackingInfo().Datastore
}

func (d *disk) bytes() int64 { return d.CapacityInMB * inventory.Mebibyte }

// marksOf returns the metadata of the disk of a VirtualDisk.
func marksOf(d runtime.Disk) []types.KeyValue {
	return []types.KeyValue{{Key: machine.OwnerKey, Value: string(d.UID)}, {Key: machine.NameKey, Value: d.String()}}
}

func updateMetadata(ctx context.Context, c *vim25.Client, of *disk, metadata []types.KeyValue) (types.ManagedObjectReference, error) {
	begun, err := methods.VCenterUpdateVStorageObjectMetadataEx_Task(ctx, c, &types.VCenterUpdateVStorageObjectMetadataEx_Task{
		This: *c.ServiceContent.VStorageObjectManager, Id: of.Id, Datastore: of.datastore(), Metadata: metadata,
	})
	if err != nil {
		return types.ManagedObjectReference{}, err
	}
	return begun.Returnval, nil
}

// findDisk returns the disk of a VirtualDisk, and nil if there is none: then it may be being created. Without an ID it is found by its mark.
// One that another VirtualDisk has taken over is not d's any more; who removes the mark takes nothing away.
func (r *Runtime) findDisk(ctx context.Context, d runtime.Disk) (of *disk, making bool, err error) {
	switch {
	case d.UID == "":
		return nil, false, runtime.NewInvalidState(nil, "VirtualDisk %s has no UID", d)
	case d.Spec == nil || d.Spec.Runtime.VSphere == nil:
		return nil, false, runtime.NewNotSupported(nil, "VirtualDisk %s is not one of a vCenter", d)
	case d.ID == "":
		return r.unrecorded(ctx, d)
	}
	of, err = r.diskWithID(ctx, d.ID, d.Home)
	if of != nil && of.marks[machine.OwnerKey] != "" && of.marks[machine.OwnerKey] != string(d.UID) {
		of = nil
	}
	return of, false, err
}

// unrecorded returns the disk that an earlier call created whose reply was lost. It is searched for once more after the tasks were read: one
// that ended between the two reads would be missed. Of several the oldest is the disk.
func (r *Runtime) unrecorded(ctx context.Context, d runtime.Disk) (of *disk, making bool, err error) {
	for range 2 {
		all, err := r.disksMarked(ctx, machine.OwnerKey, string(d.UID))
		if err != nil || len(all) > 0 {
			return first(all), false, err
		}
		if making, err = r.makingDisk(ctx, d); err != nil || making {
			return nil, making, err
		}
	}
	return nil, false, nil
}

func first(all []*disk) *disk {
	if len(all) == 0 {
		return nil
	}
	return slices.MinFunc(all, func(a, b *disk) int {
		return cmp.Or(a.CreateTime.Compare(b.CreateTime), strings.Compare(a.Id.Id, b.Id.Id))
	})
}

// makingDisk reports whether a disk is being created under our account that may be d's. vCenter does not report which one it is: those that this
// process began for others are known.
func (r *Runtime) makingDisk(ctx context.Context, d runtime.Disk) (making bool, err error) {
	ended := map[any]bool{} // of the tasks that were known before: one that begins meanwhile is not among those read
	r.creating.Range(func(ref, _ any) bool {
		ended[ref] = true
		return true
	})
	err = r.RecentTasks(ctx, func(t mo.Task) {
		if session.Verb(t.Info) != "createDisk" || !session.Running(t.Info) || !session.ByUser(t.Info, r.User()) {
			return
		}
		delete(ended, t.Self)
		of, known := r.creating.Load(t.Self)
		making = making || !known || of == d.UID
	}, "info.descriptionId", "info.reason", "info.state")
	for ref := range ended {
		if err == nil {
			r.creating.Delete(ref)
		}
	}
	return making, err
}

// maxFoundDisks limits the disks that are found by a mark.
const maxFoundDisks = 16

// disksMarked returns the disks with that mark, on whatever datastore, by their IDs. Marks are no proof: anybody who may change a disk can
// write them.
func (r *Runtime) disksMarked(ctx context.Context, key, value string) (all []*disk, err error) {
	var ids []types.ID
	equals := func(field vslmtypes.VslmVsoVStorageObjectQuerySpecQueryFieldEnum, value string) vslmtypes.VslmVsoVStorageObjectQuerySpec {
		return vslmtypes.VslmVsoVStorageObjectQuerySpec{
			QueryField: string(field), QueryOperator: string(vslmtypes.VslmVsoVStorageObjectQuerySpecQueryOperatorEnumEquals), QueryValue: []string{value},
		}
	}
	err = r.Catalog(ctx, func(c soap.RoundTripper, manager types.ManagedObjectReference) error {
		found, err := vslmmethods.VslmListVStorageObjectForSpec(ctx, c, &vslmtypes.VslmListVStorageObjectForSpec{
			This: manager, MaxResult: maxFoundDisks, Query: []vslmtypes.VslmVsoVStorageObjectQuerySpec{
				equals(vslmtypes.VslmVsoVStorageObjectQuerySpecQueryFieldEnumMetadataKey, key),
				equals(vslmtypes.VslmVsoVStorageObjectQuerySpecQueryFieldEnumMetadataValue, value),
			},
		})
		if err == nil && found.Returnval != nil {
			ids = found.Returnval.Id
		}
		return err
	})
	for _, id := range ids {
		if err != nil {
			return nil, err
		}
		var of *disk
		if of, err = r.diskWithID(ctx, id.Id, ""); of != nil && of.marks[key] == value {
			all = append(all, of)
		}
	}
	return all, err
}

// diskWithID returns the disk with that ID, nil if there is none. The datastore that it was last seen on is asked first: what it says does
// not depend on the global catalog, which finds the disk wherever it was moved.
func (r *Runtime) diskWithID(ctx context.Context, id, home string) (of *disk, err error) {
	if home != "" {
		err = r.Call(ctx, func(c *vim25.Client) error {
			found, err := vslm.NewObjectManager(c).Retrieve(ctx, types.ManagedObjectReference{Type: "Datastore", Value: home}, id)
			if err == nil {
				of = &disk{VStorageObjectConfigInfo: found.Config}
			}
			return unlessAbsent(err)
		})
	}
	if err == nil && of == nil {
		err = r.Catalog(ctx, func(c soap.RoundTripper, manager types.ManagedObjectReference) error {
			found, err := vslmmethods.VslmRetrieveVStorageObject(ctx, c, &vslmtypes.VslmRetrieveVStorageObject{This: manager, Id: types.ID{Id: id}})
			if err == nil {
				of = &disk{VStorageObjectConfigInfo: found.Returnval.Config}
			}
			return unlessAbsent(err)
		})
	}
	if err != nil || of == nil {
		return nil, err
	}
	of.marks, err = r.marksOn(ctx, of)
	return of, err
}

// unlessAbsent drops the error of a disk that does not exist. For an ID that none of its disks has, vCenter answers with either fault.
func unlessAbsent(err error) error {
	if fault.Is(err, &types.NotFound{}) || fault.Is(err, &types.InvalidArgument{}) || fault.Is(err, &types.ManagedObjectNotFound{}) {
		return nil
	}
	return err
}

func (r *Runtime) marksOn(ctx context.Context, of *disk) (marks map[string]string, err error) {
	err = r.Catalog(ctx, func(c soap.RoundTripper, manager types.ManagedObjectReference) error {
		marks = map[string]string{}
		found, err := vslmmethods.VslmRetrieveVStorageObjectMetadata(ctx, c, &vslmtypes.VslmRetrieveVStorageObjectMetadata{
			This: manager, Id: of.Id, Prefix: inventory.OurKeys,
		})
		if err != nil {
			return unlessAbsent(err)
		}
		for _, value := range found.Returnval {
			marks[value.Key] = value.Value
		}
		return nil
	})
	return marks, err
}

// holder is a machine that has a disk.
type holder struct {
	consumer string // as vCenter names it
	vm       *mo.VirtualMachine
}

// holders returns the machines that have a disk. vCenter names them by a UUID, which copies of a machine can share; the device of the machine
// says whether it has the disk. A consumer that is no such machine has it nevertheless, for all that vCenter says.
func (r *Runtime) holders(ctx context.Context, of *disk) (all []holder, err error) {
	for _, consumer := range of.ConsumerId {
		found, err := r.machinesWithUUID(ctx, consumer.Id)
		if err != nil {
			return nil, err
		}
		having := slices.DeleteFunc(found, func(vm mo.VirtualMachine) bool {
			return vm.Config == nil || machine.DeviceOf(vm.Config.Hardware.Device, of.Id.Id) == nil
		})
		for _, vm := range having {
			all = append(all, holder{consumer.Id, &vm})
		}
		if len(having) == 0 {
			all = append(all, holder{consumer: consumer.Id})
		}
	}
	return all, nil
}

// machinesWithUUID returns the machines with an instance UUID or a BIOS UUID.
func (r *Runtime) machinesWithUUID(ctx context.Context, uuid string) (all []mo.VirtualMachine, err error) {
	var objects []types.ObjectSpec
	err = r.Call(ctx, func(c *vim25.Client) error {
		objects = nil
		for _, instance := range []bool{true, false} {
			found, err := methods.FindAllByUuid(ctx, c, &types.FindAllByUuid{
				This: *c.ServiceContent.SearchIndex, Uuid: strings.ToLower(uuid), VmSearch: true, InstanceUuid: &instance,
			})
			if err != nil {
				return err
			}
			for _, ref := range found.Returnval {
				if !slices.ContainsFunc(objects, func(o types.ObjectSpec) bool { return o.Obj == ref }) {
					objects = append(objects, types.ObjectSpec{Obj: ref})
				}
			}
		}
		return nil
	})
	if err != nil || len(objects) == 0 {
		return nil, err
	}
	err = r.Retrieve(ctx, types.PropertyFilterSpec{ObjectSet: objects, PropSet: []types.PropertySpec{
		{Type: "VirtualMachine", PathSet: []string{"name", "config.extraConfig", "config.hardware.device", "config.instanceUuid"}},
	}}, session.Only(func(vm mo.VirtualMachine) { all = append(all, vm) }))
	return all, r.NotGone(err)
}

// id returns the mark of the machine, or vCenter's ID of one without a mark.
func (h holder) id() string {
	if h.vm == nil {
		return h.consumer
	}
	return cmp.Or(machine.ExtraConfigOf(h.vm)[machine.OwnerKey], h.vm.Config.InstanceUuid)
}

// String returns the machine for messages.
func (h holder) String() string {
	if h.vm == nil {
		return "a machine that vCenter does not show (" + h.consumer + ")"
	}
	name := h.vm.Name
	if len(name) > session.MaxBy {
		name = strings.ToValidUTF8(name[:session.MaxBy], "")
	}
	return "machine " + strconv.Quote(name)
}

// inUse returns the error of a change that an attached disk does not allow, or the error of reading who has it.
func inUse(err error, holders []holder, doing string) error {
	switch {
	case err != nil:
		return err
	case holders[0].vm != nil && machine.ExtraConfigOf(holders[0].vm)[machine.OwnerKey] == "":
		return runtime.NewInvalidState(nil, "the disk cannot be %s: %s has it attached, which is not one of Sallyport: detach it there", doing, holders[0])
	}
	return runtime.NewInvalidState(nil, "the disk cannot be %s: %s has it attached", doing, holders[0])
}
