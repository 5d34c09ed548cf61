package drive

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/hibernation"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// CanMove reports whether machines of a runtime can be moved at all.
func CanMove(rt *runtime.Client) bool {
	return runtime.Can[runtime.Migrator](rt) || runtime.Can[runtime.Hibernator](rt)
}

// show tells whoever waits for a move, and reports whether that was anything new.
type show func(ctx context.Context, reason v1alpha1.ConditionReason, message string, err error) (bool, error)

// underway reports whether a move by hibernation has begun and is not over: that its snapshot is still there is nothing of the machine's.
func underway(m *v1alpha1.Migration) bool { return m != nil && m.Step != v1alpha1.MigrationDiscard }

// hibernates reports whether what is due is a step of a move by hibernation.
func (x *execution) hibernates() bool {
	if x.goal() != runtime.TaskRelocate || runtime.Can[runtime.Migrator](x.at.rt) || !runtime.Can[runtime.Hibernator](x.at.rt) {
		return false
	}
	return x.Was != nil && (x.VM.Status.Migration != nil || x.seen.Exists && x.seen.Quiet())
}

// hibernate takes the move of a machine further whose holder wants it elsewhere. What is begun is the VirtualMachine's and not the
// holder's, so that it comes to its end whoever holds the machine then.
func (x *execution) hibernate(ctx context.Context) (bool, error) {
	want := hibernation.Want{To: x.Target, Leave: x.Was.NodeName}
	next := x.following(want, &x.seen)
	switch {
	case next.Hopeless:
		return x.holder.Write(ctx, Progress{State: Hopeless, Message: next.Message})
	case next.Anew && x.Hold != nil && x.Hold(runtime.TaskRelocate):
		return false, nil
	case next.Anew && x.Signal == "":
		return x.holder.Write(ctx, Progress{State: Sending, Message: x.verb(), Step: v1alpha1.StepRelocate})
	}
	did, err := x.travel(ctx, want, next, &x.seen, x.waits)
	if did && err == nil && next.Call == runtime.VerbHibernate {
		_, err = x.holder.Write(ctx, Progress{State: Sent, Message: x.verb(), Step: v1alpha1.StepRelocate})
	}
	return did, err
}

// bringsBack reports whether a machine has to be brought back before whoever had it moved is undone. One whose power is taken away next
// does not, as long as it is on its node: nothing of it is lost that is not to be lost.
func (t *Turn) bringsBack(seen *runtime.Observation) bool {
	m, held := t.VM.Status.Migration, t.VM.Status.ActiveOperation
	if !underway(m) || seen.Hibernation == nil || !t.VM.DeletionTimestamp.IsZero() {
		return false
	}
	return m.Travels() || held == nil || !held.Force
}

// Tidy finishes a move that no holder wants any longer: afterwards the machine is live, and its snapshot is removed. It reports whether
// everything must be read again.
func (t *Turn) Tidy(ctx context.Context, seen *runtime.Observation) (bool, error) {
	if t.VM.Status.Migration == nil || t.VM.Busy() || seen.Hibernation == nil {
		return false, nil
	}
	did, _, err := t.back(ctx, seen, func(context.Context, v1alpha1.ConditionReason, string, error) (bool, error) { return false, nil })
	return did, err
}

// DiscardSnapshots removes what a move of the machine has left in the registry, for a machine that is gone.
func (t *Turn) DiscardSnapshots(ctx context.Context) error {
	switch {
	case t.VM.Status.Migration == nil, t.at == nil, t.at.rt == nil: // its kind of runtime is switched off
		return nil
	case !runtime.Can[runtime.Hibernator](t.at.rt):
		return nil
	}
	return t.callHibernator(ctx, hibernation.Step{Call: runtime.VerbDiscard})
}

// back takes a move back. It tells whether the machine is lost, so that nothing is left to be brought back.
func (t *Turn) back(ctx context.Context, seen *runtime.Observation, tell show) (did, lost bool, err error) {
	want := hibernation.Want{Back: true}
	next := t.following(want, seen)
	if next.Lost {
		return false, true, nil
	}
	did, err = t.travel(ctx, want, next, seen, tell)
	return did, false, err
}

// following asks the table what is next.
func (t *Turn) following(want hibernation.Want, seen *runtime.Observation) hibernation.Step {
	m := t.VM.Status.Migration
	want.Late, want.Rested = hibernation.Late(m, t.Time), hibernation.Rested(m, t.Time)
	want.Fenced = types.UID(t.VM.Annotations[v1alpha1.AnnotationSourceFenced])
	return hibernation.Next(m, seen, want)
}

