// Package fake is a runtime in memory, for tests and models of what drives a runtime.
//
// A [World] holds the machines, hosts and guests; the [Runtime] clients that it gives out do what they are told in it.
// Things take steps instead of time: a task ends, and a guest shuts down, after so many calls of [World.Advance]. A call
// can be made to fail, lose its reply, stall or act late ([World.Script]), a guest to ignore a shutdown and a task to
// ignore being cancelled. The world keeps a log of what it was told ([World.Calls]) and of what came of it
// ([World.Effects]), in one order.
//
// It starts no goroutine, reads no clock and throws no dice: the same calls in the same order give the same world.
package fake

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// World is where the machines of a fake runtime are. It is safe for concurrent use.
type World struct {
	mu        sync.Mutex
	seq       int
	ids       int
	calls     []*Call
	effects   []Effect
	hosts     map[string]Host
	instances []*instance
	disks     []Disk
	machines  map[types.UID]*machine
	steps     map[runtime.TaskKind]int
	scripts   []*script
	snapshots map[types.UID][]Snapshot
	registry  Registry
	byName    bool // machines are found by the names of their instances, not by their owners
	auto      bool
	tag       func(ctx context.Context, verb runtime.Verb, machine runtime.Machine) string
}

// machine is what the world knows of a VirtualMachine beyond its instance.
type machine struct {
	tasks       []*task
	held        map[runtime.TaskKind]int
	guest       Guest
	question    *v1alpha1.PendingQuestion
	plugging    string
	unusable    string
	cancels     Cancels
	naps        Hibernations
	lastFailure string
}

// instance is a machine that exists.
type instance struct {
	Instance
	powerOns int
	shutdown *shutdown
	nap
}

// shutdown is a request that a guest has not heeded yet.
type shutdown struct {
	left  int // Advances until the guest goes off; negative if it ignores the request.
	cause cause
}

// Instance is a machine as it is in the world.
type Instance struct {
	// ID is what the world calls it. AddInstance makes one up if it is empty.
	ID string
	// Place is where a machine finds it that is to adopt it, as [Place] says.
	Place string
	// Owner is the marker that it carries: the UID of a VirtualMachine, or empty.
	Owner types.UID
	// Adopted says that Ensure found it and did not make it.
	Adopted bool
	// MeantOn says that an adopted one was to be on.
	MeantOn bool
	// Power is whether it is on, off or paused. AddInstance takes an empty one for off.
	Power v1alpha1.PowerState
	// Incarnation is new with every power-on.
	Incarnation string
	// CPU is how many processors it has. One that Ensure makes without a word of them has one.
	CPU int32
	// Disks are the VirtualDisks that are attached to it.
	Disks []v1alpha1.AttachedDisk
	// HotAdd says that it takes more of them while it is on.
	HotAdd bool
	// NodeName is the host that it is on. AddInstance takes the first connected one if it is empty.
	NodeName string
	// UID tells it from every other, also of the same machine: one that is restored has another ID. AddInstance takes the ID
	// for it if it is empty.
	UID types.UID
	// State is what it is like for a move by hibernation. An empty one means that it is live, unless it is being removed.
	State runtime.InstanceState
	// Memory stands for all that the machine is. It grows while it is on, and with each time that it goes on or off.
	Memory int
}

// Host is where machines run.
type Host struct {
	// Name is its name.
	Name string
	// Labels are what a node selector looks at.
	Labels map[string]string
	// Disconnected says that no machine can be moved or made there.
	Disconnected bool
	// Silent says that its agent does nothing, while machines that are on go on.
	Silent bool
	// Dead says that nothing runs there, and that everybody can see that it is away.
	Dead bool
}

// Guest says what the guest of a machine does when it is asked to shut down, and what it says of itself.
type Guest struct {
	// Steps is how many Advances it takes to shut down; with 0 it is off before the call returns.
	Steps int
	// Ignores says that it does nothing until GuestActs.
	Ignores bool
	// NoTools says that it cannot be asked.
	NoTools bool
	// Says is what is observed of it while its machine is on.
	Says runtime.Guest
}

// Cancels says what becomes of the tasks of a machine that are to be cancelled. The zero value ends them at once, without
// effect.
type Cancels struct {
	// Steps is how many Advances later they end without effect, unless they end by themselves before.
	Steps int
	// Ignored says that they run to their end.
	Ignored bool
}

