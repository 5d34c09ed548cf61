package session

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/task"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// Verb returns vCenter's name of what the task does.
func Verb(info types.TaskInfo) string {
	return info.DescriptionId[strings.LastIndex(info.DescriptionId, ".")+1:]
}

// Running reports whether a task has not ended.
func Running(info types.TaskInfo) bool {
	return info.State == types.TaskInfoStateQueued || info.State == types.TaskInfoStateRunning
}

// Failure returns the error of a task that has failed.
func Failure(info types.TaskInfo) error {
	if info.Error == nil || info.Error.Fault == nil {
		return errors.New("the task has failed")
	}
	return task.Error{LocalizedMethodFault: info.Error}
}

// ByUser reports whether the task was started under that account.
func ByUser(info types.TaskInfo, user string) bool {
	reason, is := info.Reason.(*types.TaskReasonUser)
	return is && user != "" && strings.EqualFold(reason.UserName, user)
}

// RecentTasks reads properties of the tasks that vCenter keeps for some minutes, and calls each with every one.
func (s *Server) RecentTasks(ctx context.Context, each func(mo.Task), properties ...string) error {
	var manager types.ManagedObjectReference
	err := s.Call(ctx, func(c *vim25.Client) error {
		manager = *c.ServiceContent.TaskManager
		return nil
	})
	if err != nil {
		return err
	}
	return s.Retrieve(ctx, types.PropertyFilterSpec{
		ObjectSet: []types.ObjectSpec{{Obj: manager, Skip: new(true), SelectSet: []types.BaseSelectionSpec{
			&types.TraversalSpec{Type: "TaskManager", Path: "recentTask"},
		}}},
		PropSet: []types.PropertySpec{{Type: "Task", PathSet: properties}},
	}, Only(each))
}

// Now returns the time of vCenter's clock.
func (s *Server) Now(ctx context.Context) (now time.Time, err error) {
	err = s.Call(ctx, func(c *vim25.Client) error {
		at, err := methods.GetCurrentTime(ctx, c)
		if err == nil {
			now = *at
		}
		return err
	})
	return now, err
}

// Reconfigure changes the configuration of a machine that is unchanged since it was read, and waits for completion.
func (s *Server) Reconfigure(ctx context.Context, vm *mo.VirtualMachine, spec types.VirtualMachineConfigSpec) error {
	spec.ChangeVersion = vm.Config.ChangeVersion
	_, err := s.CarryOut(ctx, func(c *vim25.Client) (*object.Task, error) {
		return object.NewVirtualMachine(c, vm.Self).Reconfigure(ctx, spec)
	})
	return err
}

// CarryOut starts a task and waits until it has ended.
func (s *Server) CarryOut(ctx context.Context, begin func(*vim25.Client) (*object.Task, error)) (ended types.TaskInfo, err error) {
	var ref types.ManagedObjectReference
	err = s.Call(ctx, func(c *vim25.Client) error {
		begun, err := begin(c)
		if err == nil {
			ref = begun.Reference()
		}
		return err
	})
	for waits := Briefly(); err == nil; err = Pause(ctx, waits) {
		var t mo.Task
		err = s.Call(ctx, func(c *vim25.Client) error {
			return property.DefaultCollector(c).RetrieveOne(ctx, ref, []string{"info"}, &t)
		})
		switch {
		case err != nil:
			// The task has started; its result is unknown.
			return ended, runtime.NewUnavailable(err, "vCenter %s did not report the result of a change", s.Config.Name)
		case t.Info.State == types.TaskInfoStateSuccess:
			return t.Info, nil
		case t.Info.State == types.TaskInfoStateError:
			return ended, s.Translate(ctx, Failure(t.Info))
		}
	}
	return ended, s.Translate(ctx, err)
}
