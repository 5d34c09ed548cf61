package virtualmachine

import (
	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/drive"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// byAdoption is who has set the power intent of a machine that was found in that state.
const byAdoption = "Adoption"

// adopt takes the state in which a machine was found for what is wanted of it, until somebody wants something else: of one that was
// adopted, or taken over, which has been on before, as one that was just made has not.
func (l *look) adopt() {
	found := l.seen.Adopted || runtime.EarlierOf(l.VM) == runtime.TakeOver && l.seen.Incarnation != ""
	if !l.seen.Exists || !found || l.VM.Status.PowerIntent != nil || l.VM.Status.ActiveOperation != nil {
		return
	}
	state := v1alpha1.PowerStopped
	if l.seen.Power != v1alpha1.PowerStopped {
		state = v1alpha1.PowerRunning
	}
	l.VM.Status.PowerIntent = &v1alpha1.PowerIntent{State: state, By: byAdoption, At: l.micro()}
}

// runPolicy is the source that keeps machines on or off.
type runPolicy struct{}

// Origin is that of its claims.
func (runPolicy) Origin() v1alpha1.ClaimOrigin { return v1alpha1.OriginRunPolicy }

// Wants is the power state that the run policy keeps. A machine that somebody has paused is not off: only AlwaysOn resumes it, unless it
// was hibernated for a move. A guest that is asked to shut down has no longer than the machine's grace period.
func (runPolicy) Wants(vm *v1alpha1.VirtualMachine, seen *runtime.Observation) *drive.Intent {
	switch wanted(vm) {
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

// hibernated reports whether a machine is paused because it was hibernated, which a power-on does not end.
func hibernated(seen *runtime.Observation) bool {
	return seen.Hibernation != nil && seen.Hibernation.Instance == runtime.InstanceAsleep
}

// wanted is the power state that the run policy of a machine keeps, and nothing if it leaves the machine as it is.
func wanted(vm *v1alpha1.VirtualMachine) v1alpha1.PowerState {
	switch vm.Spec.RunPolicy {
	case v1alpha1.RunPolicyAlwaysOn:
		return v1alpha1.PowerRunning
	case v1alpha1.RunPolicyAlwaysOff:
		return v1alpha1.PowerStopped
	case v1alpha1.RunPolicyManual:
		return ""
	}
	if intent := vm.Status.PowerIntent; intent != nil && intent.State == v1alpha1.PowerStopped && intent.By != string(v1alpha1.OriginRunPolicy) {
		return "" // somebody stopped it; the run policy itself did when it was AlwaysOff
	}
	return v1alpha1.PowerRunning
}
