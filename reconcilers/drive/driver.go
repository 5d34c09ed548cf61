// Package drive carries out claims. It is the only package that sends requests to runtimes.
//
// A [Holder] has the claim on a machine, for an operation or for something else, and says what it wants: its [Intent]. The driver
// does that step by step. For each step it persists what it is about to do, looks at the claim live under the machine's lock, sends,
// persists that it has sent, and observes until the step is reached. Holders do nothing to a machine themselves: they persist what
// the driver gives them, and show it in their status.
//
// No state is kept in memory between two passes: the next pass, also after a crash, finds what is left to do in the claim, in the
// records of the holders, and at the runtime.
package drive

import (
	"cmp"
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/fair"
	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

const (
	// maxActions is how many actions one pass does before it lets other machines have their turn.
	maxActions = 32

	defaultPoll = 2 * time.Second

	// firstRetry is the shortest wait after an error.
	firstRetry = 250 * time.Millisecond
)

// Driver drives machines. All reconcilers of machines in a process share one.
type Driver struct {
	// Client writes, and reads from caches what need not be current.
	Client client.Client
	// Live reads past every cache.
	Live client.Reader
	// Runtimes gives the runtime of a machine, within its [runtime.Limits].
	Runtimes func(context.Context, *v1alpha1.VirtualMachine) (*runtime.Client, error)
	// Locks holds a lock for each machine.
	Locks *claim.Locks
	// Now is the clock.
	Now func() time.Time
	// Moved is called each time that a move by hibernation has persisted a step; it may be nil.
	Moved func(vm *v1alpha1.VirtualMachine, before, after *v1alpha1.Migration, now time.Time)
	// AdmitsSize has the policies judge whether a machine may be given the size of its spec now. An empty reason admits it; any other is the
	// denial's. An error means that no ruling could be made. Nil admits every size.
	AdmitsSize func(ctx context.Context, vm *v1alpha1.VirtualMachine) (reason v1alpha1.ConditionReason, message string, err error)
	// Poll is how long to wait before looking again at what a runtime is doing. Default 2 s.
	Poll time.Duration
	// ReadOnly has no machine claimed but for its deletion, and nothing written down as being sent. That nothing is sent is up to the
	// clients that Runtimes gives, see [runtime.Client.ReadOnly].
	ReadOnly bool
}

// Options are those of a controller whose keys are machines. Namespaces take turns. An error is waited for lastRetry at most, which is
// also how late a deadline may be noticed while errors last.
func Options(lastRetry time.Duration) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: 16, // a machine that a runtime takes its time for holds up itself only
		NewQueue:                fair.NewQueue,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
	}
}

// Pass takes a machine further, until nothing is due or it has had its share. It has act do the first thing that is due on a fresh
// look at the machine, under its lock, and tell whether that has changed something, after which everything is looked at anew.
func (d *Driver) Pass(
	ctx context.Context, machine types.NamespacedName, act func(context.Context, *Turn) (did bool, err error),
) (ctrl.Result, error) {
	p := &pass{key: machine}
	for range maxActions {
		did, err := d.act(ctx, p, act)
		switch {
		case apierrors.IsConflict(err): // somebody else was faster: look again
		case err != nil:
			return ctrl.Result{}, err
		case !did && len(p.troubles) > 0:
			return ctrl.Result{}, errors.Join(p.troubles...)
		case !did:
			return ctrl.Result{RequeueAfter: p.again}, nil
		}
	}
	return ctrl.Result{RequeueAfter: firstRetry}, nil
}

// act takes the lock, looks, and has the first thing done that is due.
func (d *Driver) act(ctx context.Context, p *pass, act func(context.Context, *Turn) (bool, error)) (bool, error) {
	release, err := d.Locks.Lock(ctx, p.key)
	if err != nil {
		return false, err
	}
	defer release()
	p.again, p.troubles = 0, nil
	t := &Turn{Driver: d, pass: p, Time: d.Now()}
	if err := t.Look(ctx); err != nil {
		return false, err
	}
	return act(ctx, t)
}

// pass is one Pass. What it remembers from turn to turn only keeps it from doing the same thing twice in a row.
type pass struct {
	key      types.NamespacedName
	sent     bool          // something was sent: its effect is waited for before anything is sent again
	again    time.Duration // when to look again, 0 for when something changes
	troubles []error       // what went wrong without changing what is due
}

// Key is the name of the machine's VirtualMachine.
func (p *pass) Key() types.NamespacedName { return p.key }

// Wait has the machine looked at again after that time, or sooner.
func (p *pass) Wait(d time.Duration) {
	d = max(d, time.Millisecond)
	if p.again == 0 || d < p.again {
		p.again = d
	}
}

// Trouble has everything tried again, later and later.
func (p *pass) Trouble(err error) { p.troubles = append(p.troubles, err) }

// Sent reports whether something was sent in this pass that has not yet had its effect.
func (p *pass) Sent() bool { return p.sent }

// Later has the machine looked at again while the runtime is busy with it.
func (t *Turn) Later() { t.Wait(cmp.Or(t.Poll, defaultPoll)) }
