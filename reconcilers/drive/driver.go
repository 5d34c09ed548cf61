// Package drive carries out claims. It is the only package that sends requests to runtimes.
//
// A [Holder] has the claim on a machine, for an operation or another origin, and returns its [Intent]. The driver
// carries the intent out step by step. For each step it persists what it is about to send, reads the claim live under
// the machine's lock, sends, persists that it has sent, and observes until the step is reached. Holders never call a
// runtime: they persist the progress that the driver passes to them and show it in their status.
//
// No state is kept in memory between two passes. The next pass, also after a crash, derives what is left to do from
// the claim, the records of the holders and the runtime.
package drive

import (
	"cmp"
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

const (
	// maxActions limits the actions of one pass, so that other machines get their turn.
	maxActions = 32
	// rest is how long the next pass waits, if the limit was reached.
	rest = 250 * time.Millisecond

	defaultPoll = 2 * time.Second
)

// Driver drives machines. All reconcilers of machines in a process share one.
type Driver struct {
	// Client writes, and reads from the cache where a stale read is safe.
	Client client.Client
	// Live reads from the API server, without a cache.
	Live client.Reader
	// Runtimes returns the runtime of a machine, within its [runtime.Limits].
	Runtimes func(context.Context, *v1alpha1.VirtualMachine) (*runtime.Client, error)
	// Locks holds a lock for each machine.
	Locks *claim.Locks
	Now   func() time.Time
	// Moved is called after each persisted step of a move by hibernation; it may be nil.
	Moved func(vm *v1alpha1.VirtualMachine, before, after *v1alpha1.Migration, now time.Time)
	// AdmitsSize evaluates the policies for the size in the spec of a machine. An empty reason admits it; any other
	// is that of the denial. An error means that the policies could not be evaluated. Nil admits every size.
	AdmitsSize func(ctx context.Context, vm *v1alpha1.VirtualMachine) (reason v1alpha1.ConditionReason, message string, err error)
	// Poll is the interval at which a busy runtime is observed. Default 2 s.
	Poll time.Duration
	// Halt prevents claims other than for deletion, and the persisting of requests. The clients that Runtimes
	// returns prevent the requests themselves, see [runtime.Client.Halted].
	Halt runtime.Halt
}

// Pass calls act until nothing is due or the limit of actions is reached. act performs the first action that is due
// on a fresh read of the machine, under its lock, and reports whether it changed something, after which everything is
// read again.
func (d *Driver) Pass(
	ctx context.Context, machine types.NamespacedName, act func(context.Context, *Turn) (did bool, err error),
) (ctrl.Result, error) {
	p := &pass{key: machine}
	for range maxActions {
		did, err := d.act(ctx, p, act)
		switch {
		case apierrors.IsConflict(err): // conflict: read again
		case err != nil:
			return ctrl.Result{}, err
		case !did && len(p.troubles) > 0:
			return ctrl.Result{}, errors.Join(p.troubles...)
		case !did:
			return ctrl.Result{RequeueAfter: p.again}, nil
		}
	}
	return ctrl.Result{RequeueAfter: rest}, nil
}

// act locks and reads the machine, and calls act.
func (d *Driver) act(ctx context.Context, p *pass, act func(context.Context, *Turn) (bool, error)) (bool, error) {
	release, err := d.Locks.Lock(ctx, p.key)
	if err != nil {
		return false, err
	}
	defer release()
	p.again, p.troubles = 0, nil
	t := &Turn{Driver: d, pass: p, Time: d.Now()}
	if err := t.Reload(ctx); err != nil {
		return false, err
	}
	if t.VM != nil && t.VM.Status.ActiveOperation != nil {
		ctx = runtime.OfOperation(ctx, t.VM.Status.ActiveOperation.ID)
	}
	return act(ctx, t)
}

// pass is the state of one Pass. It only prevents the same action twice in a row.
type pass struct {
	key      types.NamespacedName
	sent     bool          // a request was sent: its effect is awaited before the next request
	again    time.Duration // when to requeue, 0 for no time
	troubles []error       // errors that do not change what is due
}

func (p *pass) Key() types.NamespacedName { return p.key }

// Wait requeues the machine after that time or earlier.
func (p *pass) Wait(d time.Duration) {
	d = max(d, time.Millisecond)
	if p.again == 0 || d < p.again {
		p.again = d
	}
}

// Trouble records an error; the pass is retried with backoff.
func (p *pass) Trouble(err error) { p.troubles = append(p.troubles, err) }

// Sent reports whether a request of this pass has not had its effect yet.
func (p *pass) Sent() bool { return p.sent }

// Later requeues the machine to observe a busy runtime.
func (t *Turn) Later() { t.Wait(cmp.Or(t.Poll, defaultPoll)) }
