package claim

import (
	"slices"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// steps lists the steps of each operation type in order. Everything that depends on the type of an operation follows
// from this table and tasks.
var steps = map[v1alpha1.OperationType][]runtime.TaskKind{
	v1alpha1.OperationStart:   {runtime.TaskPowerOn},
	v1alpha1.OperationStop:    {runtime.TaskPowerOff},
	v1alpha1.OperationRestart: {runtime.TaskPowerOff, runtime.TaskPowerOn},
	v1alpha1.OperationMigrate: {runtime.TaskRelocate},
	v1alpha1.OperationEvict:   {runtime.TaskRelocate},
	v1alpha1.OperationDelete:  {runtime.TaskPowerOff, runtime.TaskDelete},
}

var tasks = map[runtime.TaskKind]struct {
	phase    v1alpha1.VirtualMachinePhase // while the step runs
	leaves   v1alpha1.PowerState          // the power state afterwards, if the step changes it
	withdraw bool                         // the step can be canceled; a guest shutdown request cannot, and a power-off is over too soon
}{
	runtime.TaskPowerOn:  {v1alpha1.VirtualMachineStarting, v1alpha1.PowerRunning, true},
	runtime.TaskPowerOff: {v1alpha1.VirtualMachineStopping, v1alpha1.PowerStopped, false},
	runtime.TaskRelocate: {v1alpha1.VirtualMachineMigrating, "", true},
	runtime.TaskDelete:   {v1alpha1.VirtualMachineTerminating, "", false},
}

// Steps returns the steps of an operation type in order. The caller must not modify the slice.
func Steps(t v1alpha1.OperationType) []runtime.TaskKind { return steps[t] }

// Moves reports whether operations of that type move the machine to another node.
func Moves(t v1alpha1.OperationType) bool { return slices.Contains(steps[t], runtime.TaskRelocate) }

// Leaves returns the power state after an operation of that type, or "" if it does not change the power.
func Leaves(t v1alpha1.OperationType) v1alpha1.PowerState { return tasks[Goal(t)].leaves }

// Effect returns the power state after a step, or "" if it does not change the power.
func Effect(k runtime.TaskKind) v1alpha1.PowerState { return tasks[k].leaves }

// Hides reports whether the final state does not show which steps have run, because a later step leaves another power
// state. The step that was begun last must then be persisted.
func Hides(t v1alpha1.OperationType) bool {
	return slices.ContainsFunc(steps[t], func(k runtime.TaskKind) bool {
		return tasks[k].leaves != "" && Leaves(t) != "" && tasks[k].leaves != Leaves(t)
	})
}

// Withdraws reports whether an operation of that type can have started a task of that kind, and the task can be
// canceled.
func Withdraws(t v1alpha1.OperationType, k runtime.TaskKind) bool {
	return tasks[k].withdraw && slices.Contains(steps[t], k)
}

// Goal returns the last step of an operation type.
func Goal(t v1alpha1.OperationType) runtime.TaskKind {
	if n := len(steps[t]); n > 0 {
		return steps[t][n-1]
	}
	return runtime.TaskOther // a type that this release does not support
}

// phaseDuring returns the phase of a machine during an operation of that type: that of the first step whose effect is
// not observed yet.
func phaseDuring(t v1alpha1.OperationType, seen *runtime.Observation) v1alpha1.VirtualMachinePhase {
	if Goal(t) == runtime.TaskDelete { // during all of its steps
		return tasks[runtime.TaskDelete].phase
	}
	for _, k := range steps[t] {
		if k == Goal(t) || seen == nil || seen.Power != tasks[k].leaves {
			return tasks[k].phase
		}
	}
	return v1alpha1.VirtualMachinePending
}
