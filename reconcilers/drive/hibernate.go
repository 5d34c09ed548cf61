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

// CanMove reports whether a runtime can move machines at all.
func CanMove(rt *runtime.Client) bool {
	return runtime.Can[runtime.Migrator](rt) || runtime.Can[runtime.Hibernator](rt)
}

// reportFunc reports the state of a move to its holder, and whether the reported state has changed.
type reportFunc func(ctx context.Context, reason v1alpha1.ConditionReason, message string, err error) (bool, error)

// underway reports whether a move by hibernation has begun and is not over. A snapshot that is left to discard does
// not concern the machine.
func underway(m *v1alpha1.Migration) bool { return m != nil && m.Step != v1alpha1.MigrationDiscard }

// hibernates reports whether the next action is a step of a move by hibernation.
func (x *execution) hibernates() bool {
	if x.goal() != runtime.TaskRelocate || runtime.Can[runtime.Migrator](x.observed.rt) || !runtime.Can[runtime.Hibernator](x.observed.rt) {
		return false
	}
	return x.Was != nil && (x.VM.Status.Migration != nil || x.seen.Exists && x.seen.Quiet())
}

// hibernate advances the move that the holder requests. A move that has begun belongs to the VirtualMachine and not
// to the holder, so that it is finished whatever holds the machine by then.
func (x *execution) hibernate(ctx context.Context) (bool, error) {
	want := hibernation.Want{To: x.Target, Leave: x.Was.NodeName}
	next := x.nextStep(want, &x.seen)
	switch {
	case next.Hopeless:
		return x.holder.Write(ctx, Progress{State: Hopeless, Message: next.Message})
	case next.Anew && x.Hold != nil && x.Hold(runtime.TaskRelocate):
		return false, nil
	case next.Anew && x.Signal == "":
		return x.holder.Write(ctx, Progress{State: Sending, Message: x.verb(), Step: v1alpha1.StepRelocate})
	}
	did, err := x.advanceMove(ctx, want, next, &x.seen, x.writeWaiting)
	if did && err == nil && next.Call == runtime.VerbHibernate {
		_, err = x.holder.Write(ctx, Progress{State: Sent, Message: x.verb(), Step: v1alpha1.StepRelocate})
	}
	return did, err
}

// mustRollBack reports whether the machine must be brought back before the holder that moved it is undone. This is
// not needed for a machine that is forced off next while it is on its node: nothing is lost.
func (t *Turn) mustRollBack(seen *runtime.Observation) bool {
	m, held := t.VM.Status.Migration, t.VM.Status.ActiveOperation
	if !underway(m) || seen.Hibernation == nil || !t.VM.DeletionTimestamp.IsZero() {
		return false
	}
	return m.Travels() || held == nil || !held.Force
}

// Tidy finishes a move that no holder wants any longer: afterwards the machine runs and its snapshot is removed. It
// reports whether everything must be read again.
func (t *Turn) Tidy(ctx context.Context, seen *runtime.Observation) (bool, error) {
	if t.VM.Status.Migration == nil || t.VM.Busy() || seen.Hibernation == nil {
		return false, nil
	}
	did, _, err := t.rollBack(ctx, seen, func(context.Context, v1alpha1.ConditionReason, string, error) (bool, error) { return false, nil })
	return did, err
}

// DiscardSnapshots removes the snapshots of a deleted machine's moves from the registry.
func (t *Turn) DiscardSnapshots(ctx context.Context) error {
	switch {
	case t.VM.Status.Migration == nil, t.observed == nil, t.observed.rt == nil: // or the runtime is disabled
		return nil
	case !runtime.Can[runtime.Hibernator](t.observed.rt):
		return nil
	}
	return t.callHibernator(ctx, hibernation.Step{Call: runtime.VerbDiscard})
}

// rollBack undoes a move. lost is set if the machine is lost, so that there is nothing to bring back.
func (t *Turn) rollBack(ctx context.Context, seen *runtime.Observation, report reportFunc) (did, lost bool, err error) {
	want := hibernation.Want{Back: true}
	next := t.nextStep(want, seen)
	if next.Lost {
		return false, true, nil
	}
	did, err = t.advanceMove(ctx, want, next, seen, report)
	return did, false, err
}

// nextStep looks up the next step of the move in the table.
func (t *Turn) nextStep(want hibernation.Want, seen *runtime.Observation) hibernation.Step {
	m := t.VM.Status.Migration
	want.Late, want.Rested = hibernation.Late(m, t.Time), hibernation.Rested(m, t.Time)
	want.Fenced = types.UID(t.VM.Annotations[v1alpha1.AnnotationSourceFenced])
	return hibernation.Next(m, seen, want)
}

// advanceMove takes the next action of a move: it persists a step, calls the runtime, or reports what the move waits
// for.
func (t *Turn) advanceMove(ctx context.Context, want hibernation.Want, next hibernation.Step, seen *runtime.Observation, report reportFunc) (bool, error) {
	if after, changes := t.changedMigration(want, next, seen); changes {
		t.sent = false // the request has had its effect
		return true, t.persist(ctx, after, seen)
	}
	if next.Call == "" || t.sent {
		t.Later()
		return t.reportWaiting(ctx, next, report)
	}
	if same, err := t.Unchanged(ctx); err != nil || !same {
		return !same, err
	}
	if err := t.callHibernator(ctx, next); err != nil {
		t.Troubled(fmt.Sprintf("moving VirtualMachine %s: %s", t.key, next.Call), err)
		_, reportErr := report(ctx, runtime.Reason(err), runtime.Message(err), err)
		return false, reportErr
	}
	switch next.Call {
	case runtime.VerbDiscard:
		return true, t.persist(ctx, nil, seen)
	case runtime.VerbRetract: // the wait before the next attempt starts now
		rests := t.VM.Status.Migration.DeepCopy()
		rests.Since = metav1.NewMicroTime(t.Time)
		return true, t.persist(ctx, rests, seen)
	}
	return true, nil
}

// changedMigration returns the migration to persist, and whether it differs from the current one.
func (t *Turn) changedMigration(want hibernation.Want, next hibernation.Step, seen *runtime.Observation) (*v1alpha1.Migration, bool) {
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

// persist writes the progress of the move. A machine that was brought back is not moved again for the same
// spec.nodeName: the failed attempt already cost an interruption.
func (t *Turn) persist(ctx context.Context, after *v1alpha1.Migration, seen *runtime.Observation) error {
	before, status, wanted := t.VM.Status.Migration, &t.VM.Status, t.VM.Spec.NodeName
	status.Migration = after
	if seen.Exists { // the current name: the migration no longer records it
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

// reportWaiting persists what the move waits for, and reports it to the holder.
func (t *Turn) reportWaiting(ctx context.Context, next hibernation.Step, report reportFunc) (bool, error) {
	m, message := t.VM.Status.Migration, v1alpha1.Cut(next.Message, maxMessage)
	if m != nil && (m.Reason != string(next.Reason) || m.Message != message) {
		m.Reason, m.Message = string(next.Reason), message
		return true, t.Write(ctx)
	}
	return report(ctx, next.Reason, next.Message, nil)
}

// maxMessage is the maximum length of a Migration's message.
const maxMessage = 1024

func (t *Turn) callHibernator(ctx context.Context, next hibernation.Step) error {
	return t.Call(ctx, func(ctx context.Context, m runtime.Machine) error {
		return runtime.Use(ctx, t.observed.rt, next.Call, m, func(ctx context.Context, able runtime.Hibernator) error {
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
