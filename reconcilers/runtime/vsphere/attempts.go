package vsphere

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/vmware/govmomi/event"
	"github.com/vmware/govmomi/task"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

const (
	// maxHistories is how many of vCenter's histories are read at the same time, in each of which it looks in its database. It lets a
	// session have 32.
	maxHistories = 4
	// historyPage is how many tasks or events are read at once, which is as many as vCenter gives, and historyPages how often.
	historyPage, historyPages = 1000, 10
	// failureLasts is for how long a clone that failed is looked for.
	failureLasts = time.Hour
)

// attempts are the tasks that make a machine, or failed to. vCenter has such a task with what is cloned and not with
// what it makes, and says of it only in its event how the machine is to be called.
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

// lastFailure is what vCenter says of the last one, if none is in flight.
func (a attempts) lastFailure() string {
	if len(a) == 0 || len(a.running()) > 0 {
		return ""
	}
	return failure(slices.MaxFunc(a, func(a, b types.TaskInfo) int { return a.QueueTime.Compare(b.QueueTime) })).Error()
}

// attempts gives those of a machine that is not there: the ones in flight, or else those that failed of late.
func (r *Runtime) attempts(ctx context.Context, m runtime.Machine) (attempts, error) {
	if err := r.histories.Acquire(ctx, 1); err != nil {
		return nil, r.server.translate(ctx, err)
	}
	defer r.histories.Release(1)
	all, err := r.making(ctx, m, types.TaskFilterSpec{State: []types.TaskInfoState{types.TaskInfoStateQueued, types.TaskInfoStateRunning}})
	if err != nil || len(all) > 0 {
		return all, err
	}
	now, err := r.now(ctx)
	if err != nil {
		return nil, err
	}
	return r.making(ctx, m, types.TaskFilterSpec{
		State: []types.TaskInfoState{types.TaskInfoStateError},
		Time:  &types.TaskFilterSpecByTime{TimeType: types.TaskFilterSpecTimeOptionQueuedTime, BeginTime: types.NewTime(now.Add(-failureLasts))},
	})
}

// clones gives the tasks of our user that clone something, in any order.
func (r *Runtime) clones(ctx context.Context, filter types.TaskFilterSpec) (clones attempts, err error) {
	err = r.server.call(ctx, func(c *vim25.Client) error {
		clones = nil
		history, err := task.NewManager(c).CreateCollectorForTasks(ctx, filter)
		if err != nil {
			return err
		}
		defer func() { _ = history.Destroy(context.WithoutCancel(ctx)) }()
		if err := history.SetPageSize(ctx, historyPage); err != nil {
			return err
		}
		page, err := history.LatestPage(ctx)
		for i := 0; err == nil && len(page) > 0 && i < historyPages; i++ {
			for _, info := range page {
				if verb(info) == "clone" && byUser(info, r.server.user()) {
					clones = append(clones, info)
				}
			}
			if len(page) < historyPage {
				break
			}
			page, err = history.ReadPreviousTasks(ctx, historyPage) // those before the latest page
		}
		return err
	})
	return clones, err
}

// making leaves out the clones that are for certain of something else. One whose event is not there yet may be the machine's.
func (r *Runtime) making(ctx context.Context, m runtime.Machine, filter types.TaskFilterSpec) (all attempts, err error) {
	clones, err := r.clones(ctx, filter)
	if err != nil || len(clones) == 0 {
		return nil, err
	}
	first := slices.MinFunc(clones, func(a, b types.TaskInfo) int { return a.QueueTime.Compare(b.QueueTime) }).QueueTime
	since := first.Add(-noteLasts)
	names := map[int32]string{} // by chain of events
	err = r.server.call(ctx, func(c *vim25.Client) error {
		events, err := event.NewManager(c).QueryEvents(ctx, types.EventFilterSpec{
			EventTypeId: []string{"VmBeingClonedEvent"},
			Time:        &types.EventFilterSpecByTime{BeginTime: &since},
			MaxCount:    historyPage,
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
		if strings.EqualFold(name, inventoryName(m)) || !known && running(info) {
			all = append(all, info)
		}
	}
	return all, err
}
