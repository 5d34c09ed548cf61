// Package runtime is the interface to the systems that run machines: a vCenter, a node agent, KubeVirt.
//
// [Runtime] is what every one of them can do; what only some can do is an interface of its own, such as [Migrator]. The
// contract is in the comments here, and [sallyport.dev/sallyport/test/support/double/conformance] tests it. A runtime makes
// no decisions: the claim decides who may send what, and a runtime carries out requests.
package runtime

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Runtime runs machines. It is safe for concurrent use.
//
// For every call:
//
//   - It returns before or as soon as ctx ends, whatever the runtime's remote end does; an ended ctx is an
//     Unavailable error.
//   - It starts things and does not wait for them: success means that the runtime accepted the request, or that there
//     was nothing to do. Only Observe shows the result. A call may wait a moment to recognize an immediate failure.
//   - After an Unavailable error, or one that is not of this package, the request may have been carried out, may be
//     in flight or may never have arrived: [MayHaveActed]. After any other error nothing was done.
//   - Whatever a call causes is done or in flight, as Observe shows it, when the call returns; a request that has not
//     reached the runtime by then never will. A runtime therefore does not retry on its own, and closes the connection
//     on which a request may still be waiting. Undoing an operation depends on this: once nothing is in flight, none of
//     its requests can take effect any more.
//   - It is idempotent: repeating a call whose request was carried out, or is in flight, succeeds and changes
//     nothing.
//   - A request that does not fit the state of the machine, or its tasks in flight, is an InvalidState error: observe
//     again later.
//   - A machine that was not created or adopted, or is gone, is a NotFound error, unless a call says otherwise. One
//     with another owner's mark is an OwnedByAnother error and is not touched.
//
// Restart is not a verb: it is power off, observe that it is off, and power on. A reset could not be observed, nor
// distinguished from two.
type Runtime interface {
	// Observe reads the machine from the runtime itself, never from a cache. A machine that does not exist is not an error but an
	// Observation that says so. It changes nothing.
	//
	// Tasks in flight are read before, or together with, the rest: otherwise a power-on that ends between the two reads would be
	// reported as off and quiet.
	Observe(ctx context.Context, machine Machine) (Observation, error)

	// Ensure creates the machine, powered off, or adopts the one that the spec names, in whatever state it is, and sets the owner
	// mark. By that mark it finds what an earlier Ensure created whose reply was lost: repeated calls create one instance. It returns
	// the ID of the instance, which is constant; the ID is empty while the instance is being created (a task of kind Create), and the
	// caller calls again.
	//
	// A machine to adopt that does not exist is a NotFound error, one with another owner's mark an OwnedByAnother error. A running
	// machine is not reconfigured.
	//
	// If the runtime has a machine marked for the same namespace and name with another UID, as after a restore from a backup, none is
	// created: that is an OwnedByAnother error too. [Machine.Earlier] may decide otherwise.
	Ensure(ctx context.Context, machine Machine) (instanceID string, err error)

	// PowerOn powers the machine on, a task of kind PowerOn, with a new incarnation. On a running machine it succeeds without a new
	// incarnation. A paused machine resumes in its incarnation. A machine that Ensure created gets the size of its spec first. It is
	// placed on a node that matches the spec's node selector, if it is not on one. If one of these is not possible, it returns an
	// InvalidSpec error and the machine stays off.
	PowerOn(ctx context.Context, machine Machine) error

	// PowerOff powers the machine off; if it is off, it succeeds.
	//
	// Graceful asks the guest to shut down and returns. The guest may take long or ignore the request, so this is not in flight: it
	// can be repeated, and blocks nothing else. It cannot be canceled either. A guest may comply long after the caller has given up,
	// but only in the incarnation that was asked, never after the next power-on. A machine that a Start found running may therefore
	// still shut down later: the run policy keeps it on. Without a guest agent it returns a ToolsUnavailable error, on a paused
	// machine InvalidState.
	//
	// Forced cuts the power, a task of kind PowerOff. It is possible whenever nothing else is in flight, also after a guest shutdown
	// request without effect, and on a paused machine.
	PowerOff(ctx context.Context, machine Machine, mode Mode) error

	// Cancel asks the runtime to cancel the task with that ID, if it is in flight for the machine, is Ours, and is a power-on or a
	// relocation. It cancels nothing else: tasks of vCenter's DRS or other users run to their end. The task may do so as well: the
	// request can be too late or be ignored. The result is known once Observe shows nothing in flight; the machine then stays in the
	// state in which it is. If there is nothing to cancel, or no machine, it succeeds.
	Cancel(ctx context.Context, machine Machine, task string) error

	// Delete removes an instance that Ensure created, a task of kind Delete, with everything that belongs only to it. An adopted one
	// is released: its mark is removed and nothing else changes. Without an instance it succeeds. A created machine that is not off is
	// an InvalidState error.
	Delete(ctx context.Context, machine Machine) error
}

