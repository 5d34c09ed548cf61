// Package runtime is the interface to the systems that run machines: a vCenter, a node agent, KubeVirt.
//
// [Runtime] is what every one of them can do; what only some can do is an interface of its own, such as [Migrator]. The
// contract is in the comments here, and [sallyport.dev/sallyport/test/double/conformance] tests it. A runtime makes
// no decisions: the claim decides who may send what, and a runtime carries out requests.
package runtime

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Runtime runs machines. It is safe for concurrent use.
//
// For every call:
//
//   - It returns before ctx ends or as soon as it does, whatever the runtime's far end is doing; an ended ctx gives an
//     Unavailable error.
//   - It begins things and does not wait for them: success means that the runtime took the request, or that there was
//     nothing to do. What became of it is only known from Observe. A call may wait a moment to tell an immediate failure.
//   - After an Unavailable error, or one that is not of this package, the request may have been done, may be in flight
//     or may never have arrived: [MayHaveActed]. After any other error nothing was done.
//   - Whatever a call sets off is done or in flight, as Observe shows it, by the time that the call returns; a request
//     that has not reached the runtime by then never will. A runtime therefore does not send again behind its caller's
//     back, and gives up the connection on which a request may still be waiting. Undoing an operation rests on this: once
//     nothing is in flight, nothing of it can happen any more.
//   - It is idempotent: repeating it when its request was done, or is in flight, is success and changes nothing.
//   - What does not fit the state of the machine, or what is in flight for it, is an InvalidState error: look again later.
//   - A machine that was not made or adopted, or is gone, is a NotFound error, except where a call says otherwise. One
//     that carries the marker of another owner is an OwnedByAnother error and is left alone.
//
// Restarting is not a verb: it is off, seen off, and on again. A reset could not be seen as done, nor told from two.
type Runtime interface {
	// Observe looks at the machine, at the runtime itself and never in a cache. A machine that does not exist is no
	// error but an Observation that says so. It changes nothing.
	//
	// What is in flight is read before, or in the same instant as, the rest: the other way round, a power-on that ends
	// between the two looks would show as off and quiet.
	Observe(ctx context.Context, machine Machine) (Observation, error)

	// Ensure makes the machine, off, or adopts the one that the spec names, in whatever state it is, and leaves the
	// owner's marker on it. It finds again what an earlier Ensure made whose reply was lost, by that marker: however
	// often it is called, there is one instance. It gives the instance's ID, which stays the same for the life of the
	// instance; the ID is empty as long as the instance is being made, a task of kind Create, and is then asked for again.
	//
	// A machine to adopt that does not exist is a NotFound error, one that carries another owner's marker an
	// OwnedByAnother error. A running machine is not reconfigured.
	//
	// While the runtime has a machine that is marked for the same namespace and name with another UID, as it has after a backup was
	// restored, none is made: that is an OwnedByAnother error, too. [Machine.Earlier] says what else to do about it.
	Ensure(ctx context.Context, machine Machine) (instanceID string, err error)

	// PowerOn powers the machine on, a task of kind PowerOn, under a new incarnation. On a machine that is on it is
	// success without a new incarnation. A paused machine goes on where it was, in its incarnation. One that was made gets
	// the size that its spec says before, wherever it differs. It goes to a node that the spec's node selector selects, if it is not on
	// one. An InvalidSpec error says that one of these cannot be had, and the machine stays off.
	PowerOn(ctx context.Context, machine Machine) error

	// PowerOff gets the machine off; on one that is off it is success.
	//
	// Graceful asks the guest to shut down and returns. The guest may take its time or ignore it, so this is not in
	// flight: it can be asked again, and does not stand in the way of anything else. It cannot be taken back either. A
	// guest may heed it long after whoever asked has given up; but only in the incarnation that was asked, never after
	// the next power-on. A Start that found its machine on may therefore see it go off later: keeping it on is the run
	// policy's business. Without a guest agent it is a ToolsUnavailable error, on a paused machine InvalidState.
	//
	// Forced takes the power away, a task of kind PowerOff. It works at any time that nothing else is in flight, also
	// when the guest was asked and has not answered, and on a paused machine.
	PowerOff(ctx context.Context, machine Machine, mode Mode) error

	// Cancel asks the runtime to withdraw the task of that ID, as Observe showed it, if it is in flight for the machine, is
	// Ours, and is a power-on or a relocation. It withdraws nothing else: what vCenter's DRS, an administrator or anybody
	// else began runs to its end, and so may the task: the request can come too late or be ignored. What came of it is
	// known once Observe shows nothing in flight; the machine is then on or off, on this node or that one, and stays as it
	// is. Nothing to withdraw is success, and so is no machine.
	Cancel(ctx context.Context, machine Machine, task string) error

	// Delete removes an instance that the runtime made, a task of kind Delete, with what belongs only to it. An adopted
	// one is released: its marker goes and it stays as it is. It is success if there is no instance. A machine that was
	// made and is not off is an InvalidState error.
	Delete(ctx context.Context, machine Machine) error
}

