package model

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/double/fake"
)

const namespace = corev1.NamespaceDefault

// leaseDuration is how long a new leader waits before it sends.
const leaseDuration = 15 * time.Second

// options are what a model leaves out.
type options struct {
	// noWait has a new leader send at once, which is wrong: it is there to see that the model finds it.
	noWait bool
	// withoutMachines leaves the reconciler of machines out.
	withoutMachines bool
	// hibernates has machines be moved by hibernation.
	hibernates bool
}

// model is one run: the world, the API server, and the processes that have led.
type model struct {
	options
	tables *tables
	store  *store
	world  *fake.World

	leader, old *process // old has lost its lease and does not know
	processes   int
	touched     int
	asked       int // operations
	effects     int // how many of the world's effects are checked
	releases    []func()
	interrupt   func(*worker) (v verdict, over bool) // asked before each call that is driven

	history
	lines       []line
	violation   string
	deadForGood []string // nodes
	stats       stats
}

// stats counts what happened, to see that a run is worth something.
type stats struct {
	runs, operations, crashes, failovers, faults, calls, writes, signals, superseded, undone, deletions, slept, woken, restored int

	claims map[v1alpha1.ClaimOrigin]int
}

// claimed counts claims of an origin.
func (s *stats) claimed(by v1alpha1.ClaimOrigin, n int) {
	if s.claims == nil {
		s.claims = map[v1alpha1.ClaimOrigin]int{}
	}
	s.claims[by] += n
}

func (s *stats) add(o stats) {
	s.runs += o.runs
	s.operations += o.operations
	s.crashes += o.crashes
	s.failovers += o.failovers
	s.faults += o.faults
	s.calls += o.calls
	s.writes += o.writes
	s.signals += o.signals
	s.superseded += o.superseded
	s.undone += o.undone
	s.deletions += o.deletions
	s.slept += o.slept
	s.woken += o.woken
	s.restored += o.restored
	for by, n := range o.claims {
		s.claimed(by, n)
	}
}

// line is a line of the trace. Its text is made only for runs that fail.
type line struct {
	format string
	args   []any
}

func (m *model) trace(format string, args ...any) { m.lines = append(m.lines, line{format, args}) }

// violated notes the first violation of an invariant.
func (m *model) violated(format string, args ...any) {
	if m.violation == "" {
		m.violation = fmt.Sprintf(format, args...)
		m.trace("VIOLATION: %s", m.violation)
	}
}

// report is the violation with all that led to it.
func (m *model) report() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", m.violation)
	for _, l := range m.lines {
		fmt.Fprintf(&b, "  "+l.format+"\n", l.args...)
	}
	return b.String()
}

// inBubble runs a model in a bubble of its own, and passes on what it panics with, as rapid does to end a run.
func inBubble(t *testing.T, o options, run func(m *model)) *model {
	t.Helper()
	judge, err := tablesOnce()
	if err != nil {
		t.Fatal(err)
	}
	m := &model{options: o, tables: judge}
	var thrown any
	synctest.Test(t, func(*testing.T) {
		defer func() {
			thrown = recover()
			m.shutdown()
		}()
		m.store, m.world = newStore(time.Now), fake.New()
		m.store.wrote = m.written
		m.world.SetTag(m.tag)
		run(m)
	})
	if thrown != nil {
		panic(thrown)
	}
	m.stats.runs++
	return m
}

// wait returns when nobody can go on without the scheduler.
func (m *model) wait() { synctest.Wait() }

// settle looks at what came of the last step.
func (m *model) settle() {
	m.wait()
	m.checkEffects()
}

// broken tells whether the run is over because an invariant is violated.
func (m *model) broken() bool { return m.violation != "" }

// shutdown ends all processes, so that the bubble can end.
func (m *model) shutdown() {
	for _, p := range []*process{m.old, m.leader} {
		if p != nil {
			p.kill()
		}
	}
}

// sleep lets time pass. An old leader is stopped before the new one may send.
func (m *model) sleep(d time.Duration) {
	if m.old != nil && !m.noWait && !time.Now().Add(d).Before(m.leader.until) {
		m.stopOld()
	}
	m.trace("%s passes", d)
	time.Sleep(d)
	m.settle()
}

func (m *model) stopOld() {
	if m.old != nil {
		m.trace("%s is stopped", m.old.name)
		m.old.kill()
		m.old = nil
	}
}

// crash ends the leader where it is. Nobody else has led since, so that its successor may be one that waits or not.
func (m *model) crash(wait time.Duration) {
	m.stopOld()
	m.leader.kill()
	m.stats.crashes++
	m.leader = m.newProcess(wait)
	m.trace("crash; %s leads and waits %s", m.leader.name, wait)
}

// failover has another process lead, while the old one goes on as if nothing had happened.
func (m *model) failover() {
	m.stopOld()
	m.old = m.leader
	m.old.deposed = true
	m.stats.failovers++
	m.leader = m.newProcess(leaseDuration)
	m.trace("%s loses its lease and does not know; %s leads", m.old.name, m.leader.name)
}

// step lets a worker make its next call.
func (m *model) step(w *worker, v verdict) {
	if v != goOn {
		m.stats.faults++
	}
	m.stats.calls++
	w.goOn(v)
	m.checkEffects()
}

