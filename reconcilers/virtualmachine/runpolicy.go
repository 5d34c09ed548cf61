package virtualmachine

import (
	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/drive"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// byAdoption is the author of a power intent that was derived from the state in which a machine was found.
const byAdoption = "Adoption"

// recordAdoptedPower sets the power intent of an adopted or taken-over machine to the state that it was to have, or in which it was found.
// A taken-over machine counts as found if it was powered on before; one that was just created was not. It was to be on or off as it is:
// the earlier VirtualMachine has seen to that.
func (v *view) recordAdoptedPower() {
	takenOver := runtime.EarlierOf(v.VM) == runtime.TakeOver
	found := v.seen.Adopted || takenOver && v.seen.Incarnation != ""
	if !v.seen.Exists || !found || v.VM.Status.PowerIntent != nil || v.VM.Status.ActiveOperation != nil {
		return
	}
	state := v1alpha1.PowerStopped
	if v.seen.Power != v1alpha1.PowerStopped || v.seen.MeantOn && !takenOver {
		state = v1alpha1.PowerRunning
	}
	v.VM.Status.PowerIntent = &v1alpha1.PowerIntent{State: state, By: byAdoption, At: v.now()}
}

// runPolicy is the source that keeps machines on or off.
type runPolicy struct{}

func (runPolicy) Origin() v1alpha1.ClaimOrigin { return v1alpha1.OriginRunPolicy }

// Wants returns the change to the power state of the run policy. A paused machine is not off: only AlwaysOn resumes
// it, unless it was hibernated for a move. A stop has the machine's grace period.
func (runPolicy) Wants(vm *v1alpha1.VirtualMachine, seen *runtime.Observation) *drive.Intent {
	switch requiredPower(vm) {
	case v1alpha1.PowerStopped:
		grace := vm.Spec.TerminationGracePeriod()
		return &drive.Intent{Type: v1alpha1.OperationStop, Grace: &grace}
	case v1alpha1.PowerRunning:
		if seen.Power != v1alpha1.PowerPaused || vm.Spec.RunPolicy == v1alpha1.RunPolicyAlwaysOn && !hibernated(seen) {
			return &drive.Intent{Type: v1alpha1.OperationStart}
		}
	}
	return nil
}

// hibernated reports whether a machine is paused by hibernation, which a power-on does not end.
func hibernated(seen *runtime.Observation) bool {
	return seen.Hibernation != nil && seen.Hibernation.Instance == runtime.InstanceAsleep
}

// requiredPower returns the power state that the run policy requires, or "" if it leaves the machine alone.
func requiredPower(vm *v1alpha1.VirtualMachine) v1alpha1.PowerState {
	switch vm.Spec.RunPolicy {
	case v1alpha1.RunPolicyAlwaysOn:
		return v1alpha1.PowerRunning
	case v1alpha1.RunPolicyAlwaysOff:
		return v1alpha1.PowerStopped
	case v1alpha1.RunPolicyManual, v1alpha1.RunPolicyObserve:
		return ""
	case "": // policy `defaults` was not evaluated, as during an upgrade, or was edited before it set one
		if vm.Spec.Adopts() {
			return ""
		}
	}
	if intent := vm.Status.PowerIntent; intent != nil && intent.State == v1alpha1.PowerStopped && intent.By != string(v1alpha1.OriginRunPolicy) {
		return "" // stopped by a user; an intent of the run policy stems from AlwaysOff
	}
	return v1alpha1.PowerRunning
}
