package operation

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

const cannotMove = "the runtime of the machine cannot move machines"

// stepOf is what the operation does now.
func stepOf(o *v1alpha1.VirtualMachineOperation) runtime.TaskKind {
	all := claim.Steps(o.Spec.Type)
	if len(all) == 0 {
		return runtime.TaskOther // of a type that this release does not know
	}
	return all[max(slices.Index(all, runtime.TaskKind(o.Status.Step)), 0)]
}

// nextOf is the step after that, if there is one.
func nextOf(o *v1alpha1.VirtualMachineOperation) (after v1alpha1.OperationStep, more bool) {
	all := claim.Steps(o.Spec.Type)
	i := slices.Index(all, stepOf(o)) + 1
	if i >= len(all) {
		return "", false
	}
	return v1alpha1.OperationStep(all[i]), true
}

// reached tells whether the machine is as the operation wants it. Nothing is in flight, and the baseline is written.
func reached(o *v1alpha1.VirtualMachineOperation, seen runtime.Observation) bool {
	was := o.Status.Baseline
	switch claim.Leaves(o.Spec.Type) {
	case v1alpha1.PowerStopped:
		return !seen.Exists || seen.Power == v1alpha1.PowerStopped
	case v1alpha1.PowerRunning: // of one that was got off before, in another incarnation
		return seen.Power == v1alpha1.PowerRunning && (len(claim.Steps(o.Spec.Type)) == 1 || seen.Incarnation != was.Incarnation)
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
	case claim.Moves(o.Spec.Type) && seen.NodeName != "":
		return "the machine is on node " + seen.NodeName
	case seen.Power == v1alpha1.PowerStopped:
		return "the machine is off"
	case len(claim.Steps(o.Spec.Type)) > 1:
		return "the machine was off, and is on again"
	}
	return "the machine is on"
}

// halfway tells whether the operation has got its machine off and has to go on with another step.
func halfway(o *v1alpha1.VirtualMachineOperation, seen runtime.Observation) bool {
	_, more := nextOf(o)
	return more && seen.Power == v1alpha1.PowerStopped
}

// asksGuest tells whether the operation asks the guest now. That is done once: a guest that was asked has its reasons, and
// whoever does not want to wait for them forces it.
func asksGuest(o *v1alpha1.VirtualMachineOperation) bool {
	return stepOf(o) == runtime.TaskPowerOff && !o.Spec.Force
}

// verb says for people what the runtime is told.
func verb(o *v1alpha1.VirtualMachineOperation) string {
	switch {
	case asksGuest(o):
		return "ask the guest to shut down"
	case stepOf(o) == runtime.TaskPowerOff:
		return "power off"
	case stepOf(o) == runtime.TaskRelocate:
		return "move the machine"
	default:
		return "power on"
	}
}

// sender gives the call that tells the runtime, nil if the runtime cannot be told that.
func sender(o *v1alpha1.VirtualMachineOperation, rt *runtime.Client) func(context.Context, runtime.Machine) error {
	switch {
	case asksGuest(o):
		return func(ctx context.Context, m runtime.Machine) error { return rt.PowerOff(ctx, m, runtime.Graceful) }
	case stepOf(o) == runtime.TaskPowerOff:
		return func(ctx context.Context, m runtime.Machine) error { return rt.PowerOff(ctx, m, runtime.Forced) }
	case stepOf(o) == runtime.TaskPowerOn:
		return rt.PowerOn
	case stepOf(o) != runtime.TaskRelocate, !runtime.Can[runtime.Migrator](rt):
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
