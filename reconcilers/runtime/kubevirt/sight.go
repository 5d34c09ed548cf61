package kubevirt

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/commands"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// others is who begins what this runtime did not announce.
const others = "KubeVirt or another of its clients"

// sight is what exists of a machine.
type sight struct {
	vm *virtv1.VirtualMachine
	// unadopted is whether it has no mark.
	unadopted bool
	// vmi is its instance, nil if there is none.
	vmi *virtv1.VirtualMachineInstance
	// killed is whether the instance is being stopped without its guest being asked.
	killed bool
	// moves are the migrations of the instance that have not ended.
	moves []virtv1.VirtualMachineInstanceMigration
	// ended are those that have.
	ended []virtv1.VirtualMachineInstanceMigration
	// plugs are its VirtualDisks.
	plugs []plug
}

// on reports whether the instance runs, or ran when its node was last heard of.
func (s *sight) on() bool {
	return s.vmi != nil && (s.vmi.Status.Phase == virtv1.Running || s.vmi.Status.Phase == virtv1.Unknown)
}

// noInstance reports whether there is no instance, or one that has ended.
func (s *sight) noInstance() bool { return s.vmi == nil || s.vmi.IsFinal() }

// power returns the power state.
func (s *sight) power() v1alpha1.PowerState {
	switch {
	case !s.on():
		return v1alpha1.PowerStopped
	case s.is(virtv1.VirtualMachineInstancePaused):
		return v1alpha1.PowerPaused
	}
	return v1alpha1.PowerRunning
}

// is reports whether the instance has a condition.
func (s *sight) is(condition virtv1.VirtualMachineInstanceConditionType) bool {
	return slices.ContainsFunc(s.vmi.Status.Conditions, func(c virtv1.VirtualMachineInstanceCondition) bool {
		return c.Type == condition && c.Status == corev1.ConditionTrue
	})
}

// requested reports whether KubeVirt has accepted a request that is not carried out yet.
func (s *sight) requested(action virtv1.StateChangeRequestAction) bool {
	return slices.ContainsFunc(s.vm.Status.StateChangeRequests, func(r virtv1.VirtualMachineStateChangeRequest) bool { return r.Action == action })
}

// leaving reports whether the instance is being stopped. Its guest may still run.
func (s *sight) leaving() bool {
	return s.vmi != nil && (!s.vmi.DeletionTimestamp.IsZero() || s.requested(virtv1.StopRequest))
}

// starting reports whether an instance is about to be created or to run.
func (s *sight) starting() bool {
	return s.requested(virtv1.StartRequest) || s.vmi != nil && !s.on() && !s.vmi.IsFinal() && !s.leaving()
}

// stopping reports whether an instance ends without its guest being asked, or has ended and is being removed. A guest that is asked to
// shut down is not in flight: it may take until the grace period of the instance ends.
func (s *sight) stopping() bool {
	switch {
	case s.requested(virtv1.StartRequest):
		return false
	case s.vmi == nil:
		return s.requested(virtv1.StopRequest)
	}
	grace := s.vmi.Spec.TerminationGracePeriodSeconds
	return s.leaving() && (!s.on() || s.killed || grace != nil && *grace == 0)
}

// tasks returns what is in flight.
func (s *sight) tasks() (all []runtime.Task) {
	switch {
	case !s.vm.DeletionTimestamp.IsZero():
		all = append(all, runtime.Task{ID: "delete-" + string(s.vm.UID), Kind: runtime.TaskDelete, Ours: true})
	case s.starting(), s.stopping() && s.canceled(): // so that Cancel is repeated until nothing is left
		all = append(all, s.sent(runtime.TaskPowerOn))
	case s.stopping():
		all = append(all, s.sent(runtime.TaskPowerOff))
	}
	for i := range s.moves {
		all = append(all, moving(&s.moves[i], s.vm.Labels[LabelMachine]))
	}
	return append(all, s.verbs()...)
}

// busy returns the first task in flight, nil if there is none.
func (s *sight) busy() *runtime.Task {
	if all := s.tasks(); len(all) > 0 {
		return &all[0]
	}
	return nil
}

// yields reports whether nothing is in flight that a forced power-off has to wait for.
func (s *sight) yields() bool { return runtime.Observation{InFlight: s.tasks()}.Yields() }

// conflict returns the error of a call that conflicts with the task in flight.
func (s *sight) conflict() error {
	return runtime.NewInvalidState(nil, "KubeVirt VirtualMachine %s: %s", s.vm.Name, s.busy().Doing())
}

// sent returns a change of power in flight. It is ours if this runtime announced it last, and not for another instance.
func (s *sight) sent(kind runtime.TaskKind) runtime.Task {
	if last := announcedOf(s.vm); last.kind == kind && (last.ends == s.instance() || last.ends == "" && kind == runtime.TaskPowerOn) {
		return runtime.Task{ID: last.id, Kind: kind, Ours: true}
	}
	starts := kind == runtime.TaskPowerOn // KubeVirt ends an instance that is being started
	return runtime.Task{ID: strings.ToLower(string(kind)) + "-" + string(s.vm.UID), Kind: kind, By: others, Yields: starts}
}

