package drive

import (
	"context"
	"fmt"
	"slices"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// Ender ends earlier holders of a machine, once nothing of theirs is in flight.
type Ender interface {
	// Waits reports why undoing takes time, and whether the reported state has changed.
	Waits(ctx context.Context, reason v1alpha1.ConditionReason, message string) (bool, error)
	// End sets the final status of the holder of an undoing entry, if it has none yet. The entry is removed afterwards.
	End(ctx context.Context, entry *v1alpha1.UndoingOperation) error
	// Ended is called once the entry is removed.
	Ended(entry v1alpha1.UndoingOperation)
}

// Undo cancels what earlier holders may have in flight. Until the runtime shows nothing in flight that may be theirs, it only cancels; then the holders
// end, each with its final status first and its entry second. It reports whether everything must be read again.
func (t *Turn) Undo(ctx context.Context, e Ender) (bool, error) {
	if t.VM == nil || len(t.VM.Status.Undoing) == 0 {
		return false, nil
	}
	former := claim.Former(&t.VM.Status.Undoing[0])
	seen, err := t.observeOurs(ctx)
	if err == nil && !takingOver(seen) {
		if entry, task := cancelable(t.VM.Status.Undoing, seen); entry != nil {
			if claim.Track(&t.VM.Status, entry.ID, task) { // persisted before the cancellation, so that a later process can ask for this task
				return true, t.Write(ctx)
			}
			if same, err := t.Unchanged(ctx); err != nil || !same {
				return !same, err
			}
			seen, err = t.cancel(ctx, task)
		}
	}
	switch {
	case err != nil:
		t.Troubled("undoing "+former.String(), err)
		return e.Waits(ctx, runtime.Reason(err), runtime.Message(err))
	case takingOver(seen):
		t.Later()
		return e.Waits(ctx, v1alpha1.ReasonTakingOver, runtime.TaskTakingOver.Doing())
	case t.mustRollBack(&seen):
		did, lost, err := t.rollBack(ctx, &seen, func(ctx context.Context, reason v1alpha1.ConditionReason, message string, _ error) (bool, error) {
			return e.Waits(ctx, reason, message)
		})
		if !lost {
			return did, err
		}
	case !seen.Yields(): // what yields is certainly not of a former holder
		t.Later()
		return e.Waits(ctx, v1alpha1.ReasonInProgress, undoWaitMessage(former, seen))
	}
	return true, t.endFormer(ctx, e, &seen)
}

// takingOver reports whether another process may still send requests. A task in flight may then belong to a holder
// that this process does not know, and a Cancel could hit the wrong one.
func takingOver(seen runtime.Observation) bool {
	return slices.ContainsFunc(seen.InFlight, func(t runtime.Task) bool { return t.Kind == runtime.TaskTakingOver })
}

// cancelable returns a task in flight that a former holder started and that can be canceled: the one that its entry
// names or, if the process ended before persisting it, one that fits and that the runtime reports as ours. Other
// tasks (a move by DRS, an administrator's) are not canceled but awaited.
func cancelable(undoing []v1alpha1.UndoingOperation, seen runtime.Observation) (entry *v1alpha1.UndoingOperation, task string) {
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

// undoWaitMessage returns the message for a former holder that cannot be undone yet.
func undoWaitMessage(former claim.Holder, seen runtime.Observation) string {
	for _, t := range seen.InFlight {
		if t.By != "" {
			return fmt.Sprintf("waiting for %s to be undone: %s (not started by Sallyport, so not canceled)", former, t.Doing())
		}
	}
	return fmt.Sprintf("waiting for %s to be undone", former)
}

// cancel cancels the task and observes again. The observation decides, not the result of the call.
func (t *Turn) cancel(ctx context.Context, task string) (runtime.Observation, error) {
	if err := t.observed.rt.Cancel(ctx, runtime.MachineOf(t.VM), task); err != nil {
		return runtime.Observation{}, err
	}
	t.observe(ctx)
	return t.observed.seen, t.observed.err
}

// endFormer ends the former holder that has been undone for longest.
func (t *Turn) endFormer(ctx context.Context, e Ender, seen *runtime.Observation) error {
	entry := t.VM.Status.Undoing[0]
	if err := e.End(ctx, &entry); err != nil {
		return err
	}
	if err := claim.Settle(&t.VM.Status, entry.ID); err != nil {
		return err
	}
	claim.Record(t.VM, seen, false)
	if err := t.Write(ctx); err != nil {
		return err
	}
	e.Ended(entry)
	return nil
}
