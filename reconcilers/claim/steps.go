package claim

import (
	"slices"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// steps is what an operation of each type does to a machine, one step after the other. All that depends on the type of an operation
// follows from this and from tasks.
var steps = map[v1alpha1.OperationType][]runtime.TaskKind{
	v1alpha1.OperationStart:   {runtime.TaskPowerOn},
	v1alpha1.OperationStop:    {runtime.TaskPowerOff},
	v1alpha1.OperationRestart: {runtime.TaskPowerOff, runtime.TaskPowerOn},
	v1alpha1.OperationMigrate: {runtime.TaskRelocate},
	v1alpha1.OperationEvict:   {runtime.TaskRelocate},
	v1alpha1.OperationDelete:  {runtime.TaskPowerOff, runtime.TaskDelete},
}

// tasks is what each kind of step means for the machine.
var tasks = map[runtime.TaskKind]struct {
	phase    v1alpha1.VirtualMachinePhase // while it is done
	leaves   v1alpha1.PowerState          // afterwards, if it is about power
	withdraw bool                         // it can be taken back: a guest that was asked to shut down cannot be asked not to, and power that is being taken away is soon gone
}{
	runtime.TaskPowerOn:  {v1alpha1.VirtualMachineStarting, v1alpha1.PowerRunning, true},
	runtime.TaskPowerOff: {v1alpha1.VirtualMachineStopping, v1alpha1.PowerStopped, false},
	runtime.TaskRelocate: {v1alpha1.VirtualMachineMigrating, "", true},
	runtime.TaskDelete:   {v1alpha1.VirtualMachineTerminating, "", false},
}

// Steps is what an operation of that type does, one step after the other, as the runtime is seen to do it. It is not to be changed.
func Steps(t v1alpha1.OperationType) []runtime.TaskKind { return steps[t] }

// Moves reports whether an operation of that type is about the node of its machine.
func Moves(t v1alpha1.OperationType) bool { return slices.Contains(steps[t], runtime.TaskRelocate) }

// Leaves is the power state that an operation of that type leaves the machine in, empty if it is not about power.
func Leaves(t v1alpha1.OperationType) v1alpha1.PowerState { return tasks[Goal(t)].leaves }

// Effect is the power state that a step leaves the machine in, empty if it is not about power.
func Effect(k runtime.TaskKind) v1alpha1.PowerState { return tasks[k].leaves }

// Hides reports whether the steps of an operation of that type do not show in the end, so that the one that was begun last has to be
// written down: a later one leaves another power state.
func Hides(t v1alpha1.OperationType) bool {
	return slices.ContainsFunc(steps[t], func(k runtime.TaskKind) bool {
		return tasks[k].leaves != "" && Leaves(t) != "" && tasks[k].leaves != Leaves(t)
	})
}

// Withdraws reports whether a task of that kind can be one that an operation of that type began and that it can take back.
func Withdraws(t v1alpha1.OperationType, k runtime.TaskKind) bool {
	return tasks[k].withdraw && slices.Contains(steps[t], k)
}

// Goal is the step with which an operation of that type reaches what it is for.
func Goal(t v1alpha1.OperationType) runtime.TaskKind {
	if n := len(steps[t]); n > 0 {
		return steps[t][n-1]
	}
	return runtime.TaskOther // of a type that this release does not know
}

// doing is the phase of a machine to which an operation of that type is being done: that of the first step of which the effect is not
// seen.
func doing(t v1alpha1.OperationType, seen *runtime.Observation) v1alpha1.VirtualMachinePhase {
	if Goal(t) == runtime.TaskDelete { // from the first step on
		return tasks[runtime.TaskDelete].phase
	}
	for _, k := range steps[t] {
		if k == Goal(t) || seen == nil || seen.Power != tasks[k].leaves {
			return tasks[k].phase
		}
	}
	return v1alpha1.VirtualMachinePending
}
