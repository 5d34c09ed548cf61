package vsphere

import (
	"context"
	"slices"
	"strings"

	"github.com/vmware/govmomi/event"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// attempts are the tasks that make a machine, or failed to. vCenter has such a task with what is cloned and not with what it makes, and
// says of it only in its event how the machine is to be called.
type attempts []types.TaskInfo

// running gives those that are in flight.
func (a attempts) running() (tasks []runtime.Task) {
	for _, info := range a {
		if running(info) {
			tasks = append(tasks, runtime.Task{ID: info.Task.Value, Kind: runtime.TaskCreate, Progress: percent(info)})
		}
	}
	return tasks
}

// lastFailure is what vCenter says of the last one, if that has failed.
func (a attempts) lastFailure() string {
	if len(a) == 0 {
		return ""
	}
	last := slices.MaxFunc(a, func(a, b types.TaskInfo) int { return a.QueueTime.Compare(b.QueueTime) })
	if last.State != types.TaskInfoStateError {
		return ""
	}
	return failure(last).Error()
}

// attempts gives those of a machine that is not there. vCenter lists every task that is in flight, and those that have ended of late. Its
// histories would do as well, but are left behind when a reply is lost, and a session may only have 32 of them.
func (r *Runtime) attempts(ctx context.Context, m runtime.Machine) (attempts, error) {
	tasks, err := r.unfinishedClones(ctx)
	if err != nil || len(tasks) == 0 {
		return nil, err
	}
	var clones attempts
	err = r.retrieve(ctx, types.PropertyFilterSpec{
		ObjectSet: tasks, PropSet: []types.PropertySpec{{Type: "Task", PathSet: []string{"info"}}},
	}, only(func(task mo.Task) { clones = append(clones, task.Info) }))
	if runtime.IsNotFound(err) { // the oldest was dropped from the list in between
		return nil, runtime.NewUnavailable(err, "vCenter %s did not show all of its tasks", r.server.config.Name)
	}
	if err != nil || len(clones) == 0 {
		return nil, err
	}
	return r.making(ctx, m, clones)
}

// unfinishedClones gives the tasks that clone something, and have not done so yet. Of all the others that are listed no more is asked.
func (r *Runtime) unfinishedClones(ctx context.Context) (tasks []types.ObjectSpec, err error) {
	err = r.recentTasks(ctx, func(task mo.Task) {
		if verb(task.Info) == "clone" && task.Info.State != types.TaskInfoStateSuccess {
			tasks = append(tasks, types.ObjectSpec{Obj: task.Self})
		}
	}, "info.descriptionId", "info.state")
	return tasks, err
}

// recentTasks reads the tasks that vCenter lists.
func (r *Runtime) recentTasks(ctx context.Context, each func(mo.Task), properties ...string) error {
	var manager types.ManagedObjectReference
	err := r.server.call(ctx, func(c *vim25.Client) error {
		manager = *c.ServiceContent.TaskManager
		return nil
	})
	if err != nil {
		return err
	}
	return r.retrieve(ctx, types.PropertyFilterSpec{
		ObjectSet: []types.ObjectSpec{{Obj: manager, Skip: new(true), SelectSet: []types.BaseSelectionSpec{
			&types.TraversalSpec{Type: "TaskManager", Path: "recentTask"},
		}}},
		PropSet: []types.PropertySpec{{Type: "Task", PathSet: properties}},
	}, only(each))
}

// maxEvents is how many events vCenter gives at once.
const maxEvents = 1000

// making gives the clones that make the machine, whoever is logged in now: the name is nobody else's. One of our account whose event is
// not there yet may be one of them.
func (r *Runtime) making(ctx context.Context, m runtime.Machine, clones attempts) (all attempts, err error) {
	first := slices.MinFunc(clones, func(a, b types.TaskInfo) int { return a.QueueTime.Compare(b.QueueTime) }).QueueTime
	since := first.Add(-noteLasts)
	names := map[int32]string{} // by chain of events
	err = r.server.call(ctx, func(c *vim25.Client) error {
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
		if strings.EqualFold(name, inventoryName(m)) || !known && running(info) && byUser(info, r.server.user()) {
			all = append(all, info)
		}
	}
	return all, err
}
