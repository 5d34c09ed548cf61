package fake

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// work is what a call has found to be done.
type work struct {
	// kind is the kind of task that does it. Empty, it is done in the call and never in flight: asking a guest, cancelling.
	kind runtime.TaskKind
	// node is where a relocation goes.
	node string
	// change is what a reconfiguration changes.
	change string
	// asks is the Migration that an agent is asked to hibernate the machine for.
	asks types.UID
	// commit does it.
	commit func(by cause)
	// spoilt is what else comes of it if it fails or is cancelled, nil for nothing.
	spoilt func()
}

// task is work that is in flight.
type task struct {
	work
	id         string
	left       int
	unseen     bool
	failing    string
	cancelling bool
	cancelLeft int
	progress   *int32
	by         cause
	foreign    string // Who began it, if that was no client.
	yields     bool   // A forced power-off ends it.
}

// start begins work: with steps to go it becomes a task, without it is done.
func (w *World) start(uid types.UID, wk *work, fault Fault, by cause) {
	if wk == nil {
		return
	}
	steps := fault.late
	if in := w.owned(uid); in != nil && wk.kind != "" {
		in.asked = wk.asks
	}
	if wk.kind != "" {
		took, set := w.steps[wk.kind]
		if !set {
			took = 1
		}
		steps += took
	}
	t := &task{
		work: *wk, id: w.newID("task"), left: steps, failing: fault.failing, by: by,
		unseen: wk.kind == "",
	}
	if steps == 0 && (wk.kind == "" || !w.idle(uid)) {
		w.end(uid, t)
		return
	}
	m := w.machine(uid)
	m.tasks = append(m.tasks, t)
}

// Begin begins a task of somebody else's for the machine, as an administrator would behind our back, or vCenter's DRS: by says
// who. A power-on and a relocation to another host take effect when it ends; a task of another kind has none. It gives the
// task's ID.
func (w *World) Begin(uid types.UID, kind runtime.TaskKind, by string) (id string) {
	defer w.lock()()
	wk := &work{kind: kind, commit: func(cause) {}}
	switch in := w.owned(uid); {
	case in == nil:
	case kind == runtime.TaskPowerOn:
		wk.commit = func(by cause) { w.powerOn(in, uid, by) }
	case kind == runtime.TaskRelocate:
		wk.node = w.pick(runtime.Target{Leave: in.NodeName}, nil)
		wk.commit = func(by cause) {
			in.NodeName = wk.node
			w.record(Moved, uid, in, by)
		}
	}
	t := &task{work: *wk, id: w.newID("task"), left: max(1, w.steps[kind]), foreign: by}
	m := w.machine(uid)
	m.tasks = append(m.tasks, t)
	return t.id
}

// BeginYielding is Begin of a move or a power-on that a forced PowerOff ends, as KubeVirt does.
func (w *World) BeginYielding(uid types.UID, kind runtime.TaskKind, by string) {
	id := w.Begin(uid, kind, by)
	defer w.lock()()
	for _, t := range w.machine(uid).tasks {
		t.yields = t.yields || t.id == id
	}
}

// end has the task do its work, or fail.
func (w *World) end(uid types.UID, t *task) {
	m := w.machine(uid)
	if t.failing != "" {
		m.lastFailure = t.failing
		w.record(TaskFailed, uid, w.owned(uid), t.by)
		t.spoil()
		return
	}
	if t.kind != "" {
		m.lastFailure = ""
	}
	t.commit(t.by)
}

// Advance takes everything of the machine with that UID one step on: tasks, cancellations, late requests, and its guest.
func (w *World) Advance(uid types.UID) {
	defer w.lock()()
	w.advance(uid)
}

// AdvanceAll takes everything in the world one step on, machine by machine in the order of their UIDs.
func (w *World) AdvanceAll() {
	defer w.lock()()
	for _, uid := range slices.Sorted(maps.Keys(w.machines)) {
		w.advance(uid)
	}
}

