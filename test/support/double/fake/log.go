package fake

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// Call is one call that a client made.
type Call struct {
	// Seq is its place in the order of all calls and effects, from 1 on.
	Seq int
	// Returned is the place in that order at which it returned, and 0 while it has not.
	Returned int
	// Client is the name of the client.
	Client string
	// Tag is what the function of SetTag gave for it.
	Tag string
	// Verb is what was called.
	Verb runtime.Verb
	// Machine is the machine as the caller gave it, with a copy of its spec.
	Machine runtime.Machine
	// Disk is the disk as the caller gave it.
	Disk runtime.Disk
	// Mode is the argument of PowerOff.
	Mode runtime.Mode
	// Task is the argument of Cancel.
	Task string
	// Target is the argument of Migrate.
	Target runtime.Target
	// Fenced is the argument of Release and Retract.
	Fenced bool
	// Err is what was returned.
	Err error
}

// EffectKind is what changed in the world.
type EffectKind string

const (
	// Created means that an instance was made.
	Created EffectKind = "Created"
	// Resized means that an instance was given the size that its spec says.
	Resized EffectKind = "Resized"
	// Adopted means that an instance was given its owner's marker.
	Adopted EffectKind = "Adopted"
	// PoweredOn means that an instance went on, under a new incarnation.
	PoweredOn EffectKind = "PoweredOn"
	// Resumed means that a paused instance went on.
	Resumed EffectKind = "Resumed"
	// Paused means that an instance was suspended.
	Paused EffectKind = "Paused"
	// ShutdownAsked means that a guest was asked to shut down.
	ShutdownAsked EffectKind = "ShutdownAsked"
	// PoweredOff means that an instance went off.
	PoweredOff EffectKind = "PoweredOff"
	// Moved means that an instance went to another host.
	Moved EffectKind = "Moved"
	// TaskCancelled means that a task ended without effect because it was cancelled; its cause is the call that had begun
	// the task.
	TaskCancelled EffectKind = "TaskCancelled"
	// TaskFailed means that a task ended without effect because it failed.
	TaskFailed EffectKind = "TaskFailed"
	// Deleted means that an instance was removed.
	Deleted EffectKind = "Deleted"
	// TakenOver means that an instance of another owner was given its owner's marker.
	TakenOver EffectKind = "TakenOver"
	// Released means that an adopted instance lost its owner's marker.
	Released EffectKind = "Released"
	// Hibernated means that an instance was put into a snapshot.
	Hibernated EffectKind = "Hibernated"
	// Woken means that it was taken out of it again, where it was.
	Woken EffectKind = "Woken"
	// Left means that an instance was removed from a host by a move.
	Left EffectKind = "Left"
	// Restored means that an instance was made from a snapshot, and is as the machine was.
	Restored EffectKind = "Restored"
	// Discarded means that the snapshots of a machine were removed.
	Discarded EffectKind = "Discarded"
	// DiskCreated means that a disk was made.
	DiskCreated EffectKind = "DiskCreated"
	// DiskGrown means that a disk got larger.
	DiskGrown EffectKind = "DiskGrown"
	// DiskDeleted means that a disk was destroyed.
	DiskDeleted EffectKind = "DiskDeleted"
	// DiskAttached means that an instance got a disk.
	DiskAttached EffectKind = "DiskAttached"
	// DiskDetached means that an instance lost a disk.
	DiskDetached EffectKind = "DiskDetached"
)

// Effect is one change in the world.
type Effect struct {
	// Seq is its place in the order of all calls and effects.
	Seq int
	// Kind is what changed.
	Kind EffectKind
	// Machine is the UID of the VirtualMachine that the instance belongs to.
	Machine types.UID
	// Disk is the UID of the VirtualDisk that the change is of. It is empty where there is none.
	Disk types.UID
	// InstanceID is the instance. It is empty where there is none.
	InstanceID string
	// Incarnation is the instance's incarnation after the change.
	Incarnation string
	// NodeName is the host that the instance is on after the change.
	NodeName string
	// Memory is the Memory of the instance after the change.
	Memory int
	// Cause is the Seq of the call that led to the change, however late, and 0 if none did.
	Cause int
	// Client is the client that made this call.
	Client string
	// Tag is the tag of this call.
	Tag string
	// ByGuest says that it was the guest that acted, with a Cause because it was asked to. A call's promise to be over
	// once nothing is in flight does not cover this.
	ByGuest bool
}

// cause is the call that an effect goes back to.
type cause struct {
	seq    int
	client string
	tag    string
}

// cause gives what effects of the call carry.
func (c *Call) cause() cause { return cause{seq: c.Seq, client: c.Client, tag: c.Tag} }

// Calls returns the calls of all clients, in the order in which they began. One that has not returned is among them.
func (w *World) Calls() []Call {
	defer w.lock()()
	all := make([]Call, 0, len(w.calls))
	for _, c := range w.calls {
		all = append(all, *c)
	}
	return all
}

// Effects returns all changes in the order in which they happened.
func (w *World) Effects() []Effect {
	defer w.lock()()
	return slices.Clone(w.effects)
}

// record writes an effect down. The instance may be nil.
func (w *World) record(kind EffectKind, uid types.UID, in *instance, by cause) *Effect {
	e := Effect{Seq: w.next(), Kind: kind, Machine: uid, Cause: by.seq, Client: by.client, Tag: by.tag}
	if in != nil {
		e.InstanceID, e.Incarnation, e.NodeName, e.Memory = in.ID, in.Incarnation, in.NodeName, in.Memory
	}
	w.effects = append(w.effects, e)
	return &w.effects[len(w.effects)-1]
}