// travel does what comes next for a move: it persists it, or tells the runtime, or says what is waited for.
func (t *Turn) travel(ctx context.Context, want hibernation.Want, next hibernation.Step, seen *runtime.Observation, tell show) (bool, error) {
	if after, changes := t.after(want, next, seen); changes {
		t.sent = false // what was sent has had its effect
		return true, t.persist(ctx, after, seen)
	}
	if next.Call == "" || t.sent {
		t.Later()
		return t.note(ctx, next, tell)
	}
	if same, err := t.Unchanged(ctx); err != nil || !same {
		return !same, err
	}
	if err := t.callHibernator(ctx, next); err != nil {
		t.Troubled(fmt.Sprintf("moving VirtualMachine %s: %s", t.key, next.Call), err)
		_, told := tell(ctx, runtime.Reason(err), runtime.Message(err), err)
		return false, told
	}
	switch next.Call {
	case runtime.VerbDiscard:
		return true, t.persist(ctx, nil, seen)
	case runtime.VerbRetract: // from now on it rests
		rests := t.VM.Status.Migration.DeepCopy()
		rests.Since = metav1.NewMicroTime(t.Time)
		return true, t.persist(ctx, rests, seen)
	}
	return true, nil
}

// after is the move as it is to be persisted, if that is another than now.
func (t *Turn) after(want hibernation.Want, next hibernation.Step, seen *runtime.Observation) (*v1alpha1.Migration, bool) {
	now := t.VM.Status.Migration
	switch {
	case next.Anew:
		return &v1alpha1.Migration{
			ID: uuid.NewUUID(), Step: next.Name, Since: metav1.NewMicroTime(t.Time), To: want.To,
			Instance: seen.Hibernation.ID, Was: *Baseline(seen), Disks: seen.Disks,
		}, true
	case now == nil, next.Name == now.Step && !next.Aims:
		return nil, false
	}
	after := now.DeepCopy()
	after.Step, after.Since, after.Reason, after.Message = next.Name, metav1.NewMicroTime(t.Time), "", ""
	switch {
	case next.Aims:
		after.To, after.Back = want.To, want.Back
	case next.Name == v1alpha1.MigrationRelease:
		after.Digest = seen.Hibernation.Digest
	case now.Step == v1alpha1.MigrationRelease && next.Name == v1alpha1.MigrationWake:
		after.Back = want.Back
	}
	return after, true
}

// persist writes how far the move has come. A machine that was brought back to another node than its spec names is not moved again for
// the same wish: what kept it from getting there cost it an interruption.
func (t *Turn) persist(ctx context.Context, after *v1alpha1.Migration, seen *runtime.Observation) error {
	before, status, wanted := t.VM.Status.Migration, &t.VM.Status, t.VM.Spec.NodeName
	status.Migration = after
	if seen.Exists { // under the name that it has now: the move no longer tells it
		status.InstanceID = seen.InstanceID
	}
	if before != nil && before.Back && after != nil && after.Step == v1alpha1.MigrationDiscard && wanted != "" && wanted != seen.Hibernation.Node {
		status.Placement = &v1alpha1.Placement{NodeName: seen.Hibernation.Node, InPlaceOf: wanted}
	}
	if err := t.Write(ctx); err != nil {
		return err
	}
	if t.Moved != nil {
		t.Moved(t.VM, before, after, t.Time)
	}
	return nil
}

// note shows what is waited for, on the machine and to whoever waits.
func (t *Turn) note(ctx context.Context, next hibernation.Step, tell show) (bool, error) {
	m, message := t.VM.Status.Migration, v1alpha1.Cut(next.Message, maxMessage)
	if m != nil && (m.Reason != string(next.Reason) || m.Message != message) {
		m.Reason, m.Message = string(next.Reason), message
		return true, t.Write(ctx)
	}
	return tell(ctx, next.Reason, next.Message, nil)
}

// maxMessage is how long the message of a Migration can be.
const maxMessage = 1024

// callHibernator tells the runtime what is next.
func (t *Turn) callHibernator(ctx context.Context, next hibernation.Step) error {
	return t.Tell(ctx, func(ctx context.Context, m runtime.Machine) error {
		return runtime.Use(ctx, t.at.rt, next.Call, m, func(ctx context.Context, able runtime.Hibernator) error {
			switch next.Call {
			case runtime.VerbHibernate:
				return able.Hibernate(ctx, m)
			case runtime.VerbWake:
				return able.Wake(ctx, m)
			case runtime.VerbRelease:
				return able.Release(ctx, m, next.Fenced)
			case runtime.VerbRestore:
				return able.Restore(ctx, m)
			case runtime.VerbRetract:
				return able.Retract(ctx, m, next.Fenced)
			}
			return able.Discard(ctx, m)
		})
	})
}
