package machine

import (
	"context"
	"slices"
	"strings"

	"github.com/vmware/govmomi/event"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/session"
)

// attempts are tasks that create a machine, or failed to. vCenter files such a task under the source, and reports the
// name of the new machine only in its event.
type attempts []types.TaskInfo

func (a attempts) running() (tasks []runtime.Task) {
	for _, info := range a {
		if session.Running(info) {
			tasks = append(tasks, runtime.Task{ID: info.Task.Value, Kind: runtime.TaskCreate, Progress: percent(info)})
		}
	}
	return tasks
}

// lastFailure returns the error of the last task, if it failed.
func (a attempts) lastFailure() string {
	if len(a) == 0 {
		return ""
	}
	last := slices.MaxFunc(a, func(a, b types.TaskInfo) int { return a.QueueTime.Compare(b.QueueTime) })
	if last.State != types.TaskInfoStateError {
		return ""
	}
	return session.Failure(last).Error()
}

// attempts returns the tasks for a machine that does not exist. vCenter lists running tasks and recent ones. Its
// history collectors would work too, but leak if a reply is lost, and a session may only have 32 of them.
func (r *Runtime) attempts(ctx context.Context, m runtime.Machine) (attempts, error) {
	tasks, err := r.unfinishedClones(ctx)
	if err != nil || len(tasks) == 0 {
		return nil, err
	}
	var clones attempts
	err = r.Retrieve(ctx, types.PropertyFilterSpec{
		ObjectSet: tasks, PropSet: []types.PropertySpec{{Type: "Task", PathSet: []string{"info"}}},
	}, session.Only(func(task mo.Task) { clones = append(clones, task.Info) }))
	if runtime.IsNotFound(err) { // the oldest was dropped from the list in the meantime
		return nil, runtime.NewUnavailable(err, "vCenter %s did not show all of its tasks", r.Config.Name)
	}
	if err != nil || len(clones) == 0 {
		return nil, err
	}
	return r.making(ctx, m, clones)
}

// unfinishedClones returns the clone tasks that have not succeeded. Other listed tasks are not read further.
func (r *Runtime) unfinishedClones(ctx context.Context) (tasks []types.ObjectSpec, err error) {
	err = r.RecentTasks(ctx, func(task mo.Task) {
		if session.Verb(task.Info) == "clone" && task.Info.State != types.TaskInfoStateSuccess {
			tasks = append(tasks, types.ObjectSpec{Obj: task.Self})
		}
	}, "info.descriptionId", "info.state")
	return tasks, err
}

// maxEvents is the maximum number of events in one response.
const maxEvents = 1000

// making returns the clones that create the machine, under whatever account: the name is unique. A clone of our
// account whose event is not there yet may be one of them.
func (r *Runtime) making(ctx context.Context, m runtime.Machine, clones attempts) (all attempts, err error) {
	first := slices.MinFunc(clones, func(a, b types.TaskInfo) int { return a.QueueTime.Compare(b.QueueTime) }).QueueTime
	since := first.Add(-noteLasts)
	names := map[int32]string{} // by event chain
	err = r.Call(ctx, func(c *vim25.Client) error {
		events, err := event.NewManager(c).QueryEvents(ctx, types.EventFilterSpec{
			EventTypeId: []string{"VmBeingClonedEvent"},
			Time:        &types.EventFilterSpecByTime{BeginTime: &since},
			MaxCount:    maxEvents,
		})
		for _, e := range events {
			if cloning, is := e.(*types.VmBeingClonedEvent); is {
				names[cloning.ChainId] = cloning.DestName
			}
		}
		return err
	})
	for _, info := range clones {
		name, known := names[info.EventChainId]
		if strings.EqualFold(name, inventoryName(m)) || !known && session.Running(info) && session.ByUser(info, r.User()) {
			all = append(all, info)
		}
	}
	return all, err
}