// Migrator is a Runtime that can move a machine to another node.
type Migrator interface {
	// Migrate starts to move the machine, a task of kind Relocate. A running machine keeps its incarnation. It ends on the target or
	// stays. A machine that already is at the target, or on its way there, is success. If no connected node matches the target, or the
	// machine cannot be moved there, it returns an InvalidState error with the reason.
	Migrate(ctx context.Context, machine Machine, target Target) error
}

// Adjuster is a Runtime that can resize some running machines. On other runtimes a size changes with the next power-on.
type Adjuster interface {
	// Adjust applies the Differences of a machine that are Live. It succeeds if there are none.
	Adjust(ctx context.Context, machine Machine) error
}

// Disks is a Runtime with disks that outlive the machines to which they are attached. The rules of [Runtime] apply.
type Disks interface {
	// ObserveDisk reads the disk from the runtime itself. A disk that does not exist is not an error. It changes nothing.
	ObserveDisk(ctx context.Context, disk Disk) (DiskObservation, error)

	// EnsureDisk creates the disk, empty or from its source, or grows it to its size; it never shrinks it. It finds what an earlier
	// call created whose reply was lost: repeated calls create one disk. It returns the disk's ID, which is constant, and empty while
	// the disk is being created. A disk that has an ID and is gone is a NotFound error: its data would be lost silently. A disk that
	// cannot be grown while it is attached is an InvalidState error. If a disk is marked for the same namespace and name with another
	// UID, none is created, as with Ensure.
	EnsureDisk(ctx context.Context, disk Disk) (diskID string, err error)

	// DeleteDisk destroys the disk with its data. It succeeds if there is none. A disk that is attached to any machine is an
	// InvalidState error and stays.
	DeleteDisk(ctx context.Context, disk Disk) error

	// Attach attaches the disk to the machine, whether it is on or off, a task of kind Reconfigure of the machine, or Plugging. It
	// succeeds if it is attached to it already. A disk that is attached to another machine, or cannot be attached to this one, is an
	// InvalidState error with the reason; a missing disk is NotFound.
	Attach(ctx context.Context, machine Machine, disk Disk) error

	// Detach detaches the VirtualDisk of that UID from the machine and keeps its data, a task of kind Reconfigure of the machine, or
	// Plugging. It succeeds if it is not attached.
	Detach(ctx context.Context, machine Machine, disk types.UID) error
}

// FixedDisks is a Disks whose machines keep the disks with which they were created. Attach and Detach are for a machine that does not
// exist yet: they choose its disks, and take effect at once. A machine that exists keeps its disks through every move until it is
// deleted: attaching or detaching is an InvalidState error. Ensure creates no machine without a disk that its spec names.
type FixedDisks interface {
	Disks
	// DisksAreFixed marks a FixedDisks. It does nothing.
	DisksAreFixed()
}

