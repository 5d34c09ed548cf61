package operation

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// undo gets rid of what former holders may have in flight. Until a look at the runtime shows nothing of it, it does nothing
// but withdraw; then they end, each with its operation first and its entry second.
func (r *Reconciler) undo(ctx context.Context, l *look) (bool, error) {
	if l.vm == nil || len(l.vm.Status.Undoing) == 0 {
		return false, nil
	}
	first := &l.vm.Status.Undoing[0]
	who := claim.Former(first)
	rt, seen, err := r.observe(ctx, l)
	if runtime.NothingOfOurs(err) {
		seen, err = runtime.Observation{}, nil
	}
	if err == nil && !takingOver(seen) {
		if entry, task := ours(l.vm.Status.Undoing, seen); entry != nil {
			if claim.Track(&l.vm.Status, entry.ID, task) { // before it is told to end: whoever comes next can ask for it
				return true, r.writeMachine(ctx, l.vm)
			}
			if same, err := r.unchanged(ctx, l); err != nil || !same {
				return !same, err
			}
			seen, err = r.withdraw(ctx, l, rt, task)
		}
	}
	switch {
	case err != nil:
		r.troubled(l.pass, "undoing "+who.String(), err)
		return r.tellAll(ctx, l, runtime.Reason(err), runtime.Message(err))
	case takingOver(seen):
		r.poll(l.pass)
		return r.tellAll(ctx, l, v1alpha1.ReasonTakingOver, runtime.TaskTakingOver.Doing())
	case !seen.Quiet():
		r.poll(l.pass)
		return r.tellAll(ctx, l, v1alpha1.ReasonInProgress, waitsFor(who, seen))
	}
	return true, r.settle(ctx, l, first, &seen)
}

// unchanged looks whether the machine is still as it was looked at: what is cancelled must be of one who is being undone.
func (r *Reconciler) unchanged(ctx context.Context, l *look) (bool, error) {
	now, err := r.machine(ctx, l.pass)
	return now != nil && now.UID == l.vm.UID && now.ResourceVersion == l.vm.ResourceVersion, err
}

// takingOver tells whether another process may still be at work: what is in flight may be of one that it has given the machine
// to by the time that a Cancel arrives.
func takingOver(seen runtime.Observation) bool {
	return slices.ContainsFunc(seen.InFlight, func(t runtime.Task) bool { return t.Kind == runtime.TaskTakingOver })
}

// ours gives a task in flight that a former holder began and that can be withdrawn: the one that its entry names or, if the
// process ended before it was named, one that fits it and that the runtime knows for ours. Whatever else is in flight, a move by
// DRS or what an administrator does, is not ours to withdraw: it is waited for.
func ours(undoing []v1alpha1.UndoingOperation, seen runtime.Observation) (entry *v1alpha1.UndoingOperation, task string) {
	for i := range undoing {
		entry := &undoing[i]
		for _, t := range seen.InFlight {
			if t.Ours && claim.Withdraws(entry.Type, t.Kind) && (entry.Task == "" || entry.Task == t.ID) {
				return entry, t.ID
			}
		}
	}
	return nil, ""
}

// waitsFor says what is in flight that keeps who from being undone.
func waitsFor(who claim.Holder, seen runtime.Observation) string {
	for _, t := range seen.InFlight {
		if t.By != "" {
			return fmt.Sprintf("waits until %s is undone: %s, which is not withdrawn", who, t.Doing())
		}
	}
	return fmt.Sprintf("waits until %s is undone", who)
}

// withdraw cancels and looks again. The look decides, not what cancelling returned.
func (r *Reconciler) withdraw(ctx context.Context, l *look, rt *runtime.Client, task string) (runtime.Observation, error) {
	if err := rt.Cancel(ctx, runtime.MachineOf(l.vm), task); err != nil {
		return runtime.Observation{}, err
	}
	_, seen, err := r.observe(ctx, l)
	return seen, err
}

// tellAll says why it takes so long, on the holder and on who is being undone.
func (r *Reconciler) tellAll(ctx context.Context, l *look, reason v1alpha1.ConditionReason, message string) (bool, error) {
	for _, o := range l.unfinished() {
		if !l.holds(o) && l.entry(o) == nil {
			continue
		}
		if did, err := r.note(ctx, l, o, reason, "%s", message); did || err != nil {
			return did, err
		}
	}
	return false, nil
}

// settle ends one who is being undone.
func (r *Reconciler) settle(ctx context.Context, l *look, entry *v1alpha1.UndoingOperation, seen *runtime.Observation) error {
	id := entry.ID
	if o := l.of(id); o != nil && !o.Finished() {
		if err := r.endUndone(ctx, l, o, entry); err != nil {
			return err
		}
	}
	if err := claim.Settle(&l.vm.Status, id); err != nil {
		return err
	}
	claim.Record(l.vm, seen, false)
	if err := r.writeMachine(ctx, l.vm); err != nil {
		return err
	}
	r.Metrics.undone(entry, l.vm.Status.ActiveOperation, l.now)
	return nil
}

// endUndone gives an operation that is undone the status that its entry says. Deletion and deadline have ended it before.
func (r *Reconciler) endUndone(
	ctx context.Context, l *look, o *v1alpha1.VirtualMachineOperation, entry *v1alpha1.UndoingOperation,
) error {
	if entry.End != v1alpha1.EndSuperseded {
		reason, message := v1alpha1.ReasonRuntimeFailed, "the runtime could not do it"
		if c := meta.FindStatusCondition(o.Status.Conditions, string(v1alpha1.ConditionSignalSent)); c != nil {
			message = c.Message // for which releaseHolder has withdrawn it
		}
		return r.fail(ctx, l, o, reason, message)
	}
	message := "something else took its place"
	if entry.By != nil {
		message = tookPlace(entry.By)
	}
	did, err := r.write(ctx, o, func(status *v1alpha1.VirtualMachineOperationStatus) {
		l.finished(status, v1alpha1.OperationCompleted)
		l.completed(o, metav1.ConditionTrue, v1alpha1.ReasonSuperseded, message)
		l.superseded(o, entry.By)
	})
	if did && err == nil {
		r.tell(l, o, corev1.EventTypeNormal, v1alpha1.ReasonSuperseded, message)
	}
	return err
}
