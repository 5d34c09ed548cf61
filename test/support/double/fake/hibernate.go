package fake

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// Hibernating is a client of a World whose machines are moved by hibernation. It is a runtime.Hibernator, and no runtime.Migrator.
type Hibernating struct {
	runtime.Runtime
	of *Runtime
}

var _ runtime.Hibernator = (*Hibernating)(nil)

// Hibernating is [World.Client] for machines that are moved by hibernation. From then on a machine is found by the name of its instance,
// and what a move makes has another one.
func (w *World) Hibernating(name string) *Hibernating {
	defer w.lock()()
	w.byName = true
	of := w.Client(name)
	return &Hibernating{Runtime: of, of: of}
}

// Observe looks at the machine, its instance and its snapshot.
func (h *Hibernating) Observe(ctx context.Context, m runtime.Machine) (runtime.Observation, error) {
	return h.of.observe(ctx, m, func(in *instance, seen *runtime.Observation) {
		seen.Hibernation = h.of.world.hibernation(m, in)
		*seen = runtime.Travelling(m, *seen, nameOf(m))
	})
}

// nameOf is the name of the instance of a machine: of the one that its move makes, or as it is known.
func nameOf(m runtime.Machine) string {
	if m.Migration != nil && m.Migration.Step == v1alpha1.MigrationRestore {
		return "restored-by-" + string(m.Migration.ID)
	}
	return m.InstanceID
}

// firstNameOf is the name of the instance of a machine that is made first. It is always the same, as that of a Pod is: one that is made
// again by a leader that has read the machine before it was made is the machine's, too.
func firstNameOf(m runtime.Machine) string { return "instance-of-" + string(m.UID) }

// hibernation is what a move of the machine rests on.
func (w *World) hibernation(m runtime.Machine, in *instance) *runtime.Hibernation {
	rec, move := w.machine(m.UID), m.Migration
	h := &runtime.Hibernation{Instance: runtime.InstanceGone, Snapshot: runtime.SnapshotUnknown, Refused: rec.naps.Refused}
	if in != nil {
		h.Instance, h.ID, h.Node, h.Power, h.Incarnation = w.stateOf(in), in.UID, in.NodeName, in.Power, w.shown(in)
	}
	if move == nil {
		return h
	}
	if in != nil {
		h.Tried = in.asked == move.ID && !rec.has(runtime.TaskRelocate)
		h.Restored = in.restores(m)
		h.Fits = reflect.DeepEqual(in.goes, goalOf(m))
		if h.Instance == runtime.InstanceAsleep && in.saved.Migration == move.ID {
			h.Saved = in.saved.Digest
		}
	}
	if h.Instance == runtime.InstanceLeaving || h.Instance == runtime.InstanceMaking {
		h.Unreachable = w.hosts[h.Node].Dead
	}
	if runtime.RestsOnSnapshot(move.Step, h.Instance) {
		w.askRegistry(m, h)
	}
	return h
}

func (w *World) askRegistry(m runtime.Machine, h *runtime.Hibernation) {
	i := slices.IndexFunc(w.snapshots[m.UID], func(s Snapshot) bool { return s.Migration == m.Migration.ID })
	switch {
	case w.registry.Down:
		h.Trouble = "the registry is away"
	case i < 0, w.registry.Forgets:
		h.Snapshot = runtime.SnapshotAbsent
	default:
		h.Snapshot, h.Digest = runtime.SnapshotPresent, w.snapshots[m.UID][i].Digest
	}
}

// move makes a call that is about the machine's Migration.
func (h *Hibernating) move(ctx context.Context, verb runtime.Verb, m runtime.Machine, fenced bool, plan func() (*work, error)) error {
	return h.of.do(ctx, request{Call: Call{Verb: verb, Machine: m, Fenced: fenced}, plan: plan})
}

// leaves gives the instance that the machine's move leaves, and nil if it is gone.
func (w *World) leaves(m runtime.Machine) (*instance, error) {
	in, err := w.find(m)
	if in == nil || err != nil {
		return nil, err
	}
	if m.Migration == nil || in.UID != m.Migration.Instance {
		return nil, runtime.NewInvalidState(nil, "instance %s is not the one that the move of VirtualMachine %s leaves", in.UID, m)
	}
	return in, nil
}

// orders plans what the agent of the instance that the move leaves is asked to do, unless it is so already, or is being done.
func (w *World) orders(m runtime.Machine, kind runtime.TaskKind, reached runtime.InstanceState, do func(*instance) *work) (*work, error) {
	in, err := w.leaves(m)
	if err != nil {
		return nil, err
	}
	if in == nil || !in.made() {
		return nil, runtime.NewNotFound(nil, "there is no machine of VirtualMachine %s", m)
	}
	other, joined := w.machine(m.UID).busy(kind)
	switch wk := do(in); {
	case other != nil:
		return nil, conflict(other)
	case joined && in.asked == wk.asks, !joined && w.stateOf(in) == reached:
		return nil, nil
	case joined:
		return nil, runtime.NewInvalidState(nil, "a task of kind %s is in flight", kind)
	default:
		return wk, nil
	}
}