// Migrator is a Runtime that can move a machine to another node. A Runtime that is none cannot.
type Migrator interface {
	// Migrate begins to move the machine, a task of kind Relocate. One that is on keeps its incarnation. It ends on the
	// target, or where it was. A machine that is where the target wants it, or on its way there, is success. A target
	// that no connected node meets, or that the machine cannot go to, is an InvalidState error whose message says why.
	Migrate(ctx context.Context, machine Machine, target Target) error
}

// Adjuster is a Runtime that can change the size of some machines while they are on. On any other it changes with a power-on.
type Adjuster interface {
	// Adjust brings about those Differences of a machine that are Live. It is success if there are none.
	Adjust(ctx context.Context, machine Machine) error
}

// Disks is a Runtime that has disks by themselves, which outlive the machines that they are attached to. What [Runtime] says of every
// call is true of these, too.
type Disks interface {
	// ObserveDisk looks at the disk, at the runtime itself. A disk that does not exist is no error. It changes nothing.
	ObserveDisk(ctx context.Context, disk Disk) (DiskObservation, error)

	// EnsureDisk makes the disk, empty or from its source, or grows it to its size; it never shrinks it. It finds again what an earlier call made whose
	// reply was lost: however often it is called, there is one disk. It gives the disk's ID, which stays the same, and is empty as
	// long as the disk is being made. One that has an ID and is gone is a NotFound error: its data would not come back. A disk that
	// cannot be grown while it is attached, or as it is attached, is an InvalidState error. A disk that is marked for the same namespace
	// and name with another UID has none made, as Ensure does.
	EnsureDisk(ctx context.Context, disk Disk) (diskID string, err error)

	// DeleteDisk destroys the disk with its data. It is success if there is none. One that is attached to any machine is an
	// InvalidState error, and left alone.
	DeleteDisk(ctx context.Context, disk Disk) error

	// Attach attaches the disk to the machine, whether that is on or off, a task of kind Reconfigure of the machine. It is success if
	// it is attached to it. A disk that is attached to another machine, or cannot be attached to this one, is an InvalidState
	// error whose message says why; one that does not exist is NotFound.
	Attach(ctx context.Context, machine Machine, disk Disk) error

	// Detach takes the VirtualDisk of that UID off the machine and leaves the data as it is, a task of kind Reconfigure of the
	// machine. It is success if it is not attached.
	Detach(ctx context.Context, machine Machine, disk types.UID) error
}

// FixedDisks is a Disks whose machines have the disks that they were made with. Attach and Detach are for a machine before Ensure makes
// it: they choose what it is made with, and change it at once. A machine that is made keeps its disks, through every move, until it is
// deleted: to attach another one, or to detach one, is an InvalidState error. Ensure makes no machine without a disk that its spec
// names.
type FixedDisks interface {
	Disks
	// DisksAreFixed does nothing. A runtime has it to say what a FixedDisks is.
	DisksAreFixed()
}

