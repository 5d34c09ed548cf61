package drive

import (
	"context"
	"fmt"
	"time"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// execution is a plan being carried out for the holder of the machine.
type execution struct {
	*Turn
	plan
	holder Holder
}

// Reached reports whether the observed machine has reached the holder's intent and nothing is in flight.
func (t *Turn) Reached(ctx context.Context, h Holder) bool {
	seen, err := t.Observe(ctx)
	return err == nil && (&plan{Intent: h.Intent(), Record: h.Record(), seen: seen, moves: underway(t.VM.Status.Migration)}).done()
}

// Advance carries out the next step of the holder, once nothing of earlier holders is in flight: the holder persists
// the baseline, the driver sends the next request to the runtime, and completes when the goal is observed. Each call
// takes one action, and reports whether everything must be read again.
func (t *Turn) Advance(ctx context.Context, h Holder) (bool, error) {
	x := &execution{Turn: t, holder: h, plan: plan{Intent: h.Intent(), Record: h.Record(), moves: underway(t.VM.Status.Migration)}}
	observe := t.Observe
	if x.goal() == runtime.TaskDelete {
		observe = t.observeOurs
	}
	var err error
	if x.seen, err = observe(ctx); err != nil {
		t.Troubled("observing the machine of "+h.String(), err)
		return x.writeWaiting(ctx, runtime.Reason(err), runtime.Message(err), err)
	}
	done := x.done()
	if err := h.Saw(ctx, &x.seen, done); err != nil {
		return false, err
	}
	next, more := x.next()
	switch {
	case !done && x.hibernates():
		return x.hibernate(ctx)
	case !x.seen.Quiet() && !x.overrules():
		t.Later()
		return h.Write(ctx, Progress{State: Busy, Reason: busyReason(x.seen.InFlight[0]), Message: x.seen.Doing(), Task: x.seen.InFlight[0]})
	case !x.seen.Exists && !x.reached():
		t.Later()
		return x.waitForInstance(ctx)
	case done:
		return h.Write(ctx, Progress{State: Done, Message: x.achieved()})
	case x.Was == nil && x.goal() != runtime.TaskDelete: // deletion needs no baseline
		return h.Write(ctx, x.baselineProgress())
	case more && x.effectSeen(x.step()):
		t.sent = false // the request has had its effect
		x.Step = next
		return h.Write(ctx, Progress{State: Steps, Message: x.verb(), Step: next})
	}
	return x.signal(ctx)
}

// overrules reports whether the next request need not wait for what others have in flight: a move that KubeVirt cannot finish, or a start
// that no node takes, would otherwise keep users from stopping or deleting the machine.
func (x *execution) overrules() bool {
	switch step := x.step(); {
	case !x.seen.Yields():
		return false
	case step == runtime.TaskPowerOff:
		return !x.effectSeen(step) && (x.Force || x.startedByOthers())
	default:
		return step == runtime.TaskDelete && x.seen.Adopted
	}
}

// WaitsForDisks returns the message for a machine that is not powered on before those disks are attached.
func WaitsForDisks(missing []string) string {
	return fmt.Sprintf("waiting for VirtualDisk %s to be attached: see condition DisksAttached", missing[0])
}

// waitForInstance waits for an instance that does not exist yet, or reports that it is lost.
func (x *execution) waitForInstance(ctx context.Context) (bool, error) {
	switch {
	case x.seen.Unadopted:
		return x.writeWaiting(ctx, v1alpha1.ReasonInProgress, "waiting for the machine to be adopted: see condition Ready of the VirtualMachine", nil)
	case x.VM.Status.InstanceID == "":
		return x.writeWaiting(ctx, v1alpha1.ReasonInProgress, "waiting for the machine to be created: see condition Ready of the VirtualMachine", nil)
	}
	return x.writeWaiting(ctx, v1alpha1.ReasonInstanceLost, claim.InstanceLost(x.VM), nil)
}

func busyReason(task runtime.Task) v1alpha1.ConditionReason {
	if task.Kind == runtime.TaskTakingOver {
		return v1alpha1.ReasonTakingOver
	}
	return v1alpha1.ReasonInProgress
}

// baselineProgress returns the progress with which the holder persists the state of the machine before the first
// request.
func (x *execution) baselineProgress() Progress {
	p := Progress{State: Begins, Was: Baseline(&x.seen)}
	if _, more := x.next(); more {
		p.Step = v1alpha1.OperationStep(x.step())
	}
	return p
}

// writeWaiting persists what the holder waits for, or an error.
func (x *execution) writeWaiting(ctx context.Context, reason v1alpha1.ConditionReason, message string, err error) (bool, error) {
	return x.holder.Write(ctx, Progress{State: Waits, Reason: reason, Message: message, Err: err})
}

// signal sends the request of the current step to the runtime, or waits for the effect of one already sent. The
// intent to send is persisted first; then a live read confirms the claim, and the lock protects it until the runtime
// has replied.
func (x *execution) signal(ctx context.Context) (bool, error) {
	alreadySent := x.Signal == v1alpha1.SignalSent && (x.Step == "" || x.Step == v1alpha1.OperationStep(x.step()))
	if alreadySent && !x.asksGuest() && x.seen.LastFailure != "" {
		if did, err := x.writeWaiting(ctx, v1alpha1.ReasonAttemptFailed, x.seen.LastFailure, nil); did || err != nil {
			return did, err
		}
	}
	switch {
	case x.asksGuest() && x.graceExpired():
		return x.holder.Write(ctx, Progress{State: Forces})
	case alreadySent && x.asksGuest():
		return x.awaitGuest(ctx)
	case x.asksGuest() && x.seen.Power == v1alpha1.PowerPaused: // suspended after the operation was admitted; waiting would block a start
		return x.holder.Write(ctx, Progress{State: Hopeless, Message: guestSuspended})
	case x.sent:
		x.Later()
		return false, nil
	case x.Hold != nil && x.Hold(x.step()):
		return false, nil
	case x.step() == runtime.TaskPowerOn && len(claim.MissingDisks(x.VM, &x.seen)) > 0:
		x.Later()
		return x.writeWaiting(ctx, v1alpha1.ReasonInProgress, WaitsForDisks(claim.MissingDisks(x.VM, &x.seen)), nil)
	}
	if may, did, err := x.allocateForStart(ctx); !may {
		return did, err
	}
	send := x.sender(x.observed.rt)
	if send == nil {
		return x.holder.Write(ctx, Progress{State: Hopeless, Message: cannotMove})
	}
	if halt := x.Halt.Err(); halt != nil { // before anything is persisted
		return x.handleSendError(ctx, halt)
	}
	if !alreadySent { // after a crash or a lost reply it is unknown whether it was sent; nothing is in flight, so it is safe to send again
		if _, err := x.holder.Write(ctx, Progress{State: Sending, Message: x.verb(), Step: v1alpha1.OperationStep(x.step())}); err != nil {
			return false, err
		}
	}
	if same, err := x.Unchanged(ctx); err != nil || !same {
		return !same, err
	}
	if err := x.Call(ctx, send); err != nil {
		return x.handleSendError(ctx, err)
	}
	return x.recordSent(ctx)
}

// recordSent persists that the request was sent. For a brief intent that is already reached, it persists completion
// instead: a process that takes over reads the same result from the runtime.
func (x *execution) recordSent(ctx context.Context) (bool, error) {
	sent := Progress{State: Sent, Message: x.verb(), Step: v1alpha1.OperationStep(x.step())}
	if x.Brief {
		if x.observe(ctx); x.observed.err == nil {
			x.seen = x.observed.seen
		}
		if x.observed.err == nil && x.done() {
			if err := x.holder.Saw(ctx, &x.seen, true); err != nil {
				return false, err
			}
			sent.State, sent.Message = Done, x.achieved()
		}
	}
	_, err := x.holder.Write(ctx, sent)
	return true, err
}

// handleSendError handles an error of the runtime. The call is retried, except for a move that the runtime rejects
// although nothing is in flight: it is unknown when a node will fit, and the machine must not stay claimed for that.
// Without guest tools the grace period is skipped.
func (x *execution) handleSendError(ctx context.Context, err error) (bool, error) {
	if claim.Moves(x.Type) && runtime.IsInvalidState(err) {
		x.observe(ctx)
		if seen := &x.observed.seen; x.observed.err == nil && seen.Quiet() && seen.Plugging == "" {
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
	_, writeErr := x.writeWaiting(ctx, reason, runtime.Message(err), err)
	return false, writeErr
}

// graceExpired reports whether the grace period is over or does not apply.
func (x *execution) graceExpired() bool {
	if x.Grace == nil {
		return false
	}
	return *x.Grace == 0 || x.seen.Power == v1alpha1.PowerPaused ||
		(x.GuestAskedAt != nil && !x.Time.Before(x.GuestAskedAt.Add(*x.Grace)))
}

// awaitGuest waits for the guest to shut down, until the grace period ends.
func (x *execution) awaitGuest(ctx context.Context) (bool, error) {
	x.Later()
	if x.Grace == nil || x.GuestAskedAt == nil {
		return x.writeWaiting(ctx, v1alpha1.ReasonInProgress, "waiting for the guest to shut down", nil)
	}
	until := x.GuestAskedAt.Add(*x.Grace)
	x.Wait(until.Sub(x.Time))
	return x.writeWaiting(ctx, v1alpha1.ReasonInProgress,
		fmt.Sprintf("waiting for the guest to shut down (until %s)", until.UTC().Format(time.RFC3339)), nil)
}