// Hibernate puts the machine into a snapshot.
func (h *Hibernating) Hibernate(ctx context.Context, m runtime.Machine) error {
	w := h.of.world
	return h.move(ctx, runtime.VerbHibernate, m, false, func() (*work, error) {
		return w.orders(m, runtime.TaskRelocate, runtime.InstanceAsleep, func(in *instance) *work {
			wk := &work{kind: runtime.TaskRelocate}
			if m.Migration != nil {
				wk.asks = m.Migration.ID
			}
			wk.commit = func(by cause) { w.sleep(in, m.UID, wk.asks, by) }
			wk.spoilt = func() {
				if w.machine(m.UID).naps.Leftover {
					w.push(in, wk.asks)
				}
			}
			return wk
		})
	})
}

func (w *World) sleep(in *instance, uid, move types.UID, by cause) {
	rec := w.machine(uid)
	if w.registry.Down {
		rec.lastFailure = "the registry is away"
		w.record(TaskFailed, uid, in, by)
		return
	}
	if in.saved = w.snapshot(in, move); !rec.naps.Unsaved {
		in.saved = w.push(in, move)
	}
	in.was, in.Power, in.State, in.shutdown = in.Power, v1alpha1.PowerPaused, runtime.InstanceAsleep, nil
	w.record(Hibernated, uid, in, by)
}

// Wake has the machine be as it was, where it is.
func (h *Hibernating) Wake(ctx context.Context, m runtime.Machine) error {
	w := h.of.world
	return h.move(ctx, runtime.VerbWake, m, false, func() (*work, error) {
		return w.orders(m, runtime.TaskOther, runtime.InstanceLive, func(in *instance) *work {
			return &work{kind: runtime.TaskOther, commit: func(by cause) {
				in.Power, in.State = in.was, ""
				if in.Power != v1alpha1.PowerStopped {
					in.renew()
				}
				w.record(Woken, m.UID, in, by)
			}}
		})
	})
}

// Release removes the instance that the move leaves.
func (h *Hibernating) Release(ctx context.Context, m runtime.Machine, fenced bool) error {
	w := h.of.world
	return h.move(ctx, runtime.VerbRelease, m, fenced, func() (*work, error) {
		in, err := w.leaves(m)
		if in == nil || err != nil {
			return nil, err
		}
		seen := w.hibernation(m, in)
		proven := seen.Snapshot == runtime.SnapshotPresent && seen.Digest == m.Migration.Digest && seen.Saved == m.Migration.Digest
		switch other, _ := w.machine(m.UID).busy(runtime.TaskDelete); {
		case seen.Instance == runtime.InstanceLeaving && fenced:
			return w.fences(in), nil
		case seen.Instance == runtime.InstanceLeaving:
			return nil, nil
		case other != nil, seen.Instance != runtime.InstanceAsleep, !proven:
			return nil, runtime.NewInvalidState(nil, "instance %s is not known to be asleep with all that it was in the snapshot", in.UID)
		}
		return w.removes(in), nil
	})
}

// removes is what an agent does to remove an instance in a move.
func (w *World) removes(in *instance) *work {
	return &work{kind: runtime.TaskDelete, commit: func(by cause) {
		w.remove(in)
		w.record(Left, in.Owner, in, by)
	}}
}

// fences is what is done to remove one without its agent.
func (w *World) fences(in *instance) *work {
	return &work{commit: func(by cause) {
		w.machine(in.Owner).tasks = nil
		w.remove(in)
		w.record(Left, in.Owner, in, by)
	}}
}

// Restore makes an instance from the snapshot.
func (h *Hibernating) Restore(ctx context.Context, m runtime.Machine) error {
	w := h.of.world
	return h.move(ctx, runtime.VerbRestore, m, false, func() (*work, error) {
		in, err := w.find(m)
		switch {
		case err != nil:
			return nil, err
		case in != nil && in.restores(m):
			return nil, nil
		case w.owned(m.UID) != nil:
			return nil, runtime.NewInvalidState(nil, "instance %s of the machine is not gone yet", w.owned(m.UID).UID)
		case m.Migration == nil || m.Migration.Digest == "":
			return nil, runtime.NewInvalidState(nil, "VirtualMachine %s has no proven snapshot", m)
		}
		return &work{commit: func(by cause) {
			if w.owned(m.UID) == nil {
				w.restore(m, by)
			}
		}}, nil
	})
}

