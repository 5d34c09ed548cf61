package pod

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"sallyport.dev/sallyport/api/agent"
	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// sight is the observed Pod of a machine.
type sight struct {
	pod    *corev1.Pod
	asked  agent.Order
	report agent.Report
	disks  []v1alpha1.AttachedDisk
}

// see parses a Pod. An invalid annotation is an error that names it: its tasks in flight are unknown.
func see(pod *corev1.Pod, m runtime.Machine) (*sight, error) {
	asked, err := agent.OrderOf(pod.Annotations)
	if err != nil {
		return nil, runtime.NewInvalidState(nil, "Pod %s: %s", pod.Name, err)
	}
	report, err := agent.ReportOf(pod.Annotations)
	if err != nil {
		return nil, runtime.NewInvalidState(nil, "Pod %s: %s", pod.Name, err)
	}
	return &sight{pod: pod, asked: asked, report: report, disks: disksOf(pod, m)}, nil
}

func (s *sight) ended() bool {
	return s.pod.Status.Phase == corev1.PodFailed || s.pod.Status.Phase == corev1.PodSucceeded
}

func (s *sight) made() bool {
	if s.pod.Spec.NodeName == "" || s.ended() {
		return false
	}
	return s.report.State != "" && s.report.State != agent.Creating && s.report.State != agent.Failed
}

// pending reports whether the agent has not confirmed the last request yet.
func (s *sight) pending() bool { return s.report.ObservedRound < s.asked.Round }

// round returns the number of the last round. An agent that confirms a round which was never requested does no harm.
func (s *sight) round() int64 { return max(s.asked.Round, s.report.ObservedRound) }

func (s *sight) power() v1alpha1.PowerState {
	switch s.report.State {
	case agent.Running:
		return v1alpha1.PowerRunning
	case agent.Paused, agent.Hibernated:
		return v1alpha1.PowerPaused
	}
	return v1alpha1.PowerStopped
}

// doing are the tasks in flight until the agent confirms the round. A guest shutdown request is not one.
var doing = map[agent.Request]runtime.TaskKind{
	agent.PowerOn:   runtime.TaskPowerOn,
	agent.PowerOff:  runtime.TaskPowerOff,
	agent.Withdraw:  runtime.TaskPowerOn,
	agent.Hibernate: runtime.TaskRelocate,
	agent.Wake:      runtime.TaskOther, // cannot be canceled
}

// deleting and creating are tasks that are not requests of an order.
const (
	deleting agent.Request = "Delete"
	creating agent.Request = "Create"
)

// busy returns the task in flight, or nothing. An unscheduled Pod is not a task.
func (s *sight) busy() (agent.Request, runtime.Task) {
	kind, tasks := doing[s.asked.Request]
	switch {
	case !s.pod.DeletionTimestamp.IsZero():
		return deleting, runtime.Task{ID: "delete-" + string(s.pod.UID), Kind: runtime.TaskDelete, Ours: true}
	case s.pod.Spec.NodeName == "", s.ended(), s.report.State == agent.Failed:
		return "", runtime.Task{}
	case !s.made():
		return creating, runtime.Task{ID: "create-" + string(s.pod.UID), Kind: runtime.TaskCreate, Ours: true}
	case !tasks || !s.pending():
		return "", runtime.Task{}
	}
	return s.asked.Request, runtime.Task{ID: strconv.FormatInt(s.asked.Round, 10), Kind: kind, Ours: true}
}

// conflict returns the error of a call that conflicts with the task in flight.
func (s *sight) conflict(task runtime.Task) error {
	return runtime.NewInvalidState(nil, "Pod %s: %s", s.pod.Name, task.Doing())
}

// why returns the failure reported by the Pod or the agent.
func (s *sight) why() string {
	for _, text := range []string{s.report.Message, s.pod.Status.Message, s.pod.Status.Reason} {
		if text != "" {
			return ": " + text
		}
	}
	return ""
}

// unscheduled returns the error of an unscheduled Pod, if the scheduler has reported a reason.
func (s *sight) unscheduled() error {
	if why := s.scheduler(); why != "" {
		return runtime.NewInvalidState(nil, "no node takes Pod %s: %s", s.pod.Name, why)
	}
	return nil
}

// scheduler returns the scheduler's message about an unscheduled Pod.
func (s *sight) scheduler() string {
	for _, c := range s.pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Message
		}
	}
	return ""
}

func (s *sight) observation(m runtime.Machine) (seen runtime.Observation) {
	busy, task := s.busy()
	if busy != "" {
		seen.InFlight = []runtime.Task{task}
	}
	if !s.pending() && busy == "" {
		seen.LastFailure = s.report.Message
	}
	seen.Disks = s.disks
	if !s.made() {
		return seen
	}
	seen.Exists, seen.InstanceID, seen.NodeName = true, s.pod.Name, s.pod.Spec.NodeName
	seen.Power, seen.Incarnation = s.power(), s.report.InstanceID
	seen.Differences = s.differences(m)
	if seen.Power == v1alpha1.PowerRunning {
		seen.Guest = s.guest()
	}
	return seen
}

func (s *sight) guest() (g runtime.Guest) {
	for _, ip := range s.pod.Status.PodIPs {
		g.Add(ip.IP)
	}
	switch s.report.Tools {
	case agent.ToolsRunning:
		g.Tools = v1alpha1.ToolsRunning
	case agent.ToolsNotRunning:
		g.Tools = v1alpha1.ToolsNotRunning
	}
	return g
}

// differences returns the differences in size between the Pod and the spec. Fields that the spec does not set are
// ignored.
func (s *sight) differences(m runtime.Machine) (all []runtime.Difference) {
	has := machineIn(s.pod).Resources.Requests
	for _, of := range []struct {
		name  corev1.ResourceName
		field string
	}{{corev1.ResourceCPU, "spec.cpu"}, {corev1.ResourceMemory, "spec.memory"}} {
		want, is := requests(m)[of.name]
		if now := has[of.name]; is && want.Cmp(now) != 0 {
			all = append(all, runtime.Difference{Field: of.field, Is: shown(now), Wanted: shown(want)})
		}
	}
	return all
}

func shown(q resource.Quantity) string {
	if q.IsZero() || q.Equal(noSize) {
		return "the default of its node"
	}
	return q.String()
}