// canceled reports whether Cancel ends the instance.
func (s *sight) canceled() bool {
	last := announcedOf(s.vm)
	return last.kind == runtime.TaskPowerOn && last.ends != "" && last.ends == s.instance()
}

// instance returns the UID of the instance, or of the one that has ended and that KubeVirt is still requested to stop.
func (s *sight) instance() types.UID {
	if s.vmi != nil {
		return s.vmi.UID
	}
	for _, r := range s.vm.Status.StateChangeRequests {
		if r.UID != nil {
			return *r.UID
		}
	}
	return ""
}

// unusable returns why Sallyport cannot change the power of the machine, and what to do.
func (s *sight) unusable() string {
	now, err := s.vm.RunStrategy()
	if err != nil || now == virtv1.RunStrategyManual || s.unadopted {
		return ""
	}
	return "another client has set the run strategy of KubeVirt VirtualMachine " + s.vm.Name + " to " + string(now) + "; Sallyport needs Manual: " +
		commands.Line("kubectl", "patch", "virtualmachines.kubevirt.io", s.vm.Name, "-n", s.vm.Namespace, "--type=merge", "-p", manual)
}

// broken returns why KubeVirt would not carry out a request to start the machine: a migration of its volumes has failed.
func (s *sight) broken() string {
	for _, c := range s.vm.Status.Conditions {
		if c.Type == virtv1.VirtualMachineManualRecoveryRequired && c.Status == corev1.ConditionTrue {
			return cmp.Or(c.Message, c.Reason)
		}
	}
	return ""
}

// manual is a patch with the run strategy of machines.
const manual = `{"spec":{"running":null,"runStrategy":"Manual"}}`

// observation returns the observation of an existing machine.
func (s *sight) observation(m runtime.Machine) runtime.Observation {
	seen := runtime.Observation{
		Exists: true, InstanceID: s.vm.Name, Power: s.power(), Adopted: adopted(s.vm, m), InFlight: s.tasks(), LastFailure: s.failure(), Unusable: s.unusable(),
		Disks: s.attached(), Plugging: s.plugging(),
	}
	if seen.Adopted {
		seen.Former = former(s.vm, m)
		seen.MeantOn = s.meantOn(seen.Former)
	} else {
		seen.Differences = differences(s.vm, m)
	}
	if s.vmi != nil {
		seen.Incarnation = string(s.vmi.UID)
		if !s.vmi.IsFinal() {
			seen.NodeName = s.vmi.Status.NodeName
		}
	}
	if seen.Power == v1alpha1.PowerRunning {
		seen.Guest = s.guest()
	}
	return seen
}

// failure returns the message of what KubeVirt could not do last.
func (s *sight) failure() string {
	for _, c := range s.vm.Status.Conditions {
		if c.Type == virtv1.VirtualMachineFailure && c.Status == corev1.ConditionTrue {
			return c.Message
		}
	}
	if s.vmi == nil {
		return ""
	}
	for _, c := range s.vmi.Status.Conditions {
		failed := c.Type == virtv1.VirtualMachineInstanceSynchronized || string(c.Type) == string(corev1.PodScheduled)
		if failed && c.Status == corev1.ConditionFalse {
			return c.Message
		}
	}
	if move := s.vmi.Status.MigrationState; move != nil && move.Failed {
		return move.FailureReason
	}
	return ""
}

// guest returns what the guest agent and the network report. KubeVirt does not say whether a missing agent was there before.
func (s *sight) guest() (g runtime.Guest) {
	for _, i := range s.vmi.Status.Interfaces {
		for _, ip := range i.IPs {
			g.Add(ip)
		}
	}
	if s.is(virtv1.VirtualMachineInstanceAgentConnected) {
		g.Tools = v1alpha1.ToolsRunning
	}
	return g
}

// differences returns the differences in size between the KubeVirt VirtualMachine and the spec. Fields that the spec does not set are ignored.
func differences(vm *virtv1.VirtualMachine, m runtime.Machine) (all []runtime.Difference) {
	domain := &vm.Spec.Template.Spec.Domain
	if wanted := m.Spec.CPU; wanted != nil {
		is := uint32(0)
		if domain.CPU != nil {
			is = domain.CPU.Sockets * max(domain.CPU.Cores, 1) * max(domain.CPU.Threads, 1)
		}
		if is != uint32(*wanted) {
			all = append(all, runtime.Difference{Field: "spec.cpu", Is: strconv.Itoa(int(is)), Wanted: strconv.Itoa(int(*wanted))})
		}
	}
	if wanted := memoryOf(m); wanted != nil {
		is := "the default of KubeVirt"
		if domain.Memory != nil && domain.Memory.Guest != nil {
			if domain.Memory.Guest.Cmp(*wanted) == 0 {
				return all
			}
			is = domain.Memory.Guest.String()
		}
		all = append(all, runtime.Difference{Field: "spec.memory", Is: is, Wanted: wanted.String()})
	}
	return all
}
