package model

import (
	"context"
	"fmt"
	goruntime "runtime"
	"runtime/debug"
	"time"

	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/reconcilers/drive"
	"sallyport.dev/sallyport/reconcilers/operation"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/virtualmachine"
)

// role is one of the reconcilers of a process.
type role string

const (
	ofOperations role = "operations"
	ofMachines   role = "machines"
)

// task is what a queue hands out.
type task struct {
	role
	key types.NamespacedName
}

// process is one replica of the manager from the moment at which it becomes the leader.
type process struct {
	name        string
	model       *model
	reconcilers map[role]interface {
		Reconcile(context.Context, ctrl.Request) (ctrl.Result, error)
	}
	until   time.Time // it must not send before
	deposed bool      // it has lost its lease and does not know
	dead    bool
	seen    int // how many of the store's writes its caches have seen
	workers []*worker
}

// newProcess makes a leader that waits so long before it sends.
func (m *model) newProcess(wait time.Duration) *process {
	m.processes++
	p := &process{name: fmt.Sprintf("leader-%d", m.processes), model: m, until: time.Now().Add(wait), seen: len(m.store.log)}
	limits := runtime.Limits{Call: callTimeout, Wait: func() time.Duration { return time.Until(p.until) }}
	if m.noWait {
		limits.Wait = nil
	}
	// Between its last look and its call a process may stand still for long, and the call itself may be on its way for long.
	var world runtime.Runtime = m.world.Client(p.name)
	if m.hibernates {
		world = m.world.Hibernating(p.name)
	}
	rt := runtime.NewClient(world, outside, limits.Keep, underWay)
	runtimes := func(context.Context, *v1alpha1.VirtualMachine) (*runtime.Client, error) { return rt, nil }
	cached, live := &apiClient{process: p, cached: true}, &apiClient{process: p}
	driver := &drive.Driver{Client: cached, Live: live, Locks: &claim.Locks{}, Runtimes: runtimes, Now: time.Now}
	p.reconcilers = map[role]interface {
		Reconcile(context.Context, ctrl.Request) (ctrl.Result, error)
	}{
		ofOperations: &operation.Reconciler{Driver: driver, Arbiter: &arbiter{m}, Events: noEvents{}},
		ofMachines:   &virtualmachine.Reconciler{Driver: driver, Events: noEvents{}},
	}
	return p
}

type noEvents struct{}

func (noEvents) Eventf(kruntime.Object, kruntime.Object, string, string, string, string, ...any) {}

// worker is one Reconcile on its way.
type worker struct {
	*process
	task
	at     *call // what it is about to do; nil while it waits for a lock, and once it is done
	resume chan verdict
	done   bool
	result ctrl.Result
	err    error
	claim  *v1alpha1.VirtualMachine // its machine as it last read it
}

// call is what a worker is about to do. Its text is made only when somebody reads it.
type call struct {
	verb    string
	write   bool
	outside bool          // it is not on its way yet
	object  client.Object // of the API server
}

func (c *call) String() string {
	if c.object == nil || c.object.GetName() == "" {
		return c.verb
	}
	return c.verb + " " + c.object.GetName()
}

// verdict is what the scheduler has in store for a call.
type verdict int

const (
	goOn  verdict = iota
	die           // the process is no more: the call is not made
	fail          // the call is not made, and fails
	lose          // the call is made, and fails all the same
	touch         // somebody else writes the object first
)

type workerKey struct{}

func workerOf(ctx context.Context) *worker {
	w, _ := ctx.Value(workerKey{}).(*worker)
	return w
}

// start has the process take a task off its queue. A queue hands out nothing twice at a time.
func (p *process) start(of task) *worker {
	w := &worker{process: p, task: of, resume: make(chan verdict)}
	p.workers = append(p.workers, w)
	go func() {
		defer func() {
			w.done = true
			if r := recover(); r != nil {
				p.model.violated("%s panicked: %v\n%s", w, r, debug.Stack())
			}
		}()
		ctx := context.WithValue(context.Background(), workerKey{}, w)
		w.result, w.err = p.reconcilers[of.role].Reconcile(ctx, ctrl.Request{NamespacedName: of.key})
	}()
	p.model.wait()
	return w
}

// String names the worker in traces.
func (w *worker) String() string { return fmt.Sprintf("%s/%s(%s)", w.name, w.role, w.key.Name) }

// busy tells whether the task is being worked on.
func (p *process) busy(with task) bool {
	for _, w := range p.workers {
		if w.task == with && !w.done {
			return true
		}
	}
	return false
}

// parked gives the workers that wait for the scheduler, and forgets those that are done.
func (p *process) parked() []*worker {
	var going, parked []*worker
	for _, w := range p.workers {
		if !w.done {
			going = append(going, w)
		}
		if !w.done && w.at != nil {
			parked = append(parked, w)
		}
	}
	p.workers = going
	return parked
}

// yield waits until the scheduler lets the call be made.
func (w *worker) yield(c call) verdict {
	if w.dead {
		goruntime.Goexit()
	}
	w.at = &c
	v := <-w.resume
	w.at = nil
	if v == die {
		goruntime.Goexit()
	}
	return v
}

// goOn lets a worker make its call and go on to the next.
func (w *worker) goOn(v verdict) {
	w.model.trace("%s: %s%s", w, w.at, [...]string{"", " - dies", " - fails", " - reply lost", " - somebody else first"}[v])
	w.resume <- v
	w.model.wait()
	if w.done && w.err != nil {
		w.model.trace("%s: ends with %v", w, w.err)
	}
}

// kill ends a process where it is. What it had not sent is never sent.
func (p *process) kill() {
	p.dead = true
	for parked := p.parked(); len(parked) > 0; parked = p.parked() {
		for _, w := range parked {
			w.resume <- die
		}
		p.model.wait()
	}
}
