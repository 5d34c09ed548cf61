package virtualmachine

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/commands"
	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// report writes what was observed into the status. Errors are retried.
func (r *Reconciler) report(ctx context.Context, v *view) (bool, error) {
	if v.observed && v.ours() {
		claim.Record(v.VM, &v.seen, false)
	}
	if runtime.IsOwnedByAnother(v.err) && v.ours() {
		claim.Record(v.VM, &runtime.Observation{}, false)
	}
	if runtime.IsDisconnected(v.err) && v.ours() {
		claim.Disconnect(v.VM)
	}
	v.VM.Status.Phase = cmp.Or(v.VM.Status.Phase, v1alpha1.VirtualMachinePending)
	if _, err := r.save(ctx, v); err != nil {
		return false, err
	}
	if v.ours() && v.observed {
		v.Wait(wait.Jitter(r.resync(v), 0.2))
	}
	return false, nil
}

// resync returns the interval at which a ready machine is observed. The caller adds jitter.
func (r *Reconciler) resync(v *view) time.Duration {
	every := cmp.Or(r.Resync, defaultResync)
	if v.seen.Unadopted {
		every = min(every, unadoptedResync)
	}
	if !runtime.Can[runtime.Watcher](v.Runtime()) && len(r.Owned)+len(r.Followed) == 0 {
		every = min(every, blindResync)
	}
	return every
}

// warns reports whether the condition is worth a Warning event.
func warns(ready metav1.Condition) bool {
	switch v1alpha1.ConditionReason(ready.Reason) {
	case v1alpha1.ReasonAsWanted, v1alpha1.ReasonObserved, v1alpha1.ReasonOperationInProgress, v1alpha1.ReasonProvisioning,
		v1alpha1.ReasonMigrationNeeded, v1alpha1.ReasonTerminating, v1alpha1.ReasonTakingOver, v1alpha1.ReasonReadOnly, v1alpha1.ReasonImageImporting:
		return false
	}
	return true
}

func (v *view) ready() metav1.Condition {
	status, reason, message := v.readiness()
	return v1alpha1.ConditionReady.Condition(status, reason, v.VM.Generation, message)
}

func (v *view) readiness() (metav1.ConditionStatus, v1alpha1.ConditionReason, string) {
	no := metav1.ConditionFalse
	lost := v.VM.Status.InstanceID != "" && v.observed && !v.seen.Exists && v.seen.Quiet()
	switch {
	case runtime.IsUnavailable(v.err), runtime.IsTakingOver(v.err):
		return metav1.ConditionUnknown, runtime.Reason(v.err), runtime.Message(v.err)
	case v.seen.Unusable != "":
		return no, v1alpha1.ReasonInstanceUnusable, v.seen.Unusable
	case lost && runtime.IsNotFound(v.err): // as the error says if the machine is to be adopted again
		return no, v1alpha1.ReasonInstanceLost, claim.InstanceLost(v.VM)
	case v.err != nil:
		return no, runtime.Reason(v.err), runtime.Message(v.err)
	case !v.VM.DeletionTimestamp.IsZero():
		return no, v1alpha1.ReasonTerminating, "the VirtualMachine is being deleted" + v.waitSuffix()
	case v.onlyObserves() && !v.seen.Exists:
		return v.observedReadiness()
	case v.VM.Status.Question != nil:
		return no, v1alpha1.ReasonQuestionPending, runtime.Asking(v.VM.Status.Question)
	case v.backingOff:
		return no, v1alpha1.ReasonStartPaused, "start is backing off: the machine stopped or failed soon after its last start" + failureSuffix(v.seen)
	case v.VM.Busy():
		return no, v1alpha1.ReasonOperationInProgress, v.inProgressMessage() + v.waitSuffix() + failureSuffix(v.seen)
	case lost:
		return no, v1alpha1.ReasonInstanceLost, claim.InstanceLost(v.VM)
	case v.imageTrouble != nil:
		return no, v.imageTrouble.reason, v.imageTrouble.message
	case !v.seen.Exists:
		return no, v1alpha1.ReasonProvisioning, "the machine is being created" + progressSuffix(v.seen) + v.waitSuffix() + failureSuffix(v.seen)
	case v.powerDifference() != "":
		return no, v1alpha1.ReasonPowerStateDiffers, v.powerDifference() + v.waitSuffix()
	case claim.ToolsGone(&v.VM.Status):
		return no, v1alpha1.ReasonToolsNotRunning, "the machine is on, but the tools in its guest have stopped running since the last power-on"
	case meta.IsStatusConditionFalse(v.VM.Status.Conditions, string(v1alpha1.ConditionPlacementSettled)):
		c := meta.FindStatusCondition(v.VM.Status.Conditions, string(v1alpha1.ConditionPlacementSettled))
		return no, v1alpha1.ConditionReason(c.Reason), c.Message
	}
	return metav1.ConditionTrue, v1alpha1.ReasonAsWanted, ""
}

