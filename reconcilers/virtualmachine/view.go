package virtualmachine

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/reconcilers/drive"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// view is what one turn has observed of a machine. It is modified in place and discarded after the first write.
type view struct {
	*drive.Turn
	before *v1alpha1.VirtualMachineStatus // the status as read

	seen        runtime.Observation
	observed    bool
	err         error  // why it was not observed, or a call failed
	waitMessage string // what the machine waits for, for messages
	backingOff  bool   // its next start is delayed
	cannotMove  bool   // the runtime does not support the move it needs
	moveFailure string // why the last move failed
	sizeDenial  string // why the size in its spec is denied
	moveDenial  moveDenial

	imageTrouble *diskTrouble // why its boot disk is not ready

	diskTrouble *diskTrouble // why its disks differ from the spec, if known
}

// ours reports whether this reconciler may act on the machine: neither an operation nor a deletion holds it, and
// nothing is being undone.
func (v *view) ours() bool {
	a := v.VM.Status.ActiveOperation
	return len(v.VM.Status.Undoing) == 0 &&
		(a == nil || (a.Origin != v1alpha1.OriginOperation && a.Origin != v1alpha1.OriginDeletion))
}

// mayNeedCreation reports whether the machine may have to be created: it was never observed, and nothing is being
// undone.
func (v *view) mayNeedCreation() bool {
	return v.VM.Status.InstanceID == "" && len(v.VM.Status.Undoing) == 0
}

// lacksDisks reports whether a claimed machine was last observed without disks that its spec names.
func (v *view) lacksDisks() bool {
	return len(v.VM.Status.Undoing) == 0 && len(claim.MissingDisks(v.VM, &runtime.Observation{Disks: v.VM.Status.Disks})) > 0
}

func (v *view) observe(ctx context.Context) {
	v.seen, v.err = v.Observe(ctx)
	if v.observed = v.err == nil; !v.observed {
		v.Troubled("observing VirtualMachine "+v.VM.Name, v.err)
	}
}

// save writes the status with its derived conditions if it has changed, and reports whether it had.
func (r *Reconciler) save(ctx context.Context, v *view) (bool, error) {
	v.VM.Status.ObservedGeneration = v.VM.Generation
	if v.observed {
		v.Allocated(&v.seen)
	}
	v.setPlacementSettled()
	v.setRestartRequired()
	v.setDisksAttached()
	if halt := r.Halt.Err(); halt != nil {
		v.setCondition(v1alpha1.ConditionReadOnly.Condition(metav1.ConditionTrue, v1alpha1.ReasonReadOnly, v.VM.Generation, runtime.Message(halt)))
	} else {
		meta.RemoveStatusCondition(&v.VM.Status.Conditions, string(v1alpha1.ConditionReadOnly))
	}
	ready := v.ready()
	v.setCondition(ready)
	if equality.Semantic.DeepEqual(v.before, &v.VM.Status) {
		return false, nil
	}
	if err := v.Write(ctx); err != nil {
		return false, err
	}
	if v.before.InstanceID == "" && v.VM.Status.InstanceID != "" {
		r.recordEvent(v, corev1.EventTypeNormal, v1alpha1.ReasonProvisioned, "Ensure", "instance %s was %s and is %s",
			v.seen.InstanceID, map[bool]string{true: "adopted", false: "created"}[v.seen.Adopted], v.seen.Power)
	}
	before := meta.FindStatusCondition(v.before.Conditions, ready.Type)
	question := ready.Reason == string(v1alpha1.ReasonQuestionPending)
	if warns(ready) && (before == nil || before.Reason != ready.Reason || question && before.Message != ready.Message) {
		r.recordEvent(v, corev1.EventTypeWarning, v1alpha1.ConditionReason(ready.Reason), "Observe", "%s", ready.Message)
	} else if change := v.foreignChange(); change != "" {
		r.recordEvent(v, corev1.EventTypeWarning, "PowerChanged", "Observe", "%s without an operation of Sallyport", change)
	}
	v.before = v.VM.Status.DeepCopy()
	return true, nil
}

// now returns the time of the turn with the precision of the claim.
func (v *view) now() metav1.MicroTime { return metav1.NewMicroTime(v.Time) }

// foreignChange returns how an unclaimed machine was started, stopped or restarted by its guest or another client since the status that
// was just replaced, or "". A machine that Sallyport starts or stops is claimed until the status has the result.
func (v *view) foreignChange() string {
	was, is := v.before, &v.VM.Status
	power := powerOf(was.Phase)
	switch {
	case !v.observed || !v.seen.Exists || was.ActiveOperation != nil || len(was.Undoing) > 0 || power == "":
		return ""
	case power != v.seen.Power && was.Phase != is.Phase:
		return fmt.Sprintf("the machine was %s and is %s", power, v.seen.Power)
	case power == v1alpha1.PowerRunning && was.Incarnation != is.Incarnation && was.Incarnation != "":
		return "the machine was restarted"
	}
	return ""
}

// powerOf returns the power state in which a machine was observed, or "" if its phase does not say.
func powerOf(phase v1alpha1.VirtualMachinePhase) v1alpha1.PowerState {
	switch phase {
	case v1alpha1.VirtualMachineRunning, v1alpha1.VirtualMachineDegraded:
		return v1alpha1.PowerRunning
	case v1alpha1.VirtualMachineStopped, v1alpha1.VirtualMachinePaused:
		return v1alpha1.PowerState(phase)
	}
	return ""
}
