package fake

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// Runtime is a client of a World. It is a runtime.Migrator too.
type Runtime struct {
	world *World
	name  string
}

var (
	_ runtime.Runtime  = (*Runtime)(nil)
	_ runtime.Migrator = (*Runtime)(nil)
)

// request is a call on its way through do.
type request struct {
	Call
	// plan says what there is to do, nil for nothing, in the world as it is now.
	plan func() (*work, error)
	// result reads what the call returns beside its error, once the work has begun.
	result func()
}

// do makes the call, with what befalls it. The world is locked but for the time that the call stalls.
func (r *Runtime) do(ctx context.Context, q request) error {
	w := r.world
	c := &q.Call
	c.Client = r.name
	c.Machine.Spec, c.Machine.Migration = c.Machine.Spec.DeepCopy(), c.Machine.Migration.DeepCopy()
	c.Target.NodeSelector = maps.Clone(c.Target.NodeSelector)
	if tag := w.tagger(); tag != nil {
		c.Tag = tag(ctx, c.Verb, c.Machine)
	}
	defer w.lock()()
	c.Seq = w.next()
	w.calls = append(w.calls, c)
	c.Err = w.befall(ctx, &q)
	c.Returned = w.next()
	return c.Err
}

// tagger gives the function that tags calls, which is called without the lock.
func (w *World) tagger() func(context.Context, runtime.Verb, runtime.Machine) string {
	defer w.lock()()
	return w.tag
}

// befall does what the call asks for, or what is scripted for it.
func (w *World) befall(ctx context.Context, q *request) error {
	if err := ctx.Err(); err != nil {
		return runtime.NewUnavailable(err, "the runtime was not asked in time")
	}
	fault := w.take(&q.Call)
	switch {
	case fault.fail != nil:
		return fault.fail
	case fault.stall != nil:
		return w.stalled(ctx, q, fault)
	case fault.lost:
		if err := w.carryOut(q, fault); err != nil {
			return runtime.NewUnavailable(err, "the runtime did not answer")
		}
		return runtime.NewUnavailable(ErrReplyLost, "the runtime did not answer")
	default:
		return w.carryOut(q, fault)
	}
}

// stalled waits, without the lock, and does the work when the stall says.
func (w *World) stalled(ctx context.Context, q *request, fault Fault) error {
	s := fault.stall
	var err error
	if s.timing == ActBefore {
		err = w.carryOut(q, fault)
	}
	w.mu.Unlock()
	released := s.wait(ctx)
	w.mu.Lock()
	switch {
	case released && s.timing == ActBefore:
		return err
	case released:
		return w.carryOut(q, fault)
	case s.timing == ActRegardless:
		orphan := *q
		orphan.result = func() {} // Nobody is there to read it, and what it writes to is the caller's.
		w.mu.Unlock()
		s.leave(func() {
			defer w.lock()()
			// Its error has nobody to go to either.
			_ = w.carryOut(&orphan, fault)
		})
		w.mu.Lock()
	}
	return runtime.NewUnavailable(context.Cause(ctx), "the runtime did not answer in time")
}

// carryOut does what the call asks for.
func (w *World) carryOut(q *request, fault Fault) error {
	wk, err := q.plan()
	if err != nil {
		return err
	}
	w.start(cmp.Or(q.Machine.UID, q.Disk.UID), wk, fault, q.cause())
	if q.result != nil {
		q.result()
	}
	return nil
}

// find gives the instance of the machine, and nil if there is none.
func (w *World) find(m runtime.Machine) (*instance, error) {
	if m.UID == "" {
		return nil, runtime.NewInvalidState(nil, "VirtualMachine %s has no UID", m)
	}
	var mine []*instance
	for _, in := range w.instances {
		if in.Owner == m.UID && (!w.byName || nameOf(m) == "" || in.ID == nameOf(m)) {
			mine = append(mine, in)
		}
	}
	if len(mine) == 1 {
		return mine[0], nil
	}
	for _, in := range mine {
		if in.ID == m.InstanceID {
			return in, nil
		}
	}
	if len(mine) > 1 {
		return nil, runtime.NewInvalidState(nil, "%d machines carry the marker of VirtualMachine %s", len(mine), m)
	}
	if w.earlier(m) != nil && (m.InstanceID != "" || m.Earlier == "") {
		return nil, runtime.NewOwnedByAnother(nil, "the machine at %s belongs to another owner", Place(m))
	}
	return nil, nil
}