// Disk identifies the disk of a call, with the data of its VirtualDisk.
type Disk struct {
	// NamespacedName is the name of the VirtualDisk.
	types.NamespacedName
	// UID is the UID of the VirtualDisk, never empty. It is the owner mark, like that of a [Machine].
	UID types.UID
	// ID is the result of EnsureDisk. It is empty before that.
	ID string
	// Home is the [DiskObservation.Home] of the last observation. It is empty before that, and the disk may be elsewhere by now.
	Home string
	// Holder is the UID of the VirtualMachine that the disk is attached to according to its status.
	Holder types.UID
	// Spec is the spec of the VirtualDisk. A runtime does not change it.
	Spec *v1alpha1.VirtualDiskSpec
	// Earlier decides about a disk that is marked for the same name with another UID.
	Earlier Earlier
	// Source is the source for EnsureDisk. A disk whose spec has a source is not created without it.
	Source *DiskSource
}

// DiskOf returns the Disk of a VirtualDisk. It shares the spec.
func DiskOf(d *v1alpha1.VirtualDisk) Disk {
	var holder types.UID
	if d.Status.AttachedTo != nil {
		holder = d.Status.AttachedTo.UID
	}
	return Disk{
		NamespacedName: types.NamespacedName{Namespace: d.Namespace, Name: d.Name},
		UID:            d.UID,
		ID:             d.Status.DiskID,
		Home:           d.Status.DatastoreID,
		Holder:         holder,
		Spec:           &d.Spec,
		Earlier:        EarlierOf(d),
	}
}

// Bytes returns the wanted size of the disk in bytes, a multiple of a mebibyte.
func (d Disk) Bytes() int64 {
	const mebibyte = 1 << 20
	return (d.Spec.Size.Value() + mebibyte - 1) / mebibyte * mebibyte
}

// String returns the namespace and name of the disk.
func (d Disk) String() string { return d.NamespacedName.String() }

// DiskObservation is the observed state of a disk.
type DiskObservation struct {
	// Exists is set if there is a complete disk with the owner mark.
	Exists bool
	// ID is the runtime's ID of the disk.
	ID string
	// Home is the runtime's ID of the place where the disk is. It is empty if the runtime has only one.
	Home string
	// Image is the UID of the VMDiskImage that it was created from. It is empty if it was created empty.
	Image types.UID
	// Copying is set while the data of its source is incomplete.
	Copying bool
	// Bytes is its size.
	Bytes int64
	// InFlight is set while it is being created, grown or removed.
	InFlight bool
	// Owned is set while a machine owns the disk, which would be destroyed with it. EnsureDisk changes that.
	Owned bool
	// AttachedTo contains the marks of the machines that it is attached to: UIDs of VirtualMachines, or the runtime's name of a
	// machine without a mark. There is at most one, unless another client attached the disk too.
	AttachedTo []string
}

// Watcher is a Runtime that reports changes. Machines of other runtimes must be polled.
type Watcher interface {
	// Watch calls changed with the instance ID of each machine whose observation may have changed, or with "" if it may be any. It
	// does so with "" once no change is missed any more, and runs until ctx ends or it fails. Changes since then are reported by the
	// next Watch, with "".
	Watch(ctx context.Context, changed func(instanceID string)) error
}

// Change means that an Observe of these machines may return something else.
type Change struct {
	// Server is the VSphereServer of the machines.
	Server string
	// InstanceID is the instance, empty if it may be any.
	InstanceID string
}

