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
func (r *Reconciler) report(ctx context.Context, l *view) (bool, error) {
	if l.observed && l.ours() {
		claim.Record(l.VM, &l.seen, false)
	}
	if runtime.IsOwnedByAnother(l.err) && l.ours() {
		claim.Record(l.VM, &runtime.Observation{}, false)
	}
	if runtime.IsDisconnected(l.err) && l.ours() {
		claim.Disconnect(l.VM)
	}
	l.VM.Status.Phase = cmp.Or(l.VM.Status.Phase, v1alpha1.VirtualMachinePending)
	if _, err := r.save(ctx, l); err != nil {
		return false, err
	}
	if l.ours() && l.observed {
		l.Wait(wait.Jitter(r.resync(l), 0.2))
	}
	return false, nil
}

// resync returns the interval at which a ready machine is observed. The caller adds jitter.
func (r *Reconciler) resync(l *view) time.Duration {
	every := cmp.Or(r.Resync, defaultResync)
	if l.seen.Unadopted {
		every = min(every, unadoptedResync)
	}
	if !runtime.Can[runtime.Watcher](l.Runtime()) && len(r.Owned)+len(r.Followed) == 0 {
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

func (l *view) ready() metav1.Condition {
	status, reason, message := l.readiness()
	return v1alpha1.ConditionReady.Condition(status, reason, l.VM.Generation, message)
}

func (l *view) readiness() (metav1.ConditionStatus, v1alpha1.ConditionReason, string) {
	no := metav1.ConditionFalse
	lost := l.VM.Status.InstanceID != "" && l.observed && !l.seen.Exists && l.seen.Quiet()
	switch {
	case runtime.IsUnavailable(l.err), runtime.IsTakingOver(l.err):
		return metav1.ConditionUnknown, runtime.Reason(l.err), runtime.Message(l.err)
	case l.seen.Unusable != "":
		return no, v1alpha1.ReasonInstanceUnusable, l.seen.Unusable
	case lost && runtime.IsNotFound(l.err): // as the error says if the machine is to be adopted again
		return no, v1alpha1.ReasonInstanceLost, claim.InstanceLost(l.VM)
	case l.err != nil:
		return no, runtime.Reason(l.err), runtime.Message(l.err)
	case !l.VM.DeletionTimestamp.IsZero():
		return no, v1alpha1.ReasonTerminating, "the VirtualMachine is being deleted" + l.waitSuffix()
	case l.onlyObserves() && !l.seen.Exists:
		return l.observedReadiness()
	case l.VM.Status.Question != nil:
		return no, v1alpha1.ReasonQuestionPending, runtime.Asking(l.VM.Status.Question)
	case l.backingOff:
		return no, v1alpha1.ReasonStartPaused, "start is backing off: the machine stopped or failed soon after its last start" + failureSuffix(l.seen)
	case l.VM.Busy():
		return no, v1alpha1.ReasonOperationInProgress, l.inProgressMessage() + l.waitSuffix() + failureSuffix(l.seen)
	case lost:
		return no, v1alpha1.ReasonInstanceLost, claim.InstanceLost(l.VM)
	case l.imageTrouble != nil:
		return no, l.imageTrouble.reason, l.imageTrouble.message
	case !l.seen.Exists:
		return no, v1alpha1.ReasonProvisioning, "the machine is being created" + progressSuffix(l.seen) + l.waitSuffix() + failureSuffix(l.seen)
	case l.powerDifference() != "":
		return no, v1alpha1.ReasonPowerStateDiffers, l.powerDifference() + l.waitSuffix()
	case claim.ToolsGone(&l.VM.Status):
		return no, v1alpha1.ReasonToolsNotRunning, "the machine is on, but the tools in its guest have stopped running since the last power-on"
	case meta.IsStatusConditionFalse(l.VM.Status.Conditions, string(v1alpha1.ConditionPlacementSettled)):
		c := meta.FindStatusCondition(l.VM.Status.Conditions, string(v1alpha1.ConditionPlacementSettled))
		return no, v1alpha1.ConditionReason(c.Reason), c.Message
	}
	return metav1.ConditionTrue, v1alpha1.ReasonAsWanted, ""
}

// waitSuffix returns what the machine waits for, for the end of a message.
func (l *view) waitSuffix() string {
	if l.waitMessage == "" && len(l.VM.Status.Undoing) > 0 {
		return fmt.Sprintf(": waiting for %s to be undone", claim.Former(&l.VM.Status.Undoing[0]))
	}
	if l.waitMessage == "" {
		return ""
	}
	return ": " + l.waitMessage
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
func (l *view) inProgressMessage() string {
	if present, held := claim.Current(&l.VM.Status); held {
		return present.String() + " is in progress"
	}
	return "the machine is not free yet"
}

// powerDifference returns how the power state differs from the run policy or the last request, or "".
func (l *view) powerDifference() string {
	want, intent := requiredPower(l.VM), l.VM.Status.PowerIntent
	switch {
	case want == l.seen.Power:
		return ""
	case l.seen.Power == v1alpha1.PowerPaused && want != v1alpha1.PowerStopped && l.VM.Spec.RunPolicy != v1alpha1.RunPolicyAlwaysOn:
		return fmt.Sprintf("the machine is suspended with its memory, and run policy %s does not resume it: resume it "+
			"(%s), or power it off and lose its memory (%s)", l.VM.Spec.RunPolicy,
			commands.Line("kubectl", "sallyport", "start", l.VM.Name, "-n", l.VM.Namespace),
			commands.Line("kubectl", "sallyport", "stop", l.VM.Name, "-n", l.VM.Namespace, "--force"))
	case want != "": // about to be resumed, started or stopped
		return fmt.Sprintf("the machine is %s, but run policy %s requires %s", l.seen.Power, l.VM.Spec.RunPolicy, want)
	case intent == nil, intent.State == l.seen.Power:
		return ""
	}
	return fmt.Sprintf("the machine is %s although it was last requested to be %s (by %s); run policy %s does not change that",
		l.seen.Power, intent.State, intent.By, l.VM.Spec.RunPolicy)
}

func (l *view) setCondition(c metav1.Condition) {
	v1alpha1.SetCondition(&l.VM.Status.Conditions, c, l.Time)
}

func (r *Reconciler) recordEvent(l *view, kind string, reason v1alpha1.ConditionReason, action, format string, args ...any) {
	r.Events.Eventf(l.VM, nil, kind, string(reason), action, format, args...)
}