func (w *World) restore(m runtime.Machine, by cause) {
	in := &instance{
		Instance: Instance{
			ID: nameOf(m), UID: types.UID(w.newID("instance")), Place: Place(m), Owner: m.UID,
			Power: v1alpha1.PowerStopped, State: runtime.InstanceUnplaced, CPU: cpus(m),
		},
		nap: nap{from: m.Migration.Digest, goes: goalOf(m), by: by},
	}
	w.instances = append(w.instances, in)
	if steps, set := w.steps[runtime.TaskCreate]; set && steps == 0 {
		w.place(in)
	}
}

// place has a host take an instance that none has taken, if there is one.
func (w *World) place(in *instance) {
	g := in.goes
	target := runtime.Target{NodeName: g.to.NodeName, NodeSelector: g.to.NodeSelector}
	switch {
	case g.back:
		target.NodeName = g.leave
	case target.NodeName == "":
		target.Leave = g.leave
	}
	node := w.pick(target, g.also)
	if node == "" && g.back {
		node = w.pick(runtime.Target{}, g.also)
	}
	if node == "" {
		return
	}
	in.NodeName, in.State = node, runtime.InstanceMaking
	w.start(in.Owner, &work{kind: runtime.TaskCreate, commit: func(by cause) { w.thaw(in, by) }}, Fault{}, in.by)
}

// thaw makes the machine of an instance that a host has taken.
func (w *World) thaw(in *instance, by cause) {
	rec := w.machine(in.Owner)
	i := slices.IndexFunc(w.snapshots[in.Owner], func(s Snapshot) bool { return s.Digest == in.from })
	if i < 0 || w.registry.Down || rec.naps.FailRestores > 0 {
		rec.naps.FailRestores = max(0, rec.naps.FailRestores-1)
		in.State, rec.lastFailure = runtime.InstanceFailed, "the snapshot cannot be restored"
		w.record(TaskFailed, in.Owner, in, by)
		return
	}
	from := w.snapshots[in.Owner][i]
	in.State, in.Power, in.Memory = "", from.Power, from.Memory
	if in.Incarnation = from.Incarnation; in.Power != v1alpha1.PowerStopped {
		in.before = from.Incarnation
		in.powerOns++
		in.Incarnation = fmt.Sprintf("%s/%d", in.UID, in.powerOns)
	}
	w.record(Restored, in.Owner, in, by)
}

// Retract removes a restored instance of which nothing has run.
func (h *Hibernating) Retract(ctx context.Context, m runtime.Machine, fenced bool) error {
	w := h.of.world
	return h.move(ctx, runtime.VerbRetract, m, fenced, func() (*work, error) {
		in, err := w.find(m)
		switch {
		case in == nil || err != nil:
			return nil, err
		case !in.restores(m) || in.UID == m.Migration.Instance:
			return nil, runtime.NewInvalidState(nil, "instance %s is not restored from the snapshot of the move", in.UID)
		}
		switch state := w.stateOf(in); {
		case state == runtime.InstanceUnplaced:
			return w.fences(in), nil // there is no agent yet
		case state == runtime.InstanceFailed:
			return w.removes(in), nil
		case fenced && (state == runtime.InstanceMaking || state == runtime.InstanceLeaving):
			return w.fences(in), nil
		case state == runtime.InstanceLeaving:
			return nil, nil
		}
		return nil, runtime.NewInvalidState(nil, "something of instance %s may have run", in.UID)
	})
}

// Discard removes all snapshots of the machine.
func (h *Hibernating) Discard(ctx context.Context, m runtime.Machine) error {
	return h.move(ctx, runtime.VerbDiscard, m, false, func() (*work, error) { return h.of.world.planDiscard(m) })
}

func (w *World) planDiscard(m runtime.Machine) (*work, error) {
	switch {
	case w.registry.Down:
		return nil, runtime.NewUnavailable(nil, "the registry is away")
	case w.registry.ReadOnly && len(w.snapshots[m.UID]) > 0:
		return nil, runtime.NewPermission(nil, "the registry does not have snapshots removed")
	}
	return &work{commit: func(by cause) {
		if len(w.snapshots[m.UID]) > 0 {
			delete(w.snapshots, m.UID)
			w.record(Discarded, m.UID, nil, by)
		}
	}}, nil
}

// Delete removes the machine: of one that is on no host its snapshots.
func (h *Hibernating) Delete(ctx context.Context, m runtime.Machine) error {
	w := h.of.world
	return h.move(ctx, runtime.VerbDelete, m, false, func() (*work, error) {
		if in, err := w.find(m); in == nil && err == nil && m.Migration != nil {
			return w.planDiscard(m)
		}
		return w.planDelete(m)
	})
}

// goal is where an instance is to go that is restored.
type goal struct {
	to    v1alpha1.MigrateTarget
	back  bool
	leave string
	also  map[string]v1alpha1.LabelValue
}

func goalOf(m runtime.Machine) goal {
	return goal{to: *m.Migration.To.DeepCopy(), back: m.Migration.Back, leave: m.Migration.Was.NodeName, also: maps.Clone(selectorOf(m))}
}