// earlier gives the instance at the place of the machine that carries another owner's marker.
func (w *World) earlier(m runtime.Machine) *instance {
	if there := w.named(m); there != nil && there.Owner != "" && there.Owner != m.UID {
		return there
	}
	return nil
}

// named gives the instance that the ID or the spec of the machine names, whoever owns it.
func (w *World) named(m runtime.Machine) *instance {
	place := Place(m)
	i := slices.IndexFunc(w.instances, func(in *instance) bool {
		return (m.InstanceID != "" && in.ID == m.InstanceID) || in.Place == place
	})
	if i < 0 {
		return nil
	}
	return w.instances[i]
}

// existing is find for calls that need an instance.
func (w *World) existing(m runtime.Machine) (*instance, error) {
	in, err := w.find(m)
	switch why := w.machine(m.UID).unusable; {
	case err != nil:
		return nil, err
	case in == nil || !in.made():
		return in, runtime.NewNotFound(nil, "there is no machine of VirtualMachine %s", m)
	case why != "":
		return in, runtime.NewInvalidState(nil, "%s", why)
	}
	return in, nil
}

// Observe looks at the machine.
func (r *Runtime) Observe(ctx context.Context, m runtime.Machine) (runtime.Observation, error) {
	return r.observe(ctx, m, func(*instance, *runtime.Observation) {})
}

// observe looks at the machine, and at more in the same instant.
func (r *Runtime) observe(ctx context.Context, m runtime.Machine, more func(*instance, *runtime.Observation)) (runtime.Observation, error) {
	w := r.world
	var seen runtime.Observation
	err := r.do(ctx, request{
		Call: Call{Verb: runtime.VerbObserve, Machine: m},
		plan: func() (*work, error) {
			if w.auto {
				w.advance(m.UID)
			}
			_, err := w.find(m)
			return nil, err
		},
		result: func() {
			rec := w.machine(m.UID)
			seen = runtime.Observation{InFlight: rec.inFlight(), LastFailure: rec.lastFailure}
			in, _ := w.find(m)
			if in != nil && in.made() {
				seen.Exists, seen.InstanceID, seen.Power = true, in.ID, in.Power
				seen.Incarnation, seen.NodeName, seen.Adopted = w.shown(in), in.NodeName, in.Adopted
				seen.MeantOn = in.Adopted && in.MeantOn
				seen.Differences = in.differences(m)
				seen.Disks = append(seen.Disks, in.Disks...)
				seen.Question, seen.Unusable, seen.Plugging = rec.question, rec.unusable, rec.plugging
				if in.Power == v1alpha1.PowerRunning {
					seen.Guest = rec.guest.Says
				}
			}
			if there := w.named(m); in == nil && there != nil && there.Owner == "" {
				seen.Unadopted, seen.Power, seen.NodeName = true, there.Power, there.NodeName
			}
			more(in, &seen)
		},
	})
	if err != nil {
		return runtime.Observation{}, err
	}
	return seen, nil
}

// Ensure makes the machine, or adopts the one at its place.
func (r *Runtime) Ensure(ctx context.Context, m runtime.Machine) (string, error) {
	w := r.world
	var id string
	err := r.do(ctx, request{
		Call: Call{Verb: runtime.VerbEnsure, Machine: m},
		plan: func() (*work, error) { return w.planEnsure(m) },
		result: func() {
			if in, _ := w.find(m); in != nil {
				id = in.ID
			}
		},
	})
	if err != nil {
		return "", err
	}
	return id, nil
}

func (w *World) planEnsure(m runtime.Machine) (*work, error) {
	in, err := w.find(m)
	if err != nil || in != nil {
		return nil, err
	}
	if there := w.earlier(m); there != nil && m.Earlier == runtime.TakeOver {
		return &work{commit: func(by cause) {
			there.Owner = m.UID
			w.record(TakenOver, m.UID, there, by)
		}}, nil
	}
	if there := w.named(m); there != nil && (there.Owner == "" || there.Owner == m.UID) {
		return &work{commit: func(by cause) {
			if there.Owner == "" {
				there.Owner, there.Adopted = m.UID, true
				w.record(Adopted, m.UID, there, by)
			}
		}}, nil
	}
	if m.Spec != nil && m.Spec.Adopts() {
		return nil, runtime.NewNotFound(nil, "there is no machine at %s", Place(m))
	}
	if other, joined := w.machine(m.UID).busy(runtime.TaskCreate); other != nil || joined {
		return nil, conflict(other)
	}
	node := runtime.Target{}
	if m.Spec != nil {
		node.NodeName = m.Spec.NodeName
	}
	host := w.pick(node, selectorOf(m))
	if host == "" {
		return nil, runtime.NewInvalidState(nil, "no connected node can take VirtualMachine %s", m)
	}
	return &work{kind: runtime.TaskCreate, commit: func(by cause) {
		if w.owned(m.UID) != nil {
			return
		}
		id := w.newID("instance")
		uid := types.UID(id)
		if w.byName {
			id = firstNameOf(m)
		}
		made := &instance{Instance: Instance{
			ID: id, UID: uid, Place: Place(m), Owner: m.UID, Power: v1alpha1.PowerStopped, NodeName: host, CPU: cpus(m),
		}}
		w.instances = append(w.instances, made)
		w.record(Created, m.UID, made, by)
	}}, nil
}

