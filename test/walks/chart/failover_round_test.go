package chart

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/double/fake"
	"sallyport.dev/sallyport/test/support/env/install"
	"sallyport.dev/sallyport/test/support/sim"
)

// round is one "Stop over a stuck Start", in a namespace of its own: the Start's power-on never ends, a Stop takes its place,
// and the power-on, asked to end, goes through all the same, so that the Stop has something to do. Somewhere in between the
// process that does all this is ended.
type round struct {
	*testing.T
	namespace string
	uid       types.UID
	point     point
	how       func(*install.Manager) error
	letGo     func() // lets the power-on end

	mu         sync.Mutex
	state      state
	takingOver bool          // a condition has said so
	killed     chan struct{} // closed when the process is gone
	victim     string
	when       time.Time
}

// state is what the API server has of the round, as its watches show it.
type state struct {
	vm          v1alpha1.VirtualMachine
	start, stop v1alpha1.VirtualMachineOperation
}

// point is where in the round the process is ended: once the API server has a state, or at a moment of a call.
type point struct {
	name   string
	seen   func(*state) bool
	verb   runtime.Verb
	moment sim.Moment
}

func newRound(t *testing.T, namespace string, p point, how func(*install.Manager) error) *round {
	t.Helper()
	r := &round{T: t, namespace: namespace, point: p, how: how, killed: make(chan struct{})}
	if err := stack.pair.forgive(); err != nil {
		t.Fatal(err)
	}
	r.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	vm := &v1alpha1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web-1"},
		Spec: v1alpha1.VirtualMachineSpec{
			RunPolicy: v1alpha1.RunPolicyManual,
			Runtime:   v1alpha1.VirtualMachineRuntime{Pod: &v1alpha1.PodRuntime{}},
		},
	}
	r.create(vm)
	r.get("web-1", vm)
	r.uid = vm.UID
	stack.world.SetCancels(r.uid, fake.Cancels{Ignored: true})
	r.letGo = stack.world.Hold(r.uid, runtime.TaskPowerOn)
	t.Cleanup(r.letGo)
	return r
}

// play plays the round up to its end, and gives how it ended.
func (r *round) play(want *ending) ending {
	r.Helper()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	r.watch(ctx, &v1alpha1.VirtualMachineList{})
	r.watch(ctx, &v1alpha1.VirtualMachineOperationList{})
	r.await("the machine to be seen", func(s *state) bool { return s.vm.Status.Phase == v1alpha1.VirtualMachineStopped })
	r.ask("start-1", v1alpha1.OperationStart)
	r.await("the Start to be stuck", func(s *state) bool {
		return signalSent(&s.start) == metav1.ConditionTrue && s.vm.Status.Phase == v1alpha1.VirtualMachineStarting
	})
	stack.sim.Intercept(r.intercept)
	defer stack.sim.Intercept(nil)
	r.ask("stop-1", v1alpha1.OperationStop)
	if r.point.name != "" {
		r.until("the process to be at "+r.point.name, func() bool {
			select {
			case <-r.killed:
				return true
			default:
				return false
			}
		})
	}
	var got ending
	r.until("the end", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		got = endingOf(&r.state, r.uid)
		return r.state.over() && (want == nil || got.same(*want))
	}, func() string { return fmt.Sprintf("it is\n%s\nand is to be\n%s", got, want) })
	return got
}

// over tells that there is nothing left to do.
func (s *state) over() bool {
	return s.start.Finished() && s.stop.Finished() && !s.vm.Busy() && len(s.start.Finalizers)+len(s.stop.Finalizers) == 0 &&
		s.vm.Status.Phase == v1alpha1.VirtualMachineStopped && meta.IsStatusConditionTrue(s.vm.Status.Conditions, string(v1alpha1.ConditionReady))
}

func signalSent(o *v1alpha1.VirtualMachineOperation) metav1.ConditionStatus {
	if c := meta.FindStatusCondition(o.Status.Conditions, string(v1alpha1.ConditionSignalSent)); c != nil {
		return c.Status
	}
	return ""
}

