package operation

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

const cannotMove = "the runtime of the machine cannot move machines"

// reached tells whether the machine is as the operation wants it. Nothing is in flight, and the baseline is written.
func reached(o *v1alpha1.VirtualMachineOperation, seen runtime.Observation) bool {
	was := o.Status.Baseline
	switch o.Spec.Type {
	case v1alpha1.OperationStart:
		return seen.Power == v1alpha1.PowerRunning
	case v1alpha1.OperationStop:
		return !seen.Exists || seen.Power == v1alpha1.PowerStopped
	case v1alpha1.OperationRestart:
		return seen.Power == v1alpha1.PowerRunning && seen.Incarnation != was.Incarnation
	}
	if target := o.Spec.Migrate; target != nil && target.NodeName != "" {
		return seen.NodeName == target.NodeName
	}
	return was.NodeName == "" || (seen.NodeName != "" && seen.NodeName != was.NodeName)
}

// achieved says for people what the machine was seen to be like at the end.
func achieved(o *v1alpha1.VirtualMachineOperation, seen runtime.Observation) string {
	switch {
	case !seen.Exists:
		return "there is no machine that could be on"
	case moves(o) && seen.NodeName != "":
		return "the machine is on node " + seen.NodeName
	case seen.Power == v1alpha1.PowerStopped:
		return "the machine is off"
	case o.Spec.Type == v1alpha1.OperationRestart:
		return "the machine was off, and is on again"
	}
	return "the machine is on"
}

// halfway tells whether a Restart has seen its machine off and has to go on with its second half.
func halfway(o *v1alpha1.VirtualMachineOperation, seen runtime.Observation) bool {
	return o.Status.Step == v1alpha1.StepPowerOff && seen.Power == v1alpha1.PowerStopped
}

// powersOff tells whether the operation gets the machine off now.
func powersOff(o *v1alpha1.VirtualMachineOperation) bool {
	return o.Spec.Type == v1alpha1.OperationStop ||
		(o.Spec.Type == v1alpha1.OperationRestart && o.Status.Step == v1alpha1.StepPowerOff)
}

// moves tells whether the operation is about the node of its machine.
func moves(o *v1alpha1.VirtualMachineOperation) bool {
	return o.Spec.Type == v1alpha1.OperationMigrate || o.Spec.Type == v1alpha1.OperationEvict
}

// asksGuest tells whether the operation asks the guest now. That is done once: a guest that was asked has its reasons, and
// whoever does not want to wait for them forces it.
func asksGuest(o *v1alpha1.VirtualMachineOperation) bool { return powersOff(o) && !o.Spec.Force }

// verb says for people what the runtime is told.
func verb(o *v1alpha1.VirtualMachineOperation) string {
	switch {
	case asksGuest(o):
		return "ask the guest to shut down"
	case powersOff(o):
		return "power off"
	case moves(o):
		return "move the machine"
	default:
		return "power on"
	}
}

// sender gives the call that tells the runtime, nil if the runtime cannot be told that.
func sender(o *v1alpha1.VirtualMachineOperation, rt *runtime.Client) func(context.Context, runtime.Machine) error {
	switch {
	case powersOff(o):
		mode := runtime.Graceful
		if o.Spec.Force {
			mode = runtime.Forced
		}
		return func(ctx context.Context, m runtime.Machine) error { return rt.PowerOff(ctx, m, mode) }
	case o.Spec.Type == v1alpha1.OperationStart, o.Spec.Type == v1alpha1.OperationRestart:
		return rt.PowerOn
	}
	if !runtime.Can[runtime.Migrator](rt) {
		return nil
	}
	target := runtime.Target{Leave: o.Status.Baseline.NodeName, Force: o.Spec.Force}
	if to := o.Spec.Migrate; to != nil {
		target.NodeName, target.NodeSelector = to.NodeName, to.NodeSelector
	}
	return func(ctx context.Context, m runtime.Machine) error {
		return runtime.Use(ctx, rt, runtime.VerbMigrate, m, func(ctx context.Context, able runtime.Migrator) error {
			return able.Migrate(ctx, m, target)
		})
	}
}

// hopeless tells whether the holder has found that it can never reach its goal. Its condition says so, which releaseHolder
// then acts on, so that the message survives a crash.
func (l *look) hopeless(o *v1alpha1.VirtualMachineOperation) bool {
	c := meta.FindStatusCondition(o.Status.Conditions, string(v1alpha1.ConditionSignalSent))
	return c != nil && c.Reason == string(v1alpha1.ReasonRuntimeFailed)
}

// failedBefore tells whether the runtime has been told before and what came of it failed. That is shown until something else
// is known, or each attempt would write, and each write bring the next attempt.
func failedBefore(o *v1alpha1.VirtualMachineOperation) bool {
	c := meta.FindStatusCondition(o.Status.Conditions, string(v1alpha1.ConditionCompleted))
	return c != nil && c.Reason == string(v1alpha1.ReasonAttemptFailed) &&
		meta.IsStatusConditionTrue(o.Status.Conditions, string(v1alpha1.ConditionSignalSent))
}