// Disk says which disk a call is about, as its VirtualDisk has it.
type Disk struct {
	// NamespacedName is the name of the VirtualDisk.
	types.NamespacedName
	// UID is the UID of the VirtualDisk, never empty. It is the owner's marker, as that of a [Machine] is.
	UID types.UID
	// ID is what EnsureDisk gave. It is empty before that.
	ID string
	// Home is [DiskObservation.Home] as it was when the disk was first observed. It is empty before that.
	Home string
	// Holder is the UID of the VirtualMachine that the disk is attached to according to its status.
	Holder types.UID
	// Spec is the spec of the VirtualDisk. A runtime does not change it.
	Spec *v1alpha1.VirtualDiskSpec
	// Earlier is what EnsureDisk does about a disk that is marked for the same name with another UID.
	Earlier Earlier
	// Source is what EnsureDisk makes the disk from. A disk whose spec has a source is not made without it.
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

// Bytes is the wanted size of the disk in bytes, a multiple of a mebibyte.
func (d Disk) Bytes() int64 {
	const mebibyte = 1 << 20
	return (d.Spec.Size.Value() + mebibyte - 1) / mebibyte * mebibyte
}

// String is the namespace and name of the disk.
func (d Disk) String() string { return d.NamespacedName.String() }

// DiskObservation is a disk as a runtime sees it at one moment.
type DiskObservation struct {
	// Exists says whether there is a disk with the owner's marker, made to its end.
	Exists bool
	// ID is what the runtime calls it.
	ID string
	// Home is the runtime's ID of the place where the disk is kept while it is not attached. It is empty if the runtime has only one.
	Home string
	// Image is the UID of the VMDiskImage that it was made from. It is empty if it was made empty.
	Image types.UID
	// Copying tells that the data of its source is not complete yet.
	Copying bool
	// Bytes is how large it is.
	Bytes int64
	// InFlight tells that it is being made, grown or removed.
	InFlight bool
	// AttachedTo are the markers of the machines that it is attached to: UIDs of VirtualMachines, or what the runtime calls a machine
	// that has no marker. There is at most one, unless another client attached the disk, too.
	AttachedTo []string
}

// Watcher is a Runtime that tells of changes. What runs on any other has to be looked at again and again.
type Watcher interface {
	// Watch tells of each machine of which an Observe may now give something else, by its instance ID, or by an empty one if that may
	// be any. It does so for any as soon as nothing is missed any more, and goes on until ctx ends or it cannot, which is an error.
	// What has happened since then is told by the next Watch, for any machine.
	Watch(ctx context.Context, changed func(instanceID string)) error
}

// Change says that an Observe of these machines may now return something else.
type Change struct {
	// Server is the VSphereServer that they are on.
	Server string
	// InstanceID is which one, and empty if that may be any.
	InstanceID string
}

// Machine says which machine a call is about, as its VirtualMachine has it.
type Machine struct {
	// NamespacedName is the name of the VirtualMachine.
	types.NamespacedName
	// UID is the UID of the VirtualMachine, never empty. It is the owner's marker: by it, and by nothing else, a runtime
	// tells what belongs to the machine, since names come back and instances can be copied.
	UID types.UID
	// InstanceID is what Ensure gave. It is empty before that. It saves a search, and tells a machine from a copy that
	// carries the same marker; it gives no right to an instance without the marker.
	InstanceID string
	// Spec is the spec of the VirtualMachine, whose blockDeviceRefs have the disk of spec.diskImage, too. A runtime does not change it.
	Spec *v1alpha1.VirtualMachineSpec
	// Labels are those for what the runtime creates for the machine: the labels of the VirtualMachine without Sallyport's own, except those
	// of the pool that controls it. A runtime does not change them. Only Ensure needs them.
	Labels map[string]string
	// CloudInit is what the guest of a machine that is made is given. Only Ensure needs it.
	CloudInit CloudInit
	// Template is what the spec's templateRef names. Only Ensure needs it.
	Template *Template
	// Migration is the move by hibernation that has begun. Only a [Hibernator] needs it.
	Migration *v1alpha1.Migration
	// Earlier is what Ensure does about a machine that is marked for the same name with another UID.
	Earlier Earlier
	// Disks are the VirtualDisks that the instance was last observed with, as their objects have them. A runtime that moves a file when it
	// detaches a disk does so only for one of these: a mark on the instance does not prove which file is the disk. Only Detach and Delete
	// need them.
	Disks []Disk
}

// Disk returns the disk of that UID from Disks, and false if it is not one of them.
func (m Machine) Disk(uid types.UID) (Disk, bool) {
	for _, d := range m.Disks {
		if d.UID == uid {
			return d, true
		}
	}
	return Disk{}, false
}

// Template is the template of a VSphereTemplate, as that has it when a machine is made.
type Template struct {
	// Name and UID are the VSphereTemplate's, and Former the UIDs of those whose templates it took over. Nothing is made from what bears the
	// mark of another one.
	Name   string
	UID    types.UID
	Former []string
	// Path is where its template is in the inventory.
	Path v1alpha1.InventoryPath
	// Imported are the instance UUIDs of what was imported there for it. The mark alone is no proof.
	Imported []string
}

// CloudInit is what cloud-init in a guest is given.
type CloudInit struct {
	// UserData is handed on as it is.
	UserData Secret
	// MetaData is an object in YAML or JSON, or nothing.
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
		Migration:      vm.Status.Migration,
		Earlier:        EarlierOf(vm),
	}
}

