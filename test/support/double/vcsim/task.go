package vcsim

import (
	"fmt"
	"sync"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// task is a task of the simulator that can be cancelled.
type task struct {
	*simulator.Task
	cancelled chan struct{}
	cancel    func()
	heeds     bool // It ends when it is cancelled.
}

// begin begins a task, whose effect comes at its end, unless another is in flight.
func (m *machine) begin(ctx *simulator.Context, verb string, reason types.BaseTaskReason,
	effect func(*simulator.Context) types.BaseMethodFault) (types.ManagedObjectReference, types.BaseMethodFault) {
	if m.busy != nil {
		return types.ManagedObjectReference{}, &types.TaskInProgress{Task: m.busy.Self}
	}
	t := m.newTask(ctx, verb, reason)
	m.busy = t
	hold, step := m.holds[verb], m.step
	m.center.background.Go(func() { m.run(t, hold, step, effect) })
	return t.Self, nil
}

// newTask makes a task of the machine that is in flight.
func (m *machine) newTask(ctx *simulator.Context, verb string, reason types.BaseTaskReason) *task {
	return m.center.newTask(ctx, m, verb, reason, !m.ignoresCancels)
}

// newTask makes a task of something that is in flight, and ends when it is cancelled if it heeds that.
func (v *VCenter) newTask(ctx *simulator.Context, of mo.Reference, verb string, reason types.BaseTaskReason, heeds bool) *task {
	t := &task{Task: simulator.CreateTask(of, verb, nil), cancelled: make(chan struct{}), heeds: heeds}
	t.cancel = sync.OnceFunc(func() { close(t.cancelled) })
	t.Self = v.newTaskID()
	t.Info.Key, t.Info.Task, t.Info.Cancelable = t.Self.Value, t.Self, true
	t.Info.Reason = reason
	t.Info.StartTime, t.Info.State = types.NewTime(time.Now()), types.TaskInfoStateRunning
	// As the simulator's own type it gets into the machine's recent tasks, and is then replaced.
	ctx.Map.Put(t.Task)
	ctx.Map.Put(t)
	return t
}

// asked is the reason of a task that somebody who is logged in asks for.
func asked(ctx *simulator.Context) types.BaseTaskReason {
	return &types.TaskReasonUser{UserName: ctx.Session.UserName}
}

// newTaskID gives a reference that the simulator does not give to a task of its own.
func (v *VCenter) newTaskID() types.ManagedObjectReference {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.tasks++
	return types.ManagedObjectReference{Type: "Task", Value: fmt.Sprintf("task-s%d", v.tasks)}
}

// pause lets that time pass, or less if it is cut short, and reports whether the vCenter is still there.
func (v *VCenter) pause(step time.Duration, short <-chan struct{}) bool {
	timer := time.NewTimer(step)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-short:
	case <-v.closing:
		return false
	}
	return true
}

// wait lets a task take its time, or less if it is cancelled, and reports whether the vCenter is still there.
func (t *task) wait(v *VCenter, hold <-chan struct{}, step time.Duration) bool {
	if hold != nil {
		select {
		case <-hold:
		case <-t.cancelled:
		case <-v.closing:
			return false
		}
	}
	return v.pause(step, t.cancelled)
}

// withdrawn reports whether the task was cancelled, and heeds that.
func (t *task) withdrawn() bool {
	select {
	case <-t.cancelled:
		return true
	default:
		return false
	}
}

// run runs a task to its end.
func (m *machine) run(t *task, hold <-chan struct{}, step time.Duration,
	effect func(*simulator.Context) types.BaseMethodFault) {
	if !t.wait(m.center, hold, step) {
		return
	}
	ctx := m.center.context()
	ctx.WithLock(m, func() {
		ctx.WithLock(t, func() {
			if t.withdrawn() {
				t.end(ctx, new(types.RequestCanceled), "The task was canceled by a user.")
			} else {
				t.end(ctx, effect(ctx), "The operation is not allowed in the current state.")
			}
		})
		m.busy = nil
	})
}

// end shows the task as ended, with an error if there is one.
func (t *task) end(ctx *simulator.Context, f types.BaseMethodFault, message string) {
	changes := []types.PropertyChange{
		{Name: "info.completeTime", Val: time.Now()},
		{Name: "info.state", Val: types.TaskInfoStateSuccess},
	}
	if f != nil {
		changes[1].Val = types.TaskInfoStateError
		changes = append(changes, types.PropertyChange{
			Name: "info.error", Val: &types.LocalizedMethodFault{Fault: f, LocalizedMessage: message},
		})
	}
	ctx.Update(t, changes)
}

// CancelTask asks for the task to be withdrawn.
func (t *task) CancelTask(ctx *simulator.Context, _ *types.CancelTask) soap.HasFault {
	body := new(methods.CancelTaskBody)
	if t.Info.CompleteTime != nil {
		body.Fault_ = fault(new(types.InvalidState))
		return body
	}
	ctx.Update(t, []types.PropertyChange{{Name: "info.cancelled", Val: true}})
	if t.heeds {
		t.cancel()
	}
	body.Res = new(types.CancelTaskResponse)
	return body
}
