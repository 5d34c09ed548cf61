package operation

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// advance takes the holder further, once nothing of its predecessors is in flight: it writes down how the machine was, tells
// the runtime, and ends with success from what it then sees.
func (r *Reconciler) advance(ctx context.Context, l *look) (bool, error) {
	o := l.holder()
	if o == nil || o.Finished() || len(l.vm.Status.Undoing) > 0 || !l.vm.DeletionTimestamp.IsZero() {
		return false, nil
	}
	rt, seen, err := r.observe(ctx, l)
	if err != nil {
		r.troubled(l.pass, "observing the machine of operation "+o.Name, err)
		return r.note(ctx, l, o, runtime.Reason(err), "%s", runtime.Message(err))
	}
	stopped := !seen.Exists && claim.Leaves(o.Spec.Type) == v1alpha1.PowerStopped // what is not there is off
	done := seen.Quiet() && (seen.Exists || stopped) && o.Status.Baseline != nil && reached(o, seen)
	if err := r.record(ctx, l, o, &seen, done); err != nil {
		return false, err
	}
	switch {
	case !seen.Quiet():
		r.poll(l.pass)
		return r.busy(ctx, l, o, seen.InFlight[0])
	case !seen.Exists && !stopped && l.vm.Status.InstanceID == "":
		r.poll(l.pass)
		return r.note(ctx, l, o, v1alpha1.ReasonInProgress, "waits for the machine, which is not there yet: condition Ready of the VirtualMachine says why")
	case !seen.Exists && !stopped:
		r.poll(l.pass)
		return r.note(ctx, l, o, v1alpha1.ReasonInstanceLost, "%s", claim.InstanceLost(l.vm))
	case o.Status.Baseline == nil:
		return r.begin(ctx, l, o, seen)
	case done:
		return true, r.complete(ctx, l, o, achieved(o, seen))
	case halfway(o, seen):
		l.signalled = false // what was sent has had its effect
		return r.write(ctx, o, func(status *v1alpha1.VirtualMachineOperationStatus) {
			status.Step, _ = nextOf(o)
			l.set(o, v1alpha1.ConditionSignalSent, metav1.ConditionUnknown, v1alpha1.ReasonSending, "the runtime is told to "+verb(o))
		})
	}
	return r.signal(ctx, l, o, rt, seen)
}

// begin writes down how the machine was before the operation did anything, once: what it achieves is judged against this.
func (r *Reconciler) begin(
	ctx context.Context, l *look, o *v1alpha1.VirtualMachineOperation, seen runtime.Observation,
) (bool, error) {
	return r.write(ctx, o, func(status *v1alpha1.VirtualMachineOperationStatus) {
		l.begun(status)
		status.Baseline = &v1alpha1.OperationBaseline{
			PowerState: seen.Power, Incarnation: seen.Incarnation, NodeName: seen.NodeName,
		}
		if _, more := nextOf(o); more {
			status.Step = v1alpha1.OperationStep(stepOf(o))
		}
		status.Supersedes = nil
		for _, other := range l.operations {
			if by := other.Status.SupersededBy; by != nil && by.UID == o.UID && len(status.Supersedes) < claim.MaxUndoing {
				status.Supersedes = append(status.Supersedes, v1alpha1.OperationReference{Name: other.Name, UID: other.UID})
			}
		}
		l.completed(o, metav1.ConditionFalse, v1alpha1.ReasonInProgress, "holds the machine")
		l.set(o, v1alpha1.ConditionSuperseded, metav1.ConditionFalse, v1alpha1.ReasonNotSuperseded, "")
	})
}

// record has the status of the machine show what was seen of it, before the status of the operation rests on that: whoever
// waits for the operation finds the machine as it says.
func (r *Reconciler) record(
	ctx context.Context, l *look, o *v1alpha1.VirtualMachineOperation, seen *runtime.Observation, done bool,
) error {
	before := l.vm.Status.DeepCopy()
	claim.Record(l.vm, seen, done)
	if done && claim.Moves(o.Spec.Type) && seen.NodeName != "" {
		l.vm.Status.Placement = &v1alpha1.Placement{NodeName: seen.NodeName, By: o.Name, InPlaceOf: l.vm.Spec.NodeName}
	}
	if equality.Semantic.DeepEqual(before, &l.vm.Status) {
		return nil
	}
	return r.writeMachine(ctx, l.vm)
}

// busy says what the runtime is doing to the machine, and how far it has come.
func (r *Reconciler) busy(
	ctx context.Context, l *look, o *v1alpha1.VirtualMachineOperation, task runtime.Task,
) (bool, error) {
	return r.write(ctx, o, func(status *v1alpha1.VirtualMachineOperationStatus) {
		l.begun(status)
		if task.Progress != nil {
			status.Progress = task.Progress
		}
		reason := v1alpha1.ReasonInProgress
		if task.Kind == runtime.TaskTakingOver {
			reason = v1alpha1.ReasonTakingOver
		}
		if !failedBefore(o) { // else it goes on showing what became of the attempt before
			l.completed(o, metav1.ConditionFalse, reason, task.Doing())
		}
	})
}