// Observation is a machine as a runtime sees it at one moment.
type Observation struct {
	// Exists says whether there is an instance with the owner's marker. An instance that is still being made does not
	// exist, and neither does one that the spec names and Ensure has not adopted. Without it, only InFlight and
	// LastFailure are set.
	Exists bool
	// InstanceID is what the runtime calls the instance.
	InstanceID string
	// Power is whether the instance is on, off or paused.
	Power v1alpha1.PowerState
	// Incarnation is a value of the runtime that is new with every power-on, no matter who powered on. It is empty until
	// the instance was on for the first time. Compare it only between moments at which the instance was on: equal values
	// mean that it was not off in between. Its format is up to the runtime.
	Incarnation string
	// NodeName is the node or ESXi host that the instance is on, by name. It may be empty while the instance is off.
	NodeName string
	// Adopted says that Ensure found the instance and did not make it, so that Delete releases it.
	Adopted bool
	// Template is what the instance was made from, and nil if its spec names no VSphereTemplate.
	Template *v1alpha1.VSphereTemplateRelease
	// Disks are the VirtualDisks that are attached to the instance, by the marks that Attach left.
	Disks []v1alpha1.AttachedDisk
	// Differences is how the size of an instance that was made differs from its spec.
	Differences []Difference
	// InFlight are the tasks of the machine that the runtime runs or has accepted, no matter who requested them. A guest
	// shutdown is not one of them.
	InFlight []Task
	// LastFailure is the error message of the last task of the machine if it failed and the runtime still knows it. It
	// is for users; no decision depends on it.
	LastFailure string
	// Guest is what the guest says of itself. It says nothing while the machine is not on.
	Guest Guest
	// Hibernation is what a move by hibernation rests on, as a [Hibernator] sees it, and nil of any other runtime.
	Hibernation *Hibernation
	// Question is a question of the runtime that blocks the machine until a user answers it, nil if there is none.
	Question *v1alpha1.PendingQuestion
	// Unusable says what somebody has made of the instance on the runtime, so that it can be neither powered on nor moved nor deleted, and
	// how to undo that: one sentence for users. It is empty for an instance that can be used.
	Unusable string
}

// Difference is a part of a machine that differs from its spec.
type Difference struct {
	// Field is the field of the spec, such as spec.cpu.
	Field string
	// Is and Wanted are the value of the machine and that of the spec.
	Is, Wanted string
	// Live says that the change can be applied while the machine is on.
	Live bool
}

// String describes the difference in messages.
func (d Difference) String() string {
	return d.Field + " is " + d.Wanted + ", but the machine has " + d.Is
}

// Guest is what a guest reports about itself through an agent in it. It is not verified.
type Guest struct {
	// Addresses are its IP addresses, as VirtualMachineStatus has them: those that matter first, and in the same order as long as
	// they are the same.
	Addresses []string
	// Hostname is the host name of the guest.
	Hostname string
	// Tools says whether the agent runs. It is empty if the runtime does not report it.
	Tools v1alpha1.ToolsState
}

// MaxAddresses is how many addresses the status of a VirtualMachine has room for; the schema says the same.
const MaxAddresses = 32

// Quiet reports whether nothing is in flight for the machine, so that nothing that was sent earlier changes it any more.
// What a guest does of its own accord, which heeding a shutdown request is, may still change it.
func (o Observation) Quiet() bool { return len(o.InFlight) == 0 }

// Doing describes the first task in flight, and the question that blocks it, in messages.
func (o Observation) Doing() string {
	if o.Question == nil {
		return o.InFlight[0].Doing()
	}
	return o.InFlight[0].Doing() + ", " + Asking(o.Question)
}

// Asking describes a question, and where to answer it, in messages.
func Asking(q *v1alpha1.PendingQuestion) string {
	return "waiting for an answer to a question from the runtime (in vCenter, answer it in the vSphere Client or with govc vm.question): " + q.String()
}

