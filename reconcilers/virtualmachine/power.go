package virtualmachine

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// byAdoption is who has set the power intent of a machine that was found in that state.
const byAdoption = "Adoption"

// adopt takes the state in which a machine was found for what is wanted of it, until somebody wants something else.
func (l *look) adopt() {
	if !l.seen.Exists || !l.seen.Adopted || l.vm.Status.PowerIntent != nil || l.vm.Status.ActiveOperation != nil {
		return
	}
	state := v1alpha1.PowerStopped
	if l.seen.Power != v1alpha1.PowerStopped {
		state = v1alpha1.PowerRunning
	}
	l.vm.Status.PowerIntent = &v1alpha1.PowerIntent{State: state, By: byAdoption, At: l.micro()}
}

// wanted is the power state that the run policy keeps, and nothing if it leaves the machine as it is.
func (l *look) wanted() v1alpha1.PowerState {
	switch l.vm.Spec.RunPolicy {
	case v1alpha1.RunPolicyAlwaysOn:
		return v1alpha1.PowerRunning
	case v1alpha1.RunPolicyAlwaysOff:
		return v1alpha1.PowerStopped
	case v1alpha1.RunPolicyManual:
		return ""
	}
	if intent := l.vm.Status.PowerIntent; intent != nil && intent.State == v1alpha1.PowerStopped && intent.By != string(v1alpha1.OriginRunPolicy) {
		return "" // somebody stopped it; the run policy itself did when it was AlwaysOff
	}
	return v1alpha1.PowerRunning
}

// is tells whether the machine is in that power state. One that somebody has paused is not off, and is not started.
func (l *look) is(power v1alpha1.PowerState) bool {
	return (l.seen.Power == v1alpha1.PowerStopped) == (power == v1alpha1.PowerStopped)
}

// run has the run policy take the machine if it is not in the power state that is wanted, get it there, and let it go.
func (r *Reconciler) run(ctx context.Context, l *look) (bool, error) {
	held := l.vm.Status.ActiveOperation
	switch {
	case !l.seen.Exists && held != nil: // gone while it was started or stopped
		return r.withdraw(ctx, l, v1alpha1.EndFailed)
	case !l.seen.Exists:
		return false, nil
	case held != nil && l.seen.Quiet() && l.is(claim.Leaves(held.Type)):
		return r.finish(ctx, l)
	case held != nil && claim.Leaves(held.Type) != l.wanted():
		return r.withdraw(ctx, l, v1alpha1.EndDeleted)
	case held != nil && l.overdue(held):
		return r.withdraw(ctx, l, v1alpha1.EndDeadlineExceeded)
	case !l.seen.Quiet():
		r.poll(l.pass)
		l.waits = l.seen.InFlight[0].Doing()
		return false, nil
	case held == nil:
		return r.take(ctx, l)
	case held.Type == v1alpha1.OperationStop:
		return r.powerOff(ctx, l)
	}
	return r.powerOn(ctx, l)
}

// overdue tells whether a start takes longer than an operation may. A Stop has the guest's time, and then is forced.
func (l *look) overdue(held *v1alpha1.ActiveOperation) bool {
	return held.Type == v1alpha1.OperationStart && l.now.After(held.ClaimedAt.Add(v1alpha1.DefaultActiveDeadline))
}

// take has the run policy take a machine that is not as it is wanted.
func (r *Reconciler) take(ctx context.Context, l *look) (bool, error) {
	want := l.wanted()
	if want == "" || l.is(want) || (want == v1alpha1.PowerRunning && r.tooSoon(l)) {
		return false, nil
	}
	next := claim.Holder{ID: string(uuid.NewUUID()), Origin: v1alpha1.OriginRunPolicy, Type: v1alpha1.OperationStart}
	if want == v1alpha1.PowerStopped {
		next.Type = v1alpha1.OperationStop
	}
	if err := claim.Take(&l.vm.Status, next, nil, l.micro()); err != nil {
		return false, fmt.Errorf("taking VirtualMachine %s for its run policy: %w", l.key, err)
	}
	claim.Record(l.vm, &l.seen, false)
	did, err := r.save(ctx, l)
	if err == nil {
		r.tell(l, corev1.EventTypeNormal, v1alpha1.ReasonOperationInProgress, string(next.Type), "%s by run policy %s: the machine was found %s", next.Type, l.vm.Spec.RunPolicy, l.seen.Power)
	}
	return did, err
}

