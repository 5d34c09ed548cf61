package claim

import (
	"cmp"
	"fmt"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// Record writes what was seen of a machine into its status, phase included. What the runtime does not say stays as it was
// last seen, and so does an instance that is gone: that it was there tells a machine that is lost from one not made yet.
func Record(vm *v1alpha1.VirtualMachine, seen *runtime.Observation, reached bool) {
	status := &vm.Status
	if seen.Exists {
		status.InstanceID = seen.InstanceID
		status.Incarnation = cmp.Or(seen.Incarnation, status.Incarnation)
		status.NodeName = cmp.Or(seen.NodeName, status.NodeName)
	}
	status.Phase = Phase(vm, seen, reached)
}

// Phase sums up a machine: a pure function of its claim and of what was seen of it. Whoever writes the claim or an observation
// writes it in the same update.
//
// A machine is Starting, Stopping or Migrating for as long as somebody holds it who has not reached the goal, or has lost it
// and may still have something in flight. Reached says that the holder, if there is one, is where it wants to be. Seen is nil
// where the runtime was not asked: the claim alone decides then, and the phase stays if it does not.
func Phase(vm *v1alpha1.VirtualMachine, seen *runtime.Observation, reached bool) v1alpha1.VirtualMachinePhase {
	status := &vm.Status
	switch {
	case !vm.DeletionTimestamp.IsZero():
		return v1alpha1.VirtualMachineTerminating
	case status.ActiveOperation != nil && !reached:
		return doing(status.ActiveOperation.Type, seen)
	case len(status.Undoing) > 0 && (seen == nil || !seen.Quiet()):
		return doing(status.Undoing[len(status.Undoing)-1].Type, seen)
	case seen == nil:
		return status.Phase
	}
	return observed(seen, status.InstanceID != "")
}

// InstanceLost says for people that the runtime does not know a machine any more that it once knew, and what helps. It is never
// made again unasked: what was on it would be silently gone.
func InstanceLost(vm *v1alpha1.VirtualMachine) string {
	return fmt.Sprintf("the runtime does not know instance %s any more: bring it back, or delete VirtualMachine %s and create it again",
		vm.Status.InstanceID, vm.Name)
}

func observed(seen *runtime.Observation, wasThere bool) v1alpha1.VirtualMachinePhase {
	switch {
	case !seen.Exists && !seen.Quiet():
		return v1alpha1.VirtualMachineProvisioning
	case !seen.Exists && wasThere:
		return v1alpha1.VirtualMachineFailed
	case !seen.Exists:
		return v1alpha1.VirtualMachinePending
	case seen.Power == v1alpha1.PowerRunning:
		return v1alpha1.VirtualMachineRunning
	case seen.Power == v1alpha1.PowerPaused:
		return v1alpha1.VirtualMachinePaused
	default:
		return v1alpha1.VirtualMachineStopped
	}
}