// Task is a running task of a machine on its runtime.
type Task struct {
	// ID is the task ID of the runtime.
	ID string
	// Kind is what is being done.
	Kind TaskKind
	// Ours says that the runtime knows for certain that a call through this interface started the task. It is false if
	// that is not certain, for example because another client uses the same account.
	Ours bool
	// By is who else started the task, for messages, such as a user of the vCenter. It is empty if the task is Ours, or
	// if that is unknown.
	By string
	// Progress is the progress in percent, nil if the runtime does not report it.
	Progress *int32
}

// Doing describes the task in messages, and who started it if it is not ours.
func (t Task) Doing() string {
	if t.By == "" {
		return t.Kind.Doing()
	}
	return t.Kind.Doing() + " by " + t.By
}

// TaskKind is what a task does.
type TaskKind string

const (
	// TaskCreate creates an instance.
	TaskCreate TaskKind = "Create"
	// TaskPowerOn powers it on.
	TaskPowerOn TaskKind = "PowerOn"
	// TaskPowerOff powers it off.
	TaskPowerOff TaskKind = "PowerOff"
	// TaskRelocate moves it to another node.
	TaskRelocate TaskKind = "Relocate"
	// TaskReconfigure changes the configuration of the machine: for example, it attaches or detaches
	// disks.
	TaskReconfigure TaskKind = "Reconfigure"
	// TaskDelete deletes it.
	TaskDelete TaskKind = "Delete"
	// TaskOther is any other task that blocks calls, such as a snapshot that an administrator takes.
	TaskOther TaskKind = "Other"
	// TaskTakingOver stands for requests that another process may still be sending. No runtime reports it; it
	// has no ID.
	TaskTakingOver TaskKind = "TakingOver"
)

var doings = map[TaskKind]string{
	TaskCreate:      "the machine is being created",
	TaskPowerOn:     "the machine is being powered on",
	TaskPowerOff:    "the machine is being powered off",
	TaskRelocate:    "the machine is being moved",
	TaskReconfigure: "the configuration of the machine is being changed",
	TaskDelete:      "the machine is being deleted",
	TaskTakingOver:  "another replica may still be working on the machine",
}

// Doing describes the task in messages.
func (k TaskKind) Doing() string {
	if text, known := doings[k]; known {
		return text
	}
	return "the runtime is busy with the machine"
}

// Mode is how a machine is powered off.
type Mode string

const (
	// Graceful asks the guest to shut down.
	Graceful Mode = "Graceful"
	// Forced powers the machine off without asking the guest.
	Forced Mode = "Forced"
)

// Target says where a machine is moved to: to NodeName if it is set, and otherwise away from Leave, to any other connected
// node that has the labels of NodeSelector.
type Target struct {
	// NodeName is the node or ESXi host to move to, by name.
	NodeName string
	// NodeSelector are labels that the node to move to must have, all of them, beside those of the machine's spec.
	NodeSelector map[string]v1alpha1.LabelValue
	// Leave is the node that the machine was on when the move was decided. A machine that is elsewhere has been moved,
	// so that a repeated request does not move it twice. Empty means the node that it is on now.
	Leave string
	// Force uses the strongest means of the runtime to move the machine, at the cost of others or of the guest. A runtime
	// without stronger means ignores it.
	Force bool
}

// Verb names a method of a Runtime, for metrics and for the logs of fakes.
type Verb string

// The verbs.
const (
	VerbObserve  Verb = "Observe"
	VerbEnsure   Verb = "Ensure"
	VerbPowerOn  Verb = "PowerOn"
	VerbPowerOff Verb = "PowerOff"
	VerbCancel   Verb = "Cancel"
	VerbDelete   Verb = "Delete"
	VerbMigrate  Verb = "Migrate"
	VerbAdjust   Verb = "Adjust"

	VerbHibernate Verb = "Hibernate"
	VerbWake      Verb = "Wake"
	VerbRelease   Verb = "Release"
	VerbRestore   Verb = "Restore"
	VerbRetract   Verb = "Retract"
	VerbDiscard   Verb = "Discard"

	VerbObserveDisk Verb = "ObserveDisk"
	VerbEnsureDisk  Verb = "EnsureDisk"
	VerbDeleteDisk  Verb = "DeleteDisk"
	VerbAttach      Verb = "Attach"
	VerbDetach      Verb = "Detach"
)