// PowerOn powers the machine on.
func (r *Runtime) PowerOn(ctx context.Context, m runtime.Machine) error {
	w := r.world
	return r.do(ctx, request{
		Call: Call{Verb: runtime.VerbPowerOn, Machine: m},
		plan: func() (*work, error) {
			in, err := w.existing(m)
			if err != nil {
				return nil, err
			}
			tasks := w.machine(m.UID)
			switch {
			case in.Power == v1alpha1.PowerRunning && !tasks.has(runtime.TaskPowerOff):
				return nil, nil
			case in.State == runtime.InstanceAsleep:
				return nil, runtime.NewInvalidState(nil, "VirtualMachine %s is asleep", m)
			}
			if other, joined := tasks.busy(runtime.TaskPowerOn); other != nil || joined {
				return nil, conflict(other)
			}
			return &work{kind: runtime.TaskPowerOn, commit: func(by cause) {
				w.resize(in, m, false, by)
				w.powerOn(in, m.UID, by)
			}}, nil
		},
	})
}

// PowerOff asks the guest to shut down, or takes the power away.
func (r *Runtime) PowerOff(ctx context.Context, m runtime.Machine, mode runtime.Mode) error {
	w := r.world
	return r.do(ctx, request{
		Call: Call{Verb: runtime.VerbPowerOff, Machine: m, Mode: mode},
		plan: func() (*work, error) {
			in, err := w.existing(m)
			if err != nil {
				return nil, err
			}
			tasks := w.machine(m.UID)
			if mode == runtime.Forced || in.Power == v1alpha1.PowerStopped {
				tasks.tasks = slices.DeleteFunc(tasks.tasks, func(t *task) bool { return t.yields })
			}
			if in.Power == v1alpha1.PowerStopped && !tasks.has(runtime.TaskPowerOn) {
				return nil, nil
			}
			if other, joined := tasks.busy(runtime.TaskPowerOff); other != nil || joined {
				return nil, conflict(other)
			}
			if mode == runtime.Graceful {
				return w.planShutdown(in, m)
			}
			return &work{kind: runtime.TaskPowerOff, commit: func(by cause) { w.powerOff(in, m.UID, by, false) }}, nil
		},
	})
}

func (w *World) planShutdown(in *instance, m runtime.Machine) (*work, error) {
	if in.Power == v1alpha1.PowerPaused {
		return nil, runtime.NewInvalidState(nil, "the guest of VirtualMachine %s is paused and cannot be asked to shut down: start it first, or use --force", m)
	}
	guest := w.machine(m.UID).guest
	if guest.NoTools {
		return nil, runtime.NewToolsUnavailable(nil, "the guest of VirtualMachine %s has no running agent to request a shutdown from", m)
	}
	asked := in.Incarnation
	return &work{commit: func(by cause) {
		if in.Incarnation != asked || in.Power != v1alpha1.PowerRunning {
			return
		}
		w.record(ShutdownAsked, m.UID, in, by)
		switch {
		case guest.Ignores:
			if in.shutdown == nil {
				in.shutdown = &shutdown{left: -1, cause: by}
			}
		case guest.Steps == 0:
			w.powerOff(in, m.UID, by, true)
		case in.shutdown == nil || in.shutdown.left < 0:
			in.shutdown = &shutdown{left: guest.Steps, cause: by}
		}
	}}, nil
}

