package vsphere

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/vmware/govmomi/task"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// kinds gives what a task does, by what vCenter calls it after the dot of its descriptionId. The LROs are what DRS makes
// of a power-on and of a move. A clone of the machine does not make the machine, so it is none of these.
var kinds = map[string]runtime.TaskKind{
	"powerOn":                  runtime.TaskPowerOn,
	"ExecuteVmPowerOnLRO":      runtime.TaskPowerOn,
	"powerOff":                 runtime.TaskPowerOff,
	"relocate":                 runtime.TaskRelocate,
	"migrate":                  runtime.TaskRelocate,
	"ExecuteVMotionLRO":        runtime.TaskRelocate,
	"ExecuteStorageVmotionLro": runtime.TaskRelocate,
	"destroy":                  runtime.TaskDelete,
	"unregister":               runtime.TaskDelete,
}

// verb gives what vCenter calls what the task does.
func verb(info types.TaskInfo) string {
	return info.DescriptionId[strings.LastIndex(info.DescriptionId, ".")+1:]
}

func kindOf(info types.TaskInfo) runtime.TaskKind {
	if kind, ok := kinds[verb(info)]; ok {
		return kind
	}
	if reconfigures(info) {
		return runtime.TaskReconfigure
	}
	return runtime.TaskOther
}

// reconfigures reports whether the task is a change of the configuration, which is over in a moment.
func reconfigures(info types.TaskInfo) bool { return strings.HasPrefix(verb(info), "reconfig") }

func running(info types.TaskInfo) bool {
	return info.State == types.TaskInfoStateQueued || info.State == types.TaskInfoStateRunning
}

// failure gives the error of a task that has failed.
func failure(info types.TaskInfo) error {
	if info.Error == nil || info.Error.Fault == nil {
		return errors.New("the task has failed")
	}
	return task.Error{LocalizedMethodFault: info.Error}
}

// inFlight gives what is in flight, but for requests to the guest: they are a task for as long as it takes to hand them
// on, and what the guest does is no task at all.
func (s *sighting) inFlight() []types.TaskInfo {
	var all []types.TaskInfo
	for _, info := range s.tasks {
		if running(info) && verb(info) != "shutdownGuest" {
			all = append(all, info)
		}
	}
	return all
}

// ours reports whether the task is for certain one that we began: one that a note in the machine's extraConfig announced, and
// that vCenter queued for our user soon after. What DRS, a schedule, an alarm or another user began is nobody's to withdraw
// but theirs. A task without a note, such as the resuming of a paused machine, or one of another client of our account, cannot
// be told apart and is none of ours.
func (s *sighting) ours(info types.TaskInfo) bool {
	if !byUser(info, s.user) {
		return false
	}
	switch kindOf(info) {
	case runtime.TaskPowerOn:
		return announced(parsePowerOns(s.keys[PowerOnsKey]).at, info)
	case runtime.TaskRelocate:
		return announced(parseMove(s.keys[MoveKey]).at, info)
	}
	return false
}

// byUser reports whether the task was begun under that account.
func byUser(info types.TaskInfo, user string) bool {
	reason, is := info.Reason.(*types.TaskReasonUser)
	return is && user != "" && strings.EqualFold(reason.UserName, user)
}

// percent is how much of a task is done, and nil if vCenter does not say.
func percent(info types.TaskInfo) *int32 {
	if info.Progress == 0 {
		return nil
	}
	return &info.Progress
}

// maxBy is how much of a name that vCenter gives goes into a message.
const maxBy = 128

// by says who began a task, if that is for certain somebody else.
func (s *sighting) by(info types.TaskInfo) string {
	name := func(what, name string) string {
		if len(name) > maxBy {
			name = strings.ToValidUTF8(name[:maxBy], "")
		}
		return what + strconv.Quote(name)
	}
	switch reason := info.Reason.(type) {
	case *types.TaskReasonUser:
		if strings.EqualFold(reason.UserName, s.user) {
			return ""
		}
		return name("user ", reason.UserName)
	case *types.TaskReasonSchedule:
		return name("scheduled task ", reason.Name)
	case *types.TaskReasonAlarm:
		return name("alarm ", reason.AlarmName)
	case *types.TaskReasonSystem:
		return "vCenter itself"
	}
	return ""
}

// has reports whether a task of that kind is in flight.
func (s *sighting) has(kind runtime.TaskKind) bool {
	return slices.ContainsFunc(s.inFlight(), func(info types.TaskInfo) bool { return kindOf(info) == kind })
}

// busy is for a call that begins a task of that kind: it reports whether one is in flight that it joins, and gives the
// error for anything else that is.
func (s *sighting) busy(kind runtime.TaskKind) (joined bool, err error) {
	for _, info := range s.inFlight() {
		if kindOf(info) != kind {
			return false, runtime.NewInvalidState(nil, "a task of kind %s is in flight for the machine", kindOf(info))
		}
		joined = true
	}
	return joined, nil
}

// lastFailure gives what vCenter says of the last task that has ended, if it has failed.
func (s *sighting) lastFailure() string {
	var last *types.TaskInfo
	for i, info := range s.tasks {
		if !running(info) && info.CompleteTime != nil && (last == nil || info.CompleteTime.After(*last.CompleteTime)) {
			last = &s.tasks[i]
		}
	}
	if last == nil || last.State != types.TaskInfoStateError {
		return ""
	}
	return failure(*last).Error()
}
