package fake

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// nap is what of an instance is about moves by hibernation.
type nap struct {
	asked types.UID           // the Migration for which its agent was asked last to hibernate it
	saved Snapshot            // what its agent has confirmed
	was   v1alpha1.PowerState // while it is asleep
	from  string              // the digest that it is restored from
	goes  goal
	// before is the incarnation from before it was restored.
	before string
	by     cause // the call that it was made by
}

// Snapshot is a machine as a registry has it.
type Snapshot struct {
	// Migration is the move that it was made for.
	Migration types.UID
	// Digest tells it from every other.
	Digest string
	// Instance and Incarnation are those of the instance that was put into it.
	Instance    types.UID
	Incarnation string
	// Power is whether that was on, off or paused.
	Power v1alpha1.PowerState
	// Memory is its Memory.
	Memory int
}

// Registry is what the registry of snapshots does. The zero value is one that works.
type Registry struct {
	// Down says that it does not answer.
	Down bool
	// Forgets says that it answers that it has nothing.
	Forgets bool
	// ReadOnly says that it has nothing be removed.
	ReadOnly bool
}

// Hibernations says what goes wrong when a machine is hibernated or restored. The zero value is nothing.
type Hibernations struct {
	// Refused says why the machine cannot be put into a snapshot at all.
	Refused string
	// Unsaved says that its agent confirms snapshots that it has not pushed.
	Unsaved bool
	// Leftover says that a hibernation that fails or is withdrawn has pushed its snapshot all the same.
	Leftover bool
	// FailRestores is how many restores fail.
	FailRestores int
	// Stale says that a restored instance is shown under the incarnation from before.
	Stale bool
}

// SetRegistry says what the registry of snapshots does from now on.
func (w *World) SetRegistry(r Registry) {
	defer w.lock()()
	w.registry = r
}

// SetHibernations says what goes wrong when the machine with that UID is hibernated or restored from now on.
func (w *World) SetHibernations(uid types.UID, h Hibernations) {
	defer w.lock()()
	w.machine(uid).naps = h
}

// SetSnapshots has the registry have these of the machine with that UID, and no others.
func (w *World) SetSnapshots(uid types.UID, all ...Snapshot) {
	defer w.lock()()
	w.snapshots[uid] = all
}

// Snapshots gives what the registry has of the machine with that UID, oldest first.
func (w *World) Snapshots(uid types.UID) []Snapshot {
	defer w.lock()()
	return slices.Clone(w.snapshots[uid])
}

// State gives what the instance of the machine with that UID is like for a move by hibernation.
func (w *World) State(uid types.UID) runtime.InstanceState {
	defer w.lock()()
	if in := w.owned(uid); in != nil {
		return w.stateOf(in)
	}
	return runtime.InstanceGone
}

// snapshot puts the instance into a snapshot that nobody has yet.
func (w *World) snapshot(in *instance, move types.UID) Snapshot {
	return Snapshot{
		Migration: move, Digest: fmt.Sprintf("sha256:%s-of-%s", w.newID("snapshot"), move), Instance: in.UID,
		Incarnation: in.Incarnation, Power: in.Power, Memory: in.Memory,
	}
}

// push puts the instance into a snapshot that the registry has, in place of another of the same move.
func (w *World) push(in *instance, move types.UID) Snapshot {
	s := w.snapshot(in, move)
	others := slices.DeleteFunc(w.snapshots[in.Owner], func(other Snapshot) bool { return other.Migration == move })
	w.snapshots[in.Owner] = append(others, s)
	return s
}

// stateOf is what the instance is like for a move.
func (w *World) stateOf(in *instance) runtime.InstanceState {
	switch {
	case w.machine(in.Owner).has(runtime.TaskDelete):
		return runtime.InstanceLeaving
	case in.State == "":
		return runtime.InstanceLive
	}
	return in.State
}

// shown is the incarnation that the agent shows.
func (w *World) shown(in *instance) string {
	if w.machine(in.Owner).naps.Stale && in.before != "" {
		return in.before
	}
	return in.Incarnation
}

// made reports whether the instance is more than a wish.
func (in *instance) made() bool { return in.State == "" || in.State == runtime.InstanceAsleep }

// restores reports whether the instance is made from the snapshot of the machine's Migration.
func (in *instance) restores(m runtime.Machine) bool {
	return m.Migration != nil && m.Migration.Digest != "" && in.from == m.Migration.Digest
}

// idle reports whether the agent that has the instance of a machine does nothing.
func (w *World) idle(uid types.UID) bool {
	in := w.owned(uid)
	return in != nil && (w.hosts[in.NodeName].Silent || w.hosts[in.NodeName].Dead)
}

// live takes the instance of a machine a step on that no task is for.
func (w *World) live(uid types.UID) {
	in := w.owned(uid)
	switch {
	case in == nil, w.hosts[in.NodeName].Dead:
	case in.Power == v1alpha1.PowerRunning:
		in.Memory++
	case w.stateOf(in) == runtime.InstanceUnplaced:
		w.place(in)
	}
}
