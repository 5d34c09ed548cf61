package runtime

import (
	"cmp"
	"net/netip"
	"slices"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Observation is the observed state of a machine.
type Observation struct {
	// Exists is set if there is an instance with the owner mark. An instance that is still being created does not exist, and neither
	// does one that the spec names and Ensure has not adopted. If neither it nor Unadopted is set, only InFlight and LastFailure are.
	Exists bool
	// Unadopted is set if the runtime has the instance that the spec names, and it has no owner mark. Exists is not set then. InFlight,
	// LastFailure, Power, NodeName, Guest and Question are those of the instance, the rest is not set.
	Unadopted bool
	// InstanceID is the runtime's ID of the instance.
	InstanceID string
	// Power is whether the instance is on, off or paused.
	Power v1alpha1.PowerState
	// Incarnation is a value of the runtime that is new with every power-on, by any client. It is empty until the first
	// power-on. Compare it only between moments at which the instance was on: equal values mean that it was not off in between. Its
	// format depends on the runtime.
	Incarnation string
	// NodeName is the node or ESXi host of the instance, by name. It may be empty while the instance is off.
	NodeName string
	// Adopted is set if Ensure adopted the instance, so that Delete releases it.
	Adopted bool
	// Former is what an adopted instance was before, nil if the runtime has nothing to put back when it is released.
	Former *v1alpha1.AdoptedVM
	// MeantOn is set if an adopted instance was to be on, although it may be off at the moment of its adoption, such as between a crash and
	// the restart that the runtime no longer does. If it is not set, its power is what it was to be.
	MeantOn bool
	// Template is what the instance was created from, nil if its spec names no VSphereTemplate.
	Template *v1alpha1.VSphereTemplateRelease
	// Disks are the VirtualDisks that are attached to the instance: those of [Machine.Disks] that Attach attached, or by the marks that it
	// left.
	Disks []v1alpha1.AttachedDisk
	// Plugging is what the runtime does, maybe for ever, so that the instance has the Disks, beside what is InFlight. Moves wait for it.
	Plugging string
	// Differences are the differences in size between a created instance and its spec.
	Differences []Difference
	// InFlight are the tasks of the machine that the runtime runs or has accepted, from any client. A guest shutdown is not one
	// of them.
	InFlight []Task
	// LastFailure is the error message of the machine's last task if it failed and the runtime still knows it. It is for users; no
	// decision depends on it.
	LastFailure string
	// Guest is what the guest reports. It is empty while the machine is not on.
	Guest Guest
	// Hibernation is for moves by hibernation, nil if the runtime is not a [Hibernator].
	Hibernation *Hibernation
	// Question is a question of the runtime that blocks the machine until a user answers it, nil if there is none.
	Question *v1alpha1.PendingQuestion
	// Unusable is why the instance can be neither powered on nor moved nor deleted because of a change on the runtime, and how to undo
	// that: one sentence for users. It is empty for a usable instance.
	Unusable string
}

// BeforeAdoption returns the observation of an instance that the spec names, as long as it has no owner mark.
func (o Observation) BeforeAdoption() Observation {
	return Observation{
		Unadopted: true, Power: o.Power, NodeName: o.NodeName, Guest: o.Guest, Question: o.Question,
		InFlight: o.InFlight, LastFailure: o.LastFailure,
	}
}

// Difference is a part of a machine that differs from its spec.
type Difference struct {
	// Field is the field of the spec, such as spec.cpu.
	Field string
	// Is and Wanted are the value of the machine and that of the spec.
	Is, Wanted string
	// Live is set if the change can be applied while the machine is on.
	Live bool
}

// String describes the difference in messages.
func (d Difference) String() string {
	return d.Field + " is " + d.Wanted + ", but the machine has " + d.Is
}

// Guest is what a guest reports about itself through an agent in it. It is not verified.
type Guest struct {
	// Addresses are its IP addresses as documented in VirtualMachineStatus: most relevant first, in a stable order.
	Addresses []string
	// Hostname is the host name of the guest.
	Hostname string
	// Tools is the state of the agent. It is empty if the runtime does not report it.
	Tools v1alpha1.ToolsState
}

// AddressOf parses an address that a guest reports, without its zone. It returns false for text that is no address, and for one that other
// machines cannot use: loopback, link-local (capk#265, kubevirt#3241), multicast and unspecified.
func AddressOf(text string) (netip.Addr, bool) {
	address, err := netip.ParseAddr(text)
	address = address.Unmap().WithZone("")
	return address, err == nil && address.IsGlobalUnicast()
}

// Add appends an address that [AddressOf] accepts, unless it is known or there are [MaxAddresses].
func (g *Guest) Add(text string) {
	address, is := AddressOf(text)
	if is && len(g.Addresses) < MaxAddresses && !slices.Contains(g.Addresses, address.String()) {
		g.Addresses = append(g.Addresses, address.String())
	}
}

// MaxAddresses limits the addresses in the status of a VirtualMachine; the schema has the same limit.
const MaxAddresses = 32

// Quiet reports whether nothing is in flight for the machine, so that no earlier request changes it any more. The guest may still
// change it on its own, for example by complying with a shutdown request.
func (o Observation) Quiet() bool { return len(o.InFlight) == 0 }

// Yields reports whether nothing is in flight that a forced PowerOff, or the release of an adopted machine, has to wait for.
func (o Observation) Yields() bool {
	return !slices.ContainsFunc(o.InFlight, func(t Task) bool { return !t.Yields })
}

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
	// Kind is what the task does.
	Kind TaskKind
	// Ours is set if the task was certainly started by a call through this interface. It is false if that is uncertain, for example
	// because another client uses the same account.
	Ours bool
	// By is who else started the task, for messages, such as a user of vCenter. It is empty if the task is Ours, or if that is
	// unknown.
	By string
	// Progress is the progress in percent, nil if the runtime does not report it.
	Progress *int32
	// Yields is set if others certainly started the task, and the runtime accepts a forced PowerOff while it runs, which ends it. A
	// power-on of a machine that is off is then ended by a graceful one, too, and an adopted machine can be released meanwhile.
	Yields bool
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
	// TaskReconfigure changes the configuration of the machine: for example, it attaches or detaches disks.
	TaskReconfigure TaskKind = "Reconfigure"
	// TaskDelete deletes it.
	TaskDelete TaskKind = "Delete"
	// TaskOther is any other task that blocks calls, such as a snapshot that an administrator takes.
	TaskOther TaskKind = "Other"
	// TaskTakingOver stands for requests that another process may still be sending. No runtime reports it; it has no ID.
	TaskTakingOver TaskKind = "TakingOver"
)

var doings = map[TaskKind]string{
	TaskCreate:      "the machine is being created",
	TaskPowerOn:     "the machine is being powered on",
	TaskPowerOff:    "the machine is being powered off",
	TaskRelocate:    "the machine is being moved",
	TaskReconfigure: "the configuration of the machine is being changed",
	TaskDelete:      "the machine is being deleted",
	TaskOther:       "the machine is being worked on",
	TaskTakingOver:  "another replica may still be working on the machine",
}

// Doing describes the task in messages.
func (k TaskKind) Doing() string {
	return cmp.Or(doings[k], doings[TaskOther])
}