// finish lets the machine go, which is where the run policy wants it.
func (r *Reconciler) finish(ctx context.Context, l *look) (bool, error) {
	held := *l.vm.Status.ActiveOperation
	if err := claim.Finish(&l.vm.Status, held.ID); err != nil {
		return false, fmt.Errorf("letting VirtualMachine %s go: %w", l.key, err)
	}
	claim.Record(l.vm, &l.seen, true)
	if held.Type == v1alpha1.OperationStop { // it did not go off by itself
		r.starts().Reset(l.key.String())
	}
	did, err := r.save(ctx, l)
	if err == nil {
		r.tell(l, corev1.EventTypeNormal, v1alpha1.ReasonAsWanted, string(held.Type), "%s by run policy %s is done: the machine is %s", held.Type, l.vm.Spec.RunPolicy, l.seen.Power)
	}
	return did, err
}

// withdraw lets the machine go without success: what was begun is undone.
func (r *Reconciler) withdraw(ctx context.Context, l *look, end v1alpha1.UndoEnd) (bool, error) {
	if err := claim.Withdraw(&l.vm.Status, l.vm.Status.ActiveOperation.ID, end); err != nil {
		return false, fmt.Errorf("giving VirtualMachine %s up: %w", l.key, err)
	}
	l.vm.Status.Phase = claim.Phase(l.vm, nil, false)
	return r.save(ctx, l)
}

// powerOn has the runtime start the machine. What becomes of it shows at the next looks.
func (r *Reconciler) powerOn(ctx context.Context, l *look) (bool, error) {
	switch {
	case l.sent:
		r.poll(l.pass)
		return false, nil
	case r.tooSoon(l):
		return false, nil
	}
	did, err := r.send(ctx, l, func() error { return l.rt.PowerOn(ctx, runtime.MachineOf(l.vm)) })
	if l.sent {
		r.starts().Next(l.key.String(), l.now)
	}
	return did, err
}

// powerOff gets the machine off for who holds it: it asks the guest, and takes the power away when the guest has had its time
// or cannot be asked. When it was asked and that it is to be forced are written down before.
func (r *Reconciler) powerOff(ctx context.Context, l *look) (bool, error) {
	held := l.vm.Status.ActiveOperation
	grace := l.vm.Spec.TerminationGracePeriod()
	switch {
	case held.Force && l.sent:
		r.poll(l.pass)
		return false, nil
	case held.Force:
		return r.send(ctx, l, func() error { return l.rt.PowerOff(ctx, runtime.MachineOf(l.vm), runtime.Forced) })
	case grace == 0, l.seen.Power == v1alpha1.PowerPaused, held.GuestAskedAt != nil && !l.now.Before(held.GuestAskedAt.Add(grace)):
		return r.force(ctx, l)
	case held.GuestAskedAt == nil:
		held.GuestAskedAt = new(metav1.MicroTime)
		*held.GuestAskedAt = l.micro()
		return r.save(ctx, l)
	}
	until := held.GuestAskedAt.Add(grace)
	l.wait(until.Sub(l.now))
	r.poll(l.pass)
	l.waits = fmt.Sprintf("the guest was asked to shut down, and has time until %s", until.UTC().Format(time.RFC3339))
	if asked, _ := r.asked.Load(l.key); asked == held.ID {
		return false, nil
	}
	did, err := r.send(ctx, l, func() error { return l.rt.PowerOff(ctx, runtime.MachineOf(l.vm), runtime.Graceful) })
	switch {
	case runtime.IsToolsUnavailable(l.err):
		return r.force(ctx, l)
	case l.sent:
		l.sent = false // asking is nothing that is in flight
		r.asked.Store(l.key, held.ID)
	}
	return did, err
}

// force gives up on the guest.
func (r *Reconciler) force(ctx context.Context, l *look) (bool, error) {
	l.vm.Status.ActiveOperation.Force = true
	return r.save(ctx, l)
}