// drive lets a worker go on until it is done or waits for a lock.
func (m *model) drive(w *worker) {
	for w.at != nil && !m.broken() {
		v := goOn
		if m.interrupt != nil {
			over := false
			if v, over = m.interrupt(w); over {
				return
			}
		}
		m.step(w, v)
	}
}

// roles gives the reconcilers that take part.
func (m *model) roles() []role {
	if m.withoutMachines {
		return []role{ofOperations}
	}
	return []role{ofOperations, ofMachines}
}

// machineKind is how a machine comes to be.
type machineKind int

const (
	known   machineKind = iota // it has been there and is in the status
	fresh                      // it is not made yet
	adopted                    // it is there, and nobody has adopted it
)

// addMachine makes a VirtualMachine, and what there is of it on its runtime.
func (m *model) addMachine(name string, policy v1alpha1.RunPolicy, kind machineKind, power v1alpha1.PowerState) {
	grace := int32(30)
	vm := &v1alpha1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Finalizers: []string{v1alpha1.VirtualMachineFinalizer}},
		Spec: v1alpha1.VirtualMachineSpec{
			RunPolicy: policy, TerminationGracePeriodSeconds: &grace, Runtime: v1alpha1.VirtualMachineRuntime{Pod: &v1alpha1.PodRuntime{}},
		},
	}
	if kind == adopted {
		vm.Spec.Runtime = v1alpha1.VirtualMachineRuntime{VSphere: &v1alpha1.VSphereRuntime{InventoryPath: "/dc/vm/" + name}}
	}
	if err := m.store.create(vm); err != nil {
		m.violated("making machine %s: %v", name, err)
		return
	}
	m.trace("VirtualMachine %s (%s) is made, run policy %s, %s, kind %d", name, vm.UID, policy, power, kind)
	instance := fake.Instance{Place: fake.Place(runtime.MachineOf(vm)), Power: power, NodeName: "node-1"}
	if power == v1alpha1.PowerRunning {
		instance.Incarnation = "first of " + name
	}
	switch kind {
	case known:
		instance.Owner = vm.UID
		vm.Status.InstanceID = m.world.AddInstance(instance)
		vm.Status.Incarnation, vm.Status.NodeName = instance.Incarnation, instance.NodeName
		vm.Status.Phase = v1alpha1.VirtualMachineStopped
		if power == v1alpha1.PowerRunning {
			vm.Status.Phase = v1alpha1.VirtualMachineRunning
		}
		if err := m.store.updateStatus(vm); err != nil {
			m.violated("showing machine %s: %v", name, err)
		}
	case adopted:
		if !m.placeTaken(instance.Place) {
			m.world.AddInstance(instance)
		}
	}
}

func (m *model) placeTaken(place string) bool {
	for _, in := range m.world.Instances() {
		if in.Place == place {
			return true
		}
	}
	return false
}

// machine gives a VirtualMachine as it is, or nil.
func (m *model) machine(name string) *v1alpha1.VirtualMachine {
	vm, _ := m.store.current[id{machines, types.NamespacedName{Namespace: namespace, Name: name}}].(*v1alpha1.VirtualMachine)
	return vm
}

// operation gives a VirtualMachineOperation as it is, or nil.
func (m *model) operation(name string) *v1alpha1.VirtualMachineOperation {
	o, _ := m.store.current[id{operations, types.NamespacedName{Namespace: namespace, Name: name}}].(*v1alpha1.VirtualMachineOperation)
	return o
}

// ask makes an operation as the webhooks would stamp it.
func (m *model) ask(o *v1alpha1.VirtualMachineOperation) {
	if vm := m.machine(o.Spec.VirtualMachineName); vm != nil {
		o.Spec.VirtualMachineUID = vm.UID
	}
	o.Spec.RequestedAt = time.Now().UTC().Format("2006-01-02T15:04:05.000000000Z")
	o.Namespace = namespace
	if o.Name == "" {
		m.asked++
		o.Name = fmt.Sprintf("op-%d", m.asked)
	}
	if err := m.store.create(o); err != nil {
		m.violated("making operation %s: %v", o.Name, err)
	}
	m.stats.operations++
	m.trace("%s %s of %s is made (%s)", keyOf(o.Spec.Type, o.Spec.Force), o.Name, o.Spec.VirtualMachineName, o.UID)
}

// admitted tells whether the webhooks would let an operation in. Requests at once do not see each other there, so that not all
// that are made have been asked about.
func (m *model) admitted(o *v1alpha1.VirtualMachineOperation) bool {
	var unfinished []v1alpha1.VirtualMachineOperation
	for _, other := range m.store.operationsOf(namespace, o.Spec.VirtualMachineName, len(m.store.log)) {
		if !other.Finished() {
			unfinished = append(unfinished, *other)
		}
	}
	admission, _ := m.tables.Arbitrate(context.Background(), o, m.machine(o.Spec.VirtualMachineName), unfinished)
	return !admission.Denied
}

// delete deletes an object as a user does.
func (m *model) delete(o client.Object) {
	m.trace("%s %s is deleted by a user", idOf(o).kind.Resource, o.GetName())
	m.stats.deletions++
	if err := m.store.remove(o, nil); err != nil {
		m.violated("deleting %s: %v", o.GetName(), err)
	}
}
