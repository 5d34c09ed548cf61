package claim

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// Record writes what was seen of a machine into its status, phase included. What the runtime does not say stays as it was
// last seen, and so does an instance that is gone: that it was there tells a machine that is lost from one not made yet. What
// its guest said does not stay: its addresses may be another's by now.
func Record(vm *v1alpha1.VirtualMachine, seen *runtime.Observation, reached bool) {
	status := &vm.Status
	if seen.Exists {
		status.InstanceID = seen.InstanceID
		status.Template = cmp.Or(status.Template, seen.Template) // as it was made, whatever somebody notes of it later
		status.Incarnation = cmp.Or(seen.Incarnation, status.Incarnation)
		status.NodeName = cmp.Or(seen.NodeName, status.NodeName)
	}
	status.Disks = seen.Disks
	status.Question = seen.Question
	status.Addresses, status.Guest = seen.Guest.Addresses, guest(status.Guest, seen)
	status.Phase = Phase(vm, seen, reached)
}

// MissingDisks are the names of the VirtualDisks that the spec wants and that are not attached, in the order of the spec. A machine is
// not powered on without them: what runs in it would go on without its data.
func MissingDisks(vm *v1alpha1.VirtualMachine, seen *runtime.Observation) (names []string) {
	for _, ref := range vm.BlockDevices() {
		if !slices.ContainsFunc(seen.Disks, func(d v1alpha1.AttachedDisk) bool { return d.Name == ref.Name }) {
			names = append(names, ref.Name)
		}
	}
	return names
}

// Disconnect writes that the runtime has lost the connection to a machine, of which all else stays as it was last seen. One that
// was not on then is what it was.
func Disconnect(vm *v1alpha1.VirtualMachine) {
	if vm.Status.Phase == v1alpha1.VirtualMachineRunning {
		vm.Status.Phase = v1alpha1.VirtualMachineDegraded
	}
}

// guest is what the status shows of a guest.
func guest(before *v1alpha1.GuestStatus, seen *runtime.Observation) *v1alpha1.GuestStatus {
	shown := v1alpha1.GuestStatus{Hostname: seen.Guest.Hostname, ToolsState: seen.Guest.Tools}
	if shown == (v1alpha1.GuestStatus{}) {
		return nil
	}
	if before != nil {
		shown.ToolsSeenIn = before.ToolsSeenIn
	}
	if shown.ToolsState == v1alpha1.ToolsRunning {
		shown.ToolsSeenIn = seen.Incarnation
	}
	return &shown
}

// ToolsGone reports whether the tools of a guest have run since its machine was powered on, and have stopped.
func ToolsGone(status *v1alpha1.VirtualMachineStatus) bool {
	g := status.Guest
	return g != nil && g.ToolsSeenIn != "" && g.ToolsSeenIn == status.Incarnation &&
		(g.ToolsState == v1alpha1.ToolsNotRunning || g.ToolsState == v1alpha1.ToolsNotInstalled)
}

// Phase sums up a machine: a pure function of its claim and of what was seen of it. It is written in the same update as the claim
// or the observation.
//
// A machine is Starting, Stopping or Migrating as long as its holder has not reached the goal, or an earlier holder may still
// have something in flight. Reached says that the holder, if there is one, has reached its goal. Seen is nil if the runtime was
// not called: then the claim alone decides, and the phase stays if the claim does not determine it.
func Phase(vm *v1alpha1.VirtualMachine, seen *runtime.Observation, reached bool) v1alpha1.VirtualMachinePhase {
	status := &vm.Status
	switch {
	case !vm.DeletionTimestamp.IsZero():
		return v1alpha1.VirtualMachineTerminating
	case status.ActiveOperation != nil && !reached:
		return doing(status.ActiveOperation.Type, seen)
	case len(status.Undoing) > 0 && (seen == nil || !seen.Quiet()):
		return doing(status.Undoing[len(status.Undoing)-1].Type, seen)
	case status.Migration.Travels() && (seen == nil || seen.Exists):
		return v1alpha1.VirtualMachineMigrating
	case seen == nil:
		return status.Phase
	}
	return observed(seen, status)
}

// InstanceLost is the message for a machine that the runtime no longer has, with the remedy. Sallyport never creates it again by
// itself: the loss of its data would go unnoticed.
func InstanceLost(vm *v1alpha1.VirtualMachine) string {
	return fmt.Sprintf("the runtime no longer has instance %s: restore it there, or delete and recreate VirtualMachine %s",
		vm.Status.InstanceID, vm.Name)
}

func observed(seen *runtime.Observation, status *v1alpha1.VirtualMachineStatus) v1alpha1.VirtualMachinePhase {
	switch {
	case !seen.Exists && !seen.Quiet():
		return v1alpha1.VirtualMachineProvisioning
	case !seen.Exists && status.InstanceID != "":
		return v1alpha1.VirtualMachineFailed
	case !seen.Exists && meta.IsStatusConditionFalse(status.Conditions, string(v1alpha1.ConditionImageReady)):
		return v1alpha1.VirtualMachineWaitingForImage
	case !seen.Exists:
		return v1alpha1.VirtualMachinePending
	case seen.Power == v1alpha1.PowerRunning && (seen.Question != nil || ToolsGone(status)):
		return v1alpha1.VirtualMachineDegraded
	case seen.Power == v1alpha1.PowerRunning:
		return v1alpha1.VirtualMachineRunning
	case seen.Power == v1alpha1.PowerPaused:
		return v1alpha1.VirtualMachinePaused
	default:
		return v1alpha1.VirtualMachineStopped
	}
}