// Machine identifies the machine of a call, with the data of its VirtualMachine.
type Machine struct {
	// NamespacedName is the name of the VirtualMachine.
	types.NamespacedName
	// UID is the UID of the VirtualMachine, never empty. It is the owner mark: a runtime identifies what belongs to the machine by
	// nothing else, since names are reused and instances can be copied.
	UID types.UID
	// InstanceID is the result of Ensure. It is empty before that. It avoids a search, and distinguishes a machine from a copy with
	// the same mark; without the mark it gives no right to an instance.
	InstanceID string
	// Spec is the spec of the VirtualMachine, with the disk of spec.diskImage added to blockDeviceRefs. A runtime does not change it.
	Spec *v1alpha1.VirtualMachineSpec
	// Labels are the labels for objects created for the machine: those of the VirtualMachine without Sallyport's own, except those of
	// its pool. A runtime does not change them. Only Ensure needs them.
	Labels map[string]string
	// CloudInit is the user data of a machine to create. Only Ensure needs it.
	CloudInit CloudInit
	// Template is the template of the spec's templateRef. Only Ensure needs it.
	Template *Template
	// Former is what the instance was when it was adopted, as last observed.
	Former *v1alpha1.AdoptedVM
	// Migration is the move by hibernation that has begun. Only a [Hibernator] needs it.
	Migration *v1alpha1.Migration
	// Earlier decides about a machine that is marked for the same name with another UID.
	Earlier Earlier
	// Disks are the VirtualDisks that the machine has or may have, as their status records them: those that are attached to it, and
	// those that are attached to no machine and that its spec names. A runtime changes no disk of a machine that is none of these: a
	// name, a label or a mark on the instance does not prove which disk it is.
	Disks []Disk
}

// Disk returns the disk of that UID from Disks, and false if it is not one of them.
func (m Machine) Disk(uid types.UID) (Disk, bool) {
	return m.disk(func(d Disk) bool { return d.UID == uid })
}

// DiskWithID returns the disk with that ID of the runtime from Disks, and false if it is not one of them.
func (m Machine) DiskWithID(id string) (Disk, bool) {
	return m.disk(func(d Disk) bool { return d.ID == id && id != "" })
}

func (m Machine) disk(is func(Disk) bool) (Disk, bool) {
	if i := slices.IndexFunc(m.Disks, is); i >= 0 {
		return m.Disks[i], true
	}
	return Disk{}, false
}

// With returns the machine with a disk that it gets.
func (m Machine) With(d Disk) Machine {
	if _, has := m.Disk(d.UID); !has {
		m.Disks = append(slices.Clone(m.Disks), d)
	}
	return m
}

// Template is the template of a VSphereTemplate at the time when a machine is created.
type Template struct {
	// Name and UID are the VSphereTemplate's, Former the UIDs of those whose templates it took over. A template with another mark is
	// not used.
	Name   string
	UID    types.UID
	Former []string
	Path   v1alpha1.InventoryPath
	// Imported are the instance UUIDs of what was imported there for it. The mark alone is no proof.
	Imported []string
}

// CloudInit is the input of cloud-init in a guest.
type CloudInit struct {
	// UserData is passed on unchanged.
	UserData Secret
	// MetaData is an object in YAML or JSON, or empty.
	MetaData Secret
}

// MachineOf returns the Machine of a VirtualMachine. It shares the spec.
func MachineOf(vm *v1alpha1.VirtualMachine) Machine {
	return Machine{
		NamespacedName: types.NamespacedName{Namespace: vm.Namespace, Name: vm.Name},
		UID:            vm.UID,
		InstanceID:     vm.Status.InstanceID,
		Spec:           specOf(vm),
		Labels:         labelsOf(vm),
		Former:         vm.Status.Adopted,
		Migration:      vm.Status.Migration,
		Earlier:        EarlierOf(vm),
	}
}

// Mode is how a machine is powered off.
type Mode string

const (
	// Graceful asks the guest to shut down.
	Graceful Mode = "Graceful"
	// Forced powers the machine off without asking the guest.
	Forced Mode = "Forced"
)

// Target is the target of a move: NodeName if set, otherwise any connected node other than Leave that has the labels of NodeSelector.
type Target struct {
	// NodeName is the node or ESXi host to move to, by name.
	NodeName string
	// NodeSelector are labels that the target node must have, all of them, in addition to those of the machine's spec.
	NodeSelector map[string]v1alpha1.LabelValue
	// Leave is the node of the machine when the move was decided. A machine on another node has been moved already, so that a repeated
	// request does not move it twice. Empty means its current node.
	Leave string
	// Force uses the strongest means of the runtime to move the machine, at the cost of others or of the guest. A runtime without
	// stronger means ignores it.
	Force bool
}
