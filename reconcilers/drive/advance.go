package drive

import (
	"context"
	"fmt"
	"time"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// execution is a plan that is carried out for who holds the machine.
type execution struct {
	*Turn
	plan
	holder Holder
}

// Reached reports whether the machine, as it is observed, is for good as its holder wants it.
func (t *Turn) Reached(ctx context.Context, h Holder) bool {
	seen, err := t.Observe(ctx)
	return err == nil && (&plan{Intent: h.Intent(), Record: h.Record(), seen: seen, moves: underway(t.VM.Status.Migration)}).done()
}

// Advance carries out the next step of the holder of the machine, once nothing of earlier holders is in flight: it has the holder
// persist the baseline, sends the next request to the runtime, and completes when the goal is observed. It does one thing at a
// time, and reports whether everything must be read again.
func (t *Turn) Advance(ctx context.Context, h Holder) (bool, error) {
	x := &execution{Turn: t, holder: h, plan: plan{Intent: h.Intent(), Record: h.Record(), moves: underway(t.VM.Status.Migration)}}
	look := t.Observe
	if x.goal() == runtime.TaskDelete {
		look = t.observeOurs
	}
	var err error
	if x.seen, err = look(ctx); err != nil {
		t.Troubled("observing the machine of "+h.String(), err)
		return x.waits(ctx, runtime.Reason(err), runtime.Message(err), err)
	}
	done := x.done()
	if err := h.Saw(ctx, &x.seen, done); err != nil {
		return false, err
	}
	next, more := x.next()
	switch {
	case !done && x.hibernates():
		return x.hibernate(ctx)
	case !x.seen.Quiet():
		t.Later()
		return h.Write(ctx, Progress{State: Busy, Reason: busyReason(x.seen.InFlight[0]), Message: x.seen.Doing(), Task: x.seen.InFlight[0]})
	case !x.seen.Exists && !x.reached():
		t.Later()
		return x.absent(ctx)
	case done:
		return h.Write(ctx, Progress{State: Done, Message: x.achieved()})
	case x.Was == nil && x.goal() != runtime.TaskDelete: // nothing that was before tells whether a machine is gone
		return h.Write(ctx, x.beginning())
	case more && x.over(x.step()):
		t.sent = false // what was sent has had its effect
		x.Step = next
		return h.Write(ctx, Progress{State: Steps, Message: x.verb(), Step: next})
	}
	return x.signal(ctx)
}

// WaitsForDisks is the message for a machine that is not powered on before those disks are
// attached.
func WaitsForDisks(missing []string) string {
	return fmt.Sprintf("waiting for VirtualDisk %s to be attached: see condition DisksAttached", missing[0])
}

// absent waits for a machine that is not there.
func (x *execution) absent(ctx context.Context) (bool, error) {
	if x.VM.Status.InstanceID == "" {
		return x.waits(ctx, v1alpha1.ReasonInProgress, "waiting for the machine to be created: see condition Ready of the VirtualMachine", nil)
	}
	return x.waits(ctx, v1alpha1.ReasonInstanceLost, claim.InstanceLost(x.VM), nil)
}

func busyReason(task runtime.Task) v1alpha1.ConditionReason {
	if task.Kind == runtime.TaskTakingOver {
		return v1alpha1.ReasonTakingOver
	}
	return v1alpha1.ReasonInProgress
}

// beginning is how the machine was before anything is done: what is achieved is judged against this.
func (x *execution) beginning() Progress {
	p := Progress{State: Begins, Was: Baseline(&x.seen)}
	if _, more := x.next(); more {
		p.Step = v1alpha1.OperationStep(x.step())
	}
	return p
}

// waits shows what is waited for, or what went wrong.
func (x *execution) waits(ctx context.Context, reason v1alpha1.ConditionReason, message string, err error) (bool, error) {
	return x.holder.Write(ctx, Progress{State: Waits, Reason: reason, Message: message, Err: err})
}

// signal tells the runtime, or waits for what it was told. That it is being told is persisted before; then a live look shows
// that the machine is still the holder's, and the lock keeps it so until the runtime has replied.
func (x *execution) signal(ctx context.Context) (bool, error) {
	told := x.Signal == v1alpha1.SignalSent && (x.Step == "" || x.Step == v1alpha1.OperationStep(x.step()))
	if told && !x.asksGuest() && x.seen.LastFailure != "" {
		if did, err := x.waits(ctx, v1alpha1.ReasonAttemptFailed, x.seen.LastFailure, nil); did || err != nil {
			return did, err
		}
	}
	switch {
	case x.asksGuest() && x.outOfGrace():
		return x.holder.Write(ctx, Progress{State: Forces})
	case told && x.asksGuest():
		return x.awaitGuest(ctx)
	case x.asksGuest() && x.seen.Power == v1alpha1.PowerPaused: // since it was admitted; to wait would keep the machine from being started
		return x.holder.Write(ctx, Progress{State: Hopeless, Message: cannotHear})
	case x.sent:
		x.Later()
		return false, nil
	case x.Hold != nil && x.Hold(x.step()):
		return false, nil
	case x.step() == runtime.TaskPowerOn && len(claim.MissingDisks(x.VM, &x.seen)) > 0:
		x.Later()
		return x.waits(ctx, v1alpha1.ReasonInProgress, WaitsForDisks(claim.MissingDisks(x.VM, &x.seen)), nil)
	}
	if may, did, err := x.sized(ctx); !may {
		return did, err
	}
	send := x.sender(x.at.rt)
	if send == nil {
		return x.holder.Write(ctx, Progress{State: Hopeless, Message: cannotMove})
	}
	if x.ReadOnly { // before anything is written down
		return x.notSent(ctx, runtime.ErrReadOnly)
	}
	if !told { // or it is not known, after a crash or a lost reply: that nothing is in flight shows that it may be sent again
		if _, err := x.holder.Write(ctx, Progress{State: Sending, Message: x.verb(), Step: v1alpha1.OperationStep(x.step())}); err != nil {
			return false, err
		}
	}
	if same, err := x.Unchanged(ctx); err != nil || !same {
		return !same, err
	}
	if err := x.Tell(ctx, send); err != nil {
		return x.notSent(ctx, err)
	}
	return x.wasSent(ctx)
}

// wasSent has it written down that the runtime was told. If a holder that need not know sees the goal reached at once, that is
// written instead: it is what a process finds that follows one that ended before it could write.
func (x *execution) wasSent(ctx context.Context) (bool, error) {
	sent := Progress{State: Sent, Message: x.verb(), Step: v1alpha1.OperationStep(x.step())}
	if x.Brief {
		if x.observe(ctx); x.at.err == nil {
			x.seen = x.at.seen
		}
		if x.at.err == nil && x.done() {
			if err := x.holder.Saw(ctx, &x.seen, true); err != nil {
				return false, err
			}
			sent.State, sent.Message = Done, x.achieved()
		}
	}
	_, err := x.holder.Write(ctx, sent)
	return true, err
}

// notSent deals with an error of the runtime. It is tried again, but for a move that the runtime refuses though nothing is in
// flight: nobody can say when a node will meet the target, and the machine is not to be held for that. And a guest that cannot be
// asked does not have its time.
func (x *execution) notSent(ctx context.Context, err error) (bool, error) {
	if claim.Moves(x.Type) && runtime.IsInvalidState(err) {
		x.observe(ctx)
		if x.at.err == nil && x.at.seen.Quiet() {
			return x.holder.Write(ctx, Progress{State: Hopeless, Message: runtime.Message(err)})
		}
	}
	if x.Grace != nil && runtime.IsToolsUnavailable(err) {
		return x.holder.Write(ctx, Progress{State: Forces})
	}
	x.Troubled("calling the runtime for "+x.holder.String(), err)
	reason := runtime.Reason(err)
	if reason == v1alpha1.ReasonRuntimeFailed {
		reason = v1alpha1.ReasonAttemptFailed
	}
	_, noted := x.waits(ctx, reason, runtime.Message(err), err)
	return false, noted
}

// outOfGrace reports whether the guest has had its time, or cannot have any.
func (x *execution) outOfGrace() bool {
	if x.Grace == nil {
		return false
	}
	return *x.Grace == 0 || x.seen.Power == v1alpha1.PowerPaused ||
		(x.GuestAskedAt != nil && !x.Time.Before(x.GuestAskedAt.Add(*x.Grace)))
}

// awaitGuest waits for a guest that was asked, as long as it has time.
func (x *execution) awaitGuest(ctx context.Context) (bool, error) {
	x.Later()
	if x.Grace == nil || x.GuestAskedAt == nil {
		return x.waits(ctx, v1alpha1.ReasonInProgress, "waiting for the guest to shut down", nil)
	}
	until := x.GuestAskedAt.Add(*x.Grace)
	x.Wait(until.Sub(x.Time))
	return x.waits(ctx, v1alpha1.ReasonInProgress,
		fmt.Sprintf("waiting for the guest to shut down (until %s)", until.UTC().Format(time.RFC3339)), nil)
}