// New makes a world with the connected hosts node-1 and node-2. A task takes one Advance, and so does a guest.
func New() *World {
	w := &World{
		hosts:    map[string]Host{},
		machines: map[types.UID]*machine{},
		steps:    map[runtime.TaskKind]int{},

		snapshots: map[types.UID][]Snapshot{},
	}
	for _, name := range []string{"node-1", "node-2"} {
		w.hosts[name] = Host{Name: name}
	}
	return w
}

// Client returns a client of the world. It remembers nothing; the name is how the log and scripts tell it from others, such
// as the one of a replica that has lost its lease.
func (w *World) Client(name string) *Runtime { return &Runtime{world: w, name: name} }

// SetTag has every call tagged with what the function gives, in the log and in all that comes of the call: for example
// with the holder of the claim at that moment. The function is called before the call does anything, and may use the
// world.
func (w *World) SetTag(tag func(ctx context.Context, verb runtime.Verb, machine runtime.Machine) string) {
	defer w.lock()()
	w.tag = tag
}

// SetAuto has every Observe advance its machine by one step before it looks, so that whoever polls gets there.
func (w *World) SetAuto(auto bool) {
	defer w.lock()()
	w.auto = auto
}

// SetSteps says how many Advances a task of that kind takes from now on; with 0 it ends before the call returns.
func (w *World) SetSteps(kind runtime.TaskKind, steps int) {
	defer w.lock()()
	w.steps[kind] = steps
}

// SetHost adds or replaces a host.
func (w *World) SetHost(host Host) {
	defer w.lock()()
	host.Labels = maps.Clone(host.Labels)
	w.hosts[host.Name] = host
}

// SetGuest says what the guest of the machine with that UID is like from now on.
func (w *World) SetGuest(uid types.UID, guest Guest) {
	defer w.lock()()
	w.machine(uid).guest = guest
}

// Plug has the runtime plug a disk of the machine with that UID in from now on, which it says in those words, or nothing any more for "".
func (w *World) Plug(uid types.UID, doing string) {
	defer w.lock()()
	w.machine(uid).plugging = doing
}

// Ask has the runtime ask people about the machine with that UID from now on, and nothing any more if the question is nil.
func (w *World) Ask(uid types.UID, question *v1alpha1.PendingQuestion) {
	defer w.lock()()
	w.machine(uid).question = question
}

// Spoil makes something else of the machine with that UID, as an administrator would behind our back, until repair is called.
func (w *World) Spoil(uid types.UID, why string) (repair func()) {
	set := func(why string) {
		defer w.lock()()
		w.machine(uid).unusable = why
	}
	set(why)
	return func() { set("") }
}

// SetCancels says what becomes of tasks of the machine with that UID that are cancelled from now on.
func (w *World) SetCancels(uid types.UID, cancels Cancels) {
	defer w.lock()()
	w.machine(uid).cancels = cancels
}

// Hold keeps the machine's tasks of that kind from ending, other than by a cancel, until release is called.
func (w *World) Hold(uid types.UID, kind runtime.TaskKind) (release func()) {
	defer w.lock()()
	held := w.machine(uid).held
	held[kind]++
	return sync.OnceFunc(func() {
		defer w.lock()()
		held[kind]--
	})
}

// SetProgress has what is in flight for the machine show how much of it is done, in percent.
func (w *World) SetProgress(uid types.UID, percent int32) {
	defer w.lock()()
	for _, t := range w.machine(uid).tasks {
		t.progress = &percent
	}
}

// AddInstance puts a machine into the world that no Ensure has made: one to adopt, or with an owner somebody else's. It
// gives its ID.
func (w *World) AddInstance(new Instance) string {
	defer w.lock()()
	if new.ID == "" {
		new.ID = w.newID("instance")
	}
	if new.Power == "" {
		new.Power = v1alpha1.PowerStopped
	}
	if new.NodeName == "" {
		new.NodeName = w.pick(runtime.Target{}, nil)
	}
	if new.UID == "" {
		new.UID = types.UID(new.ID)
	}
	w.instances = append(w.instances, &instance{Instance: new})
	return new.ID
}

// Instances returns the machines of the world, oldest first.
func (w *World) Instances() []Instance {
	defer w.lock()()
	var all []Instance
	for _, in := range w.instances {
		all = append(all, in.Instance)
	}
	return all
}

