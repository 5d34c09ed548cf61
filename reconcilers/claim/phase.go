package claim

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// Record writes an observation into the status of a machine, phase included. Fields that the runtime does not report
// keep their last value, also when the instance is gone: this distinguishes a lost machine from one that was never
// created. Guest data is not kept, because its addresses may belong to another guest by now.
func Record(vm *v1alpha1.VirtualMachine, seen *runtime.Observation, reached bool) {
	status := &vm.Status
	if seen.Exists {
		status.InstanceID, status.ProvisioningSince = seen.InstanceID, nil
		status.Adopted = cmp.Or(seen.Former, status.Adopted)
		status.Template = cmp.Or(status.Template, seen.Template) // the template it was created from; later changes on the runtime do not count
		status.Incarnation = cmp.Or(seen.Incarnation, status.Incarnation)
	}
	if seen.Exists || seen.Unadopted {
		status.NodeName = cmp.Or(seen.NodeName, status.NodeName)
	}
	status.Disks = seen.Disks
	status.Question = seen.Question
	status.Addresses, status.Guest = seen.Guest.Addresses, guest(status.Guest, seen)
	status.Phase = Phase(vm, seen, reached)
}

// MissingDisks returns the names of the VirtualDisks in the spec that are not attached, in the order of the spec. A
// machine is not powered on without them: it would run without its data.
func MissingDisks(vm *v1alpha1.VirtualMachine, seen *runtime.Observation) (names []string) {
	for _, ref := range vm.BlockDevices() {
		if !slices.ContainsFunc(seen.Disks, func(d v1alpha1.AttachedDisk) bool { return d.Name == ref.Name }) {
			names = append(names, ref.Name)
		}
	}
	return names
}

// Disconnect records that the runtime has lost the connection to a machine: a running machine becomes Degraded, all
// else keeps its last observed value.
func Disconnect(vm *v1alpha1.VirtualMachine) {
	if vm.Status.Phase == v1alpha1.VirtualMachineRunning {
		vm.Status.Phase = v1alpha1.VirtualMachineDegraded
	}
}

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

// ToolsGone reports whether the guest tools have run since the machine was powered on, and no longer run.
func ToolsGone(status *v1alpha1.VirtualMachineStatus) bool {
	g := status.Guest
	return g != nil && g.ToolsSeenIn != "" && g.ToolsSeenIn == status.Incarnation &&
		(g.ToolsState == v1alpha1.ToolsNotRunning || g.ToolsState == v1alpha1.ToolsNotInstalled)
}

// Phase sums up a machine: a pure function of its claim and of what was seen of it. It is written in the same update as the claim
// or the observation.
//
// A machine is Starting, Stopping or Migrating while its holder has not reached the goal, or an earlier holder may
// still have something in flight. reached is set if the holder, if any, has reached its goal. seen is nil if the
// runtime was not called: then the claim alone decides, and the phase stays if the claim does not determine it.
func Phase(vm *v1alpha1.VirtualMachine, seen *runtime.Observation, reached bool) v1alpha1.VirtualMachinePhase {
	status := &vm.Status
	switch {
	case !vm.DeletionTimestamp.IsZero():
		return v1alpha1.VirtualMachineTerminating
	case status.ActiveOperation != nil && !reached:
		return phaseDuring(status.ActiveOperation.Type, seen)
	case len(status.Undoing) > 0 && (seen == nil || !seen.Quiet()):
		return phaseDuring(status.Undoing[len(status.Undoing)-1].Type, seen)
	case status.Migration.Travels() && (seen == nil || seen.Exists):
		return v1alpha1.VirtualMachineMigrating
	case seen == nil:
		return status.Phase
	}
	return observed(seen, status)
}

// InstanceLost returns the message for a machine that the runtime no longer has, with the remedy. Sallyport never
// recreates it by itself, because the loss of its data would go unnoticed.
func InstanceLost(vm *v1alpha1.VirtualMachine) string {
	return fmt.Sprintf("the runtime no longer has instance %s: restore it there, or delete and recreate VirtualMachine %s",
		vm.Status.InstanceID, vm.Name)
}

func observed(seen *runtime.Observation, status *v1alpha1.VirtualMachineStatus) v1alpha1.VirtualMachinePhase {
	there := seen.Exists || seen.Unadopted
	switch {
	case !there && !seen.Quiet():
		return v1alpha1.VirtualMachineProvisioning
	case !there && status.InstanceID != "":
		return v1alpha1.VirtualMachineFailed
	case !there && meta.IsStatusConditionFalse(status.Conditions, string(v1alpha1.ConditionImageReady)):
		return v1alpha1.VirtualMachineWaitingForImage
	case !there:
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
