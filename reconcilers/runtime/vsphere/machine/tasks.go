package machine

import (
	"slices"
	"strconv"
	"strings"

	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/session"
)

// kinds maps the part of a task's descriptionId after the dot to its kind. The LROs are DRS's form of a power-on and
// a move. A clone of the machine does not create the machine, so it is not included.
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

func kindOf(info types.TaskInfo) runtime.TaskKind {
	if kind, ok := kinds[session.Verb(info)]; ok {
		return kind
	}
	if reconfigures(info) {
		return runtime.TaskReconfigure
	}
	return runtime.TaskOther
}

// reconfigures reports whether the task is a reconfiguration, which takes only a moment. Of disks it is a task of its own.
func reconfigures(info types.TaskInfo) bool {
	return strings.HasPrefix(session.Verb(info), "reconfig") || session.Verb(info) == "attachDisk" || session.Verb(info) == "detachDisk"
}

// inFlight returns the tasks in flight without requests to the guest: such a task only delivers the request, and what
// the guest does is not a task.
func (s *sighting) inFlight() []types.TaskInfo {
	var all []types.TaskInfo
	for _, info := range s.tasks {
		if session.Running(info) && session.Verb(info) != "shutdownGuest" {
			all = append(all, info)
		}
	}
	return all
}

// ours reports whether we certainly started the task: a note in the machine's extraConfig announced it, and vCenter
// queued it for our user soon after. Tasks of DRS, a schedule, an alarm or another user must not be canceled. A task
// without a note, such as resuming a paused machine, or one of another client of our account, cannot be distinguished
// and does not count as ours.
func (s *sighting) ours(info types.TaskInfo) bool {
	if !session.ByUser(info, s.user) {
		return false
	}
	switch kindOf(info) {
	case runtime.TaskPowerOn:
		return announced(parsePowerOns(s.extraConfig[PowerOnsKey]).at, info)
	case runtime.TaskRelocate:
		return announced(parseMove(s.extraConfig[MoveKey]).at, info)
	}
	return false
}

// percent returns the progress of a task, nil if vCenter does not report it.
func percent(info types.TaskInfo) *int32 {
	if info.Progress == 0 {
		return nil
	}
	return &info.Progress
}

// by returns who started a task, if that certainly was another client.
func (s *sighting) by(info types.TaskInfo) string {
	name := func(what, name string) string {
		if len(name) > session.MaxBy {
			name = strings.ToValidUTF8(name[:session.MaxBy], "")
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

func (s *sighting) has(kind runtime.TaskKind) bool {
	return slices.ContainsFunc(s.inFlight(), func(info types.TaskInfo) bool { return kindOf(info) == kind })
}

// busy checks whether a task of that kind can start: it reports whether one is in flight that the call joins, and
// returns an error for any other task.
func (s *sighting) busy(kind runtime.TaskKind) (joined bool, err error) {
	for _, info := range s.inFlight() {
		if kindOf(info) != kind {
			return false, runtime.NewInvalidState(nil, "a task of kind %s is in flight for the machine", kindOf(info))
		}
		joined = true
	}
	return joined, nil
}

// lastFailure returns the error of the last ended task, if it failed.
func (s *sighting) lastFailure() string {
	var last *types.TaskInfo
	for i, info := range s.tasks {
		if !session.Running(info) && info.CompleteTime != nil && (last == nil || info.CompleteTime.After(*last.CompleteTime)) {
			last = &s.tasks[i]
		}
	}
	if last == nil || last.State != types.TaskInfoStateError {
		return ""
	}
	return session.Failure(*last).Error()
}