// intercept ends the process at a moment of its call, and has the power-on end once it was to be cancelled.
func (r *round) intercept(moment sim.Moment, call sim.Call) bool {
	if call.Machine.UID != r.uid {
		return true
	}
	at := call.Verb == r.point.verb && moment == r.point.moment && r.end(call.Client)
	if moment == sim.After && call.Verb == runtime.VerbCancel {
		r.letGo()
	}
	return !at
}

// end ends the process, the first time that it is called.
func (r *round) end(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.victim != "" {
		return false
	}
	r.victim, r.when = name, time.Now()
	if err := stack.pair.end(name, r.how); err != nil {
		r.Errorf("ending %s: %v", name, err)
	}
	close(r.killed)
	return true
}

// watch follows what the API server has, and ends the process when the point is reached.
func (r *round) watch(ctx context.Context, list client.ObjectList) {
	r.Helper()
	w, err := stack.client.Watch(ctx, list, client.InNamespace(r.namespace))
	if err != nil {
		r.Fatal(err)
	}
	go func() {
		defer w.Stop()
		for e := range w.ResultChan() {
			if object, ok := e.Object.(client.Object); ok && r.follow(object) {
				r.end(worker(r.uid))
			}
		}
	}()
}

// follow takes note of a change, and tells whether it is the point.
func (r *round) follow(object client.Object) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	var conditions []metav1.Condition
	switch o := object.(type) {
	case *v1alpha1.VirtualMachine:
		r.state.vm, conditions = *o, o.Status.Conditions
	case *v1alpha1.VirtualMachineOperation:
		conditions = o.Status.Conditions
		if o.Name == "start-1" {
			r.state.start = *o
		} else {
			r.state.stop = *o
		}
	}
	for _, c := range conditions {
		r.takingOver = r.takingOver || strings.Contains(c.Reason+c.Message, string(runtime.TaskTakingOver))
	}
	return r.point.seen != nil && r.point.seen(&r.state)
}

// worker names the process that works on the machine: the last that called about it.
func worker(machine types.UID) (name string) {
	for _, c := range stack.sim.Calls() {
		if c.Machine.UID == machine {
			name = c.Client
		}
	}
	return name
}

// ask creates an operation.
func (r *round) ask(name string, kind v1alpha1.OperationType) {
	r.Helper()
	r.create(&v1alpha1.VirtualMachineOperation{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: name},
		Spec:       v1alpha1.VirtualMachineOperationSpec{Type: kind, VirtualMachineName: "web-1"},
	})
}

// create creates an object, and tries again while nobody answers for the webhooks.
func (r *round) create(object client.Object) {
	r.Helper()
	var last error
	r.until("creating "+object.GetName(), func() bool {
		last = stack.client.Create(r.Context(), object.DeepCopyObject().(client.Object))
		if apierrors.IsForbidden(last) || apierrors.IsInvalid(last) {
			r.Fatal(last)
		}
		return last == nil || apierrors.IsAlreadyExists(last)
	}, func() string { return fmt.Sprint(last) })
}

func (r *round) get(name string, object client.Object) {
	r.Helper()
	if err := stack.client.Get(r.Context(), types.NamespacedName{Namespace: r.namespace, Name: name}, object); err != nil {
		r.Fatal(err)
	}
}

func (r *round) await(what string, is func(*state) bool) {
	r.Helper()
	r.until(what, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return is(&r.state)
	})
}

// until waits for a condition. Meanwhile a manager that ended by itself is started again, as it would be in a cluster.
func (r *round) until(what string, is func() bool, more ...func() string) {
	r.Helper()
	err := wait.PollUntilContextTimeout(r.Context(), 20*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		return is(), stack.pair.revive()
	})
	if err != nil {
		var said []string
		for _, m := range more {
			said = append(said, m())
		}
		r.Fatalf("waiting for %s: %v\n%s", what, errors.Join(err, r.Context().Err()), strings.Join(said, "\n"))
	}
}