// Cancel asks for a power-on or relocation of ours to be withdrawn.
func (r *Runtime) Cancel(ctx context.Context, m runtime.Machine, id string) error {
	w := r.world
	return r.do(ctx, request{
		Call: Call{Verb: runtime.VerbCancel, Machine: m, Task: id},
		plan: func() (*work, error) {
			if _, err := w.find(m); err != nil {
				return nil, err
			}
			var tasks []*task
			for _, t := range w.machine(m.UID).tasks {
				if t.id == id && !t.unseen && t.foreign == "" && (t.kind == runtime.TaskPowerOn || t.kind == runtime.TaskRelocate) {
					tasks = append(tasks, t)
				}
			}
			return &work{commit: func(cause) { w.cancel(m.UID, tasks) }}, nil
		},
	})
}

// Delete removes the machine, or releases it if it was adopted.
func (r *Runtime) Delete(ctx context.Context, m runtime.Machine) error {
	return r.do(ctx, request{
		Call: Call{Verb: runtime.VerbDelete, Machine: m},
		plan: func() (*work, error) { return r.world.planDelete(m) },
	})
}

func (w *World) planDelete(m runtime.Machine) (*work, error) {
	in, err := w.find(m)
	other, joined := w.machine(m.UID).busy(runtime.TaskDelete)
	switch {
	case err != nil:
		return nil, err
	case other != nil && (in == nil || !in.Adopted || !other.yields) || joined || in == nil:
		return nil, conflict(other)
	case w.machine(m.UID).unusable != "":
		return nil, runtime.NewInvalidState(nil, "%s", w.machine(m.UID).unusable)
	case in.Adopted:
		return &work{commit: func(by cause) {
			in.Owner, in.Adopted = "", false
			tasks := w.machine(m.UID)
			tasks.tasks = slices.DeleteFunc(tasks.tasks, func(t *task) bool { return t.yields }) // it goes on, with no machine of ours
			w.record(Released, m.UID, in, by)
		}}, nil
	case in.Power != v1alpha1.PowerStopped:
		return nil, runtime.NewInvalidState(nil, "VirtualMachine %s is not off", m)
	}
	return &work{kind: runtime.TaskDelete, commit: func(by cause) {
		for _, d := range in.Disks {
			w.detach(in, m.UID, d.UID, by)
		}
		w.remove(in)
		w.record(Deleted, m.UID, in, by)
	}}, nil
}

// Migrate moves the machine.
func (r *Runtime) Migrate(ctx context.Context, m runtime.Machine, target runtime.Target) error {
	w := r.world
	return r.do(ctx, request{
		Call: Call{Verb: runtime.VerbMigrate, Machine: m, Target: target},
		plan: func() (*work, error) { return w.planMigrate(m, target) },
	})
}

func (w *World) planMigrate(m runtime.Machine, target runtime.Target) (*work, error) {
	in, err := w.existing(m)
	if err != nil {
		return nil, err
	}
	if target.NodeName != "" {
		target = runtime.Target{NodeName: target.NodeName}
	} else if target.Leave == "" {
		target.Leave = in.NodeName
	}
	rec := w.machine(m.UID)
	if other, _ := rec.busy(runtime.TaskRelocate); other != nil {
		return nil, conflict(other)
	}
	if rec.plugging != "" {
		return nil, runtime.NewInvalidState(nil, "%s", rec.plugging)
	}
	at := in.NodeName
	for _, t := range rec.tasks {
		if t.kind == runtime.TaskRelocate && !t.unseen {
			at = t.node
			if !w.meets(at, target, selectorOf(m)) {
				return nil, conflict(t)
			}
		}
	}
	if w.meets(at, target, selectorOf(m)) {
		return nil, nil
	}
	node := w.pick(target, selectorOf(m))
	if node == "" {
		return nil, runtime.NewInvalidState(nil, "no connected node meets the target of the migration of VirtualMachine %s", m)
	}
	return &work{kind: runtime.TaskRelocate, node: node, commit: func(by cause) {
		in.NodeName = node
		w.record(Moved, m.UID, in, by)
	}}, nil
}

// meets reports whether a machine on that node has no need to move.
func (w *World) meets(node string, target runtime.Target, also map[string]v1alpha1.LabelValue) bool {
	if target.NodeName != "" {
		return node == target.NodeName
	}
	return node != target.Leave && w.selected(w.hosts[node], target.NodeSelector) && w.selected(w.hosts[node], also)
}

// conflict is the error for a call that does not go with the task, and nil for none.
func conflict(t *task) error {
	if t == nil {
		return nil
	}
	return runtime.NewInvalidState(nil, "a task of kind %s is in flight", t.kind)
}