func (w *World) advance(uid types.UID) {
	m := w.machine(uid)
	if in := w.owned(uid); in != nil && in.listening() && in.shutdown.left > 0 {
		if in.shutdown.left--; in.shutdown.left == 0 {
			w.powerOff(in, uid, in.shutdown.cause, true)
		}
	}
	// What a task does may add tasks to the list: they begin with the next step.
	for _, t := range slices.Clone(m.tasks) {
		if w.idle(uid) {
			continue
		}
		if t.cancelling {
			t.cancelLeft--
		}
		switch {
		case t.cancelling && t.cancelLeft <= 0:
			w.drop(m, t)
			w.record(TaskCancelled, uid, w.owned(uid), t.by)
			t.spoil()
		case m.held[t.kind] > 0:
		default:
			if t.left--; t.left <= 0 {
				w.drop(m, t)
				w.end(uid, t)
			}
		}
	}
	w.live(uid)
}

// drop takes the task out of what is in flight.
func (w *World) drop(m *machine, gone *task) {
	m.tasks = slices.DeleteFunc(m.tasks, func(t *task) bool { return t == gone })
}

// inFlight gives the tasks of the machine that can be seen.
func (m *machine) inFlight() []runtime.Task {
	var seen []runtime.Task
	for _, t := range m.tasks {
		if !t.unseen {
			seen = append(seen, runtime.Task{ID: t.id, Kind: t.kind, Ours: t.foreign == "", By: t.foreign, Progress: t.progress, Yields: t.yields})
		}
	}
	return seen
}

// busy gives the first task in flight that is not of the kind given, or nil; joined says that one of that kind is.
func (m *machine) busy(kind runtime.TaskKind) (other *task, joined bool) {
	for _, t := range m.tasks {
		switch {
		case t.unseen:
		case t.kind == kind:
			joined = true
		case other == nil:
			other = t
		}
	}
	return other, joined
}

// has reports whether a task of that kind can be seen.
func (m *machine) has(kind runtime.TaskKind) bool {
	_, joined := m.busy(kind)
	return joined
}

// cancel asks the tasks to end. The list is of the moment of the call: what is begun later is not withdrawn.
func (w *World) cancel(uid types.UID, tasks []*task) {
	m := w.machine(uid)
	for _, t := range tasks {
		if !slices.Contains(m.tasks, t) || m.cancels.Ignored || t.cancelling {
			continue
		}
		if in := w.owned(uid); in != nil {
			in.asked = ""
		}
		if m.cancels.Steps > 0 || w.idle(uid) {
			t.cancelling, t.cancelLeft = true, m.cancels.Steps
			continue
		}
		w.drop(m, t)
		w.record(TaskCancelled, uid, w.owned(uid), t.by)
		t.spoil()
	}
}

// listening reports whether the guest was asked to shut down and can still do so.
func (in *instance) listening() bool { return in.shutdown != nil && in.Power == v1alpha1.PowerRunning }

// spoil does what comes of a task that has no effect.
func (t *task) spoil() {
	if t.spoilt != nil {
		t.spoilt()
	}
}

// renew gives the instance a new incarnation.
func (in *instance) renew() {
	in.powerOns++
	in.Memory++
	in.before = ""
	in.Incarnation = fmt.Sprintf("%s/%d", in.UID, in.powerOns)
}

// powerOn has the instance on.
func (w *World) powerOn(in *instance, uid types.UID, by cause) {
	switch in.Power {
	case v1alpha1.PowerRunning:
	case v1alpha1.PowerPaused:
		in.Power = v1alpha1.PowerRunning
		w.record(Resumed, uid, in, by)
	default:
		in.Power = v1alpha1.PowerRunning
		in.renew()
		w.record(PoweredOn, uid, in, by)
	}
}

// powerOff has the instance off. A request to its guest dies with the incarnation.
func (w *World) powerOff(in *instance, uid types.UID, by cause, guest bool) {
	in.shutdown = nil
	if in.Power == v1alpha1.PowerStopped {
		return
	}
	in.Power, in.State = v1alpha1.PowerStopped, ""
	in.Memory++
	w.record(PoweredOff, uid, in, by).ByGuest = guest
}