// waitSuffix returns what the machine waits for, for the end of a message.
func (v *view) waitSuffix() string {
	if v.waitMessage == "" && len(v.VM.Status.Undoing) > 0 {
		return fmt.Sprintf(": waiting for %s to be undone", claim.Former(&v.VM.Status.Undoing[0]))
	}
	if v.waitMessage == "" {
		return ""
	}
	return ": " + v.waitMessage
}

// progressSuffix returns the progress of the creation in steps of ten percent, since each change is a write.
func progressSuffix(seen runtime.Observation) string {
	for _, task := range seen.InFlight {
		if task.Kind == runtime.TaskCreate && task.Progress != nil && *task.Progress >= 10 {
			return fmt.Sprintf(" (%d%% done)", *task.Progress/10*10)
		}
	}
	return ""
}

// failureSuffix returns the runtime's error of the last attempt, for the end of a message.
func failureSuffix(seen runtime.Observation) string {
	if seen.LastFailure == "" {
		return ""
	}
	return ": " + seen.LastFailure
}

// inProgressMessage returns the message for a machine that is claimed or being undone.
func (v *view) inProgressMessage() string {
	if present, held := claim.Current(&v.VM.Status); held {
		return present.String() + " is in progress"
	}
	return "the machine is not free yet"
}

// powerDifference returns how the power state differs from the run policy or the last request, or "".
func (v *view) powerDifference() string {
	want, intent := requiredPower(v.VM), v.VM.Status.PowerIntent
	switch {
	case want == v.seen.Power:
		return ""
	case v.seen.Power == v1alpha1.PowerPaused && want != v1alpha1.PowerStopped && v.VM.Spec.RunPolicy != v1alpha1.RunPolicyAlwaysOn:
		return fmt.Sprintf("the machine is suspended with its memory, and run policy %s does not resume it: resume it "+
			"(%s), or power it off and lose its memory (%s)", v.VM.Spec.RunPolicy,
			commands.Line("kubectl", "sallyport", "start", v.VM.Name, "-n", v.VM.Namespace),
			commands.Line("kubectl", "sallyport", "stop", v.VM.Name, "-n", v.VM.Namespace, "--force"))
	case want != "": // about to be resumed, started or stopped
		return fmt.Sprintf("the machine is %s, but run policy %s requires %s", v.seen.Power, v.VM.Spec.RunPolicy, want)
	case intent == nil, intent.State == v.seen.Power:
		return ""
	}
	return fmt.Sprintf("the machine is %s although it was last requested to be %s (by %s); run policy %s does not change that",
		v.seen.Power, intent.State, intent.By, v.VM.Spec.RunPolicy)
}

func (v *view) setCondition(c metav1.Condition) {
	v1alpha1.SetCondition(&v.VM.Status.Conditions, c, v.Time)
}

func (r *Reconciler) recordEvent(v *view, kind string, reason v1alpha1.ConditionReason, action, format string, args ...any) {
	r.Events.Eventf(v.VM, nil, kind, string(reason), action, format, args...)
}