// Instance returns the instance that carries the marker of that UID.
func (w *World) Instance(uid types.UID) (found Instance, exists bool) {
	defer w.lock()()
	if in := w.owned(uid); in != nil {
		return in.Instance, true
	}
	return Instance{}, false
}

// SetHotAdd has the machine take more processors while it is on.
func (w *World) SetHotAdd(uid types.UID) {
	defer w.lock()()
	w.owned(uid).HotAdd = true
}

// GuestActs has the guest of the machine heed the request to shut down that it was sent, and reports whether there was one
// that is still good.
func (w *World) GuestActs(uid types.UID) bool {
	defer w.lock()()
	in := w.owned(uid)
	if in == nil || !in.listening() {
		return false
	}
	w.powerOff(in, uid, in.shutdown.cause, true)
	return true
}

// GuestPowersOff has the guest of the machine power off of its own accord, as one does that crashes.
func (w *World) GuestPowersOff(uid types.UID) {
	defer w.lock()()
	if in := w.owned(uid); in != nil && in.State == "" {
		w.powerOff(in, uid, cause{}, true)
	}
}

// Pause suspends the machine, as an administrator would behind our back.
func (w *World) Pause(uid types.UID) {
	defer w.lock()()
	if in := w.owned(uid); in != nil && in.Power == v1alpha1.PowerRunning {
		in.Power = v1alpha1.PowerPaused
		w.record(Paused, uid, in, cause{})
	}
}

// Lose removes the instance of the machine and whatever is in flight for it, as an administrator would behind our back.
func (w *World) Lose(uid types.UID) {
	defer w.lock()()
	if in := w.owned(uid); in != nil {
		w.machine(uid).tasks = nil
		w.remove(in)
		w.record(Deleted, uid, in, cause{})
	}
}

// Place is where a machine looks for an instance to adopt: the instance UUID or inventory path of a vSphere machine that is to be adopted, else
// namespace/name.
func Place(machine runtime.Machine) string {
	if machine.Spec != nil && machine.Spec.Adopts() {
		if v := machine.Spec.Runtime.VSphere; v.InstanceUUID != "" {
			return v.InstanceUUID
		}
		return machine.Spec.Runtime.VSphere.InventoryPath
	}
	return machine.String()
}

// lock locks the world and gives what unlocks it.
func (w *World) lock() (unlock func()) {
	w.mu.Lock()
	return w.mu.Unlock
}

// next gives the next place in the order of calls and effects.
func (w *World) next() int {
	w.seq++
	return w.seq
}

// newID makes up an ID.
func (w *World) newID(of string) string {
	w.ids++
	return fmt.Sprintf("%s-%d", of, w.ids)
}

// machine gives the record of a VirtualMachine, and makes it at the first use.
func (w *World) machine(uid types.UID) *machine {
	m := w.machines[uid]
	if m == nil {
		m = &machine{held: map[runtime.TaskKind]int{}, guest: Guest{Steps: 1}}
		w.machines[uid] = m
	}
	return m
}

// owned gives the first instance with that marker, or nil.
func (w *World) owned(uid types.UID) *instance {
	i := slices.IndexFunc(w.instances, func(in *instance) bool { return in.Owner == uid })
	if uid == "" || i < 0 {
		return nil
	}
	return w.instances[i]
}

// remove takes an instance out of the world.
func (w *World) remove(gone *instance) {
	w.instances = slices.DeleteFunc(w.instances, func(in *instance) bool { return in == gone })
}

// selectorOf gives the labels that a machine needs of its host.
func selectorOf(m runtime.Machine) map[string]v1alpha1.LabelValue {
	if m.Spec == nil {
		return nil
	}
	return m.Spec.NodeSelector
}

// pick gives the connected host that meets the target and has the other labels, the first by name, and nothing if there is none.
func (w *World) pick(target runtime.Target, also map[string]v1alpha1.LabelValue) string {
	for _, name := range slices.Sorted(maps.Keys(w.hosts)) {
		host := w.hosts[name]
		if host.Disconnected || (target.NodeName != "" && name != target.NodeName) || name == target.Leave {
			continue
		}
		if w.selected(host, target.NodeSelector) && w.selected(host, also) {
			return name
		}
	}
	return ""
}

// selected reports whether the host has the labels.
func (w *World) selected(host Host, selector map[string]v1alpha1.LabelValue) bool {
	for key, value := range selector {
		if got, has := host.Labels[key]; !has || got != string(value) {
			return false
		}
	}
	return true
}