// complete ends the operation with success. The next look frees the machine.
func (r *Reconciler) complete(ctx context.Context, l *look, o *v1alpha1.VirtualMachineOperation, message string) error {
	did, err := r.write(ctx, o, func(status *v1alpha1.VirtualMachineOperationStatus) {
		l.finished(status, v1alpha1.OperationCompleted)
		if status.Progress != nil {
			status.Progress = new(int32(100))
		}
		l.completed(o, metav1.ConditionTrue, v1alpha1.ReasonSucceeded, message)
		if meta.FindStatusCondition(status.Conditions, string(v1alpha1.ConditionSignalSent)) == nil {
			l.set(o, v1alpha1.ConditionSignalSent, metav1.ConditionFalse, v1alpha1.ReasonNothingToSend, "the machine already was as it should be")
		} else { // also if the reply was lost: what was seen confirms it
			l.set(o, v1alpha1.ConditionSignalSent, metav1.ConditionTrue, v1alpha1.ReasonSent, "the runtime was told")
		}
	})
	if did && err == nil {
		r.tell(l, o, corev1.EventTypeNormal, v1alpha1.ReasonSucceeded, message)
	}
	return err
}

// signal tells the runtime, or waits for what it was told. That it is being told is persisted before; then a live look shows
// that the machine is still the operation's, and the lock keeps it so until the runtime has replied.
func (r *Reconciler) signal(
	ctx context.Context, l *look, o *v1alpha1.VirtualMachineOperation, rt *runtime.Client, seen runtime.Observation,
) (bool, error) {
	sent := meta.IsStatusConditionTrue(o.Status.Conditions, string(v1alpha1.ConditionSignalSent))
	if sent && !asksGuest(o) && seen.LastFailure != "" {
		if did, err := r.note(ctx, l, o, v1alpha1.ReasonAttemptFailed, "%s", seen.LastFailure); did || err != nil {
			return did, err
		}
	}
	switch {
	case sent && asksGuest(o):
		r.poll(l.pass)
		return r.note(ctx, l, o, v1alpha1.ReasonInProgress, "waits for the guest to shut down")
	case l.signalled:
		r.poll(l.pass)
		return false, nil
	}
	send := sender(o, rt)
	if send == nil {
		return r.giveUp(ctx, l, o, cannotMove)
	}
	if !sent { // or unknown, after a crash or a lost reply: that nothing is in flight shows that it may be sent again
		_, err := r.write(ctx, o, func(*v1alpha1.VirtualMachineOperationStatus) {
			l.set(o, v1alpha1.ConditionSignalSent, metav1.ConditionUnknown, v1alpha1.ReasonSending, "the runtime is told to "+verb(o))
		})
		if err != nil {
			return false, err
		}
	}
	if ours, err := r.stillHolds(ctx, l, o); err != nil || !ours {
		return !ours, err
	}
	l.signalled = true
	if err := send(ctx, runtime.MachineOf(l.vm)); err != nil {
		return r.notSent(ctx, l, o, err)
	}
	_, err := r.write(ctx, o, func(*v1alpha1.VirtualMachineOperationStatus) {
		l.set(o, v1alpha1.ConditionSignalSent, metav1.ConditionTrue, v1alpha1.ReasonSent, "the runtime was told to "+verb(o))
		if !sent {
			l.completed(o, metav1.ConditionFalse, v1alpha1.ReasonInProgress, "the runtime was told to "+verb(o))
		}
	})
	return true, err
}

// notSent deals with an error of the runtime. It is tried again, but for a move that the runtime refuses though nothing is in
// flight: nobody can say when a node will meet the target, and the machine is not to be held for that.
func (r *Reconciler) notSent(ctx context.Context, l *look, o *v1alpha1.VirtualMachineOperation, err error) (bool, error) {
	l.signalled = false
	if claim.Moves(o.Spec.Type) && runtime.IsInvalidState(err) {
		if _, seen, again := r.observe(ctx, l); again == nil && seen.Quiet() {
			return r.giveUp(ctx, l, o, runtime.Message(err))
		}
	}
	r.troubled(l.pass, "telling the runtime for operation "+o.Name, err)
	reason := runtime.Reason(err)
	if reason == v1alpha1.ReasonRuntimeFailed {
		reason = v1alpha1.ReasonAttemptFailed
	}
	_, noted := r.note(ctx, l, o, reason, "%s", runtime.Message(err))
	return false, noted
}

// giveUp writes down that the operation can never reach its goal. The next look then takes the machine from it.
func (r *Reconciler) giveUp(ctx context.Context, l *look, o *v1alpha1.VirtualMachineOperation, why string) (bool, error) {
	return r.write(ctx, o, func(*v1alpha1.VirtualMachineOperationStatus) {
		l.begun(&o.Status)
		l.set(o, v1alpha1.ConditionSignalSent, metav1.ConditionFalse, v1alpha1.ReasonRuntimeFailed, why)
	})
}

// stillHolds looks whether the machine may be told now.
func (r *Reconciler) stillHolds(ctx context.Context, l *look, o *v1alpha1.VirtualMachineOperation) (bool, error) {
	vm := &v1alpha1.VirtualMachine{}
	if err := r.Live.Get(ctx, l.key, vm); err != nil {
		return false, fmt.Errorf("looking at the claim on VirtualMachine %s: %w", l.key, err)
	}
	l.vm = vm
	return vm.UID == o.Spec.VirtualMachineUID && vm.DeletionTimestamp.IsZero() &&
		len(vm.Status.Undoing) == 0 && claim.Holds(&vm.Status, string(o.UID)), nil
}
