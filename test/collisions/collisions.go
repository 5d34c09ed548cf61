// Package collisions tests what becomes of operations that meet on one machine, in a whole cluster with Sallyport in it and
// on any hypervisor: every pair of a running and a new operation, and the collisions that have names.
//
// It acts as users do, through the API server, and judges by what users see and by the hypervisor's own word on the machine.
package collisions

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/step"
)

// Cluster is a cluster with Sallyport, and a hypervisor with machines.
type Cluster struct {
	// Client is a user's.
	Client client.Client
	// Namespace is where the machines are.
	Namespace string
	// New gives the spec of a VirtualMachine of that name, whose machine is, or will be made, on that hypervisor, and off.
	New func(t *testing.T, name string) v1alpha1.VirtualMachineSpec
	// Hypervisor gives what a test can do to the machine of a VirtualMachine behind Sallyport's back.
	Hypervisor func(vm *v1alpha1.VirtualMachine) Hypervisor
}

// Hypervisor is one machine as its hypervisor has it.
type Hypervisor struct {
	// Hold keeps the machine's tasks of that kind in flight from their begin, other than by a cancel, until release.
	Hold func(kind runtime.TaskKind) (release func())
	// IgnoreShutdown has the guest ignore requests to shut down; HeedShutdown has it heed them, also the last one.
	IgnoreShutdown, HeedShutdown func()
	// GoOff has the machine go off by itself, as one does that crashes.
	GoOff func()
	// Suspend suspends the machine, which is on.
	Suspend func()
	// IgnoreCancel has tasks of the machine run to their end whatever is asked.
	IgnoreCancel func()
	// Away has the hypervisor not answer for the machine until back is called.
	Away func() (back func())
	// Power is the machine's power state, and nothing if there is no machine that is marked as the VirtualMachine's.
	Power func() v1alpha1.PowerState
	// Node is the host that it is on.
	Node func() string
}

// machine is a VirtualMachine in a test.
type machine struct {
	step.T
	cluster *Cluster
	key     types.NamespacedName
	uid     types.UID
	Hypervisor
}

var names atomic.Int32

// machine makes a VirtualMachine with run policy Manual, and waits until it is there, on or off.
func (c *Cluster) machine(t *testing.T, power v1alpha1.PowerState) *machine {
	t.Helper()
	m := &machine{T: step.T{T: t}, cluster: c, key: types.NamespacedName{Namespace: c.Namespace, Name: fmt.Sprintf("vm-%d", names.Add(1))}}
	m.create()
	m.rests(v1alpha1.PowerStopped)
	if power == v1alpha1.PowerRunning {
		start := m.ask("Start")
		m.ends(start, "Completed/Succeeded")
	}
	m.rests(power)
	return m
}

// create makes the VirtualMachine.
func (m *machine) create() {
	m.Helper()
	vm := &v1alpha1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.key.Namespace, Name: m.key.Name}, Spec: m.cluster.New(m.T.T, m.key.Name),
	}
	vm.Spec.RunPolicy = v1alpha1.RunPolicyManual
	m.Must(m.cluster.Client.Create(m.Context(), vm))
	m.uid, m.Hypervisor = vm.UID, m.cluster.Hypervisor(vm)
}

// get gives the VirtualMachine, nil if it is gone.
func (m *machine) get() *v1alpha1.VirtualMachine {
	m.Helper()
	vm := &v1alpha1.VirtualMachine{}
	err := m.cluster.Client.Get(m.Context(), m.key, vm)
	if apierrors.IsNotFound(err) {
		return nil
	}
	m.Must(err)
	return vm
}

// until waits for something to become true, and otherwise fails with what there is.
func (m *machine) until(what string, is func() bool) {
	m.Helper()
	err := step.Await(m.Context(), func(context.Context) (bool, error) {
		return is(), nil
	})
	if err != nil {
		vm := m.get()
		if vm == nil {
			m.Fatalf("waiting until %s: the VirtualMachine is gone", what)
		}
		m.Fatalf("waiting until %s: the VirtualMachine is %+v, its machine is %s on %s", what, vm.Status, m.Power(), m.Node())
	}
}

// rests waits until nobody has the machine and the VirtualMachine shows it in that state, and asks the hypervisor.
func (m *machine) rests(power v1alpha1.PowerState) {
	m.Helper()
	phase := map[v1alpha1.PowerState]v1alpha1.VirtualMachinePhase{
		v1alpha1.PowerRunning: v1alpha1.VirtualMachineRunning, v1alpha1.PowerStopped: v1alpha1.VirtualMachineStopped,
		v1alpha1.PowerPaused: v1alpha1.VirtualMachinePaused,
	}[power]
	m.until(fmt.Sprintf("the VirtualMachine is %s and free", phase), func() bool {
		vm := m.get()
		return vm != nil && vm.Status.Phase == phase && !vm.Busy()
	})
	if got := m.Power(); got != power {
		m.Errorf("the hypervisor says that the machine is %s, and the VirtualMachine that it is %s", got, power)
	}
}

// intends checks the power intent, and who has set it.
func (m *machine) intends(state v1alpha1.PowerState, by string) {
	m.Helper()
	if i := m.get().Status.PowerIntent; i == nil || i.State != state || i.By != by {
		m.Errorf("the power intent is %+v and not %s by %s", i, state, by)
	}
}

// request is an operation that was not created yet, such as "Stop force".
func (m *machine) request(what string) *v1alpha1.VirtualMachineOperation {
	kind, force := strings.CutSuffix(what, " force")
	return &v1alpha1.VirtualMachineOperation{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: m.key.Namespace, Name: fmt.Sprintf("%s-%s-%d", m.key.Name, strings.ToLower(kind), names.Add(1)),
		},
		Spec: v1alpha1.VirtualMachineOperationSpec{
			Type: v1alpha1.OperationType(kind), Force: force, VirtualMachineName: m.key.Name,
		},
	}
}

// ask creates an operation, which must be admitted.
func (m *machine) ask(what string, change ...func(*v1alpha1.VirtualMachineOperationSpec)) *v1alpha1.VirtualMachineOperation {
	m.Helper()
	o := m.request(what)
	for _, c := range change {
		c(&o.Spec)
	}
	m.Must(m.submit(o))
	return o
}

// submit creates an operation, and gives the verdict. A policy that had no time to decide has not given one, nor has a webhook
// whose answer the API server had no time to wait for.
func (m *machine) submit(o *v1alpha1.VirtualMachineOperation) (verdict error) {
	_ = step.Await(m.Context(), func(context.Context) (bool, error) {
		verdict = m.cluster.Client.Create(m.Context(), o)
		return verdict == nil || !apierrors.IsInternalError(verdict) && !strings.Contains(verdict.Error(), "policy evaluation failed"), nil
	})
	return verdict
}

// state gives an operation's phase and the reason of its condition Completed, such as Completed/Superseded.
func (m *machine) state(o *v1alpha1.VirtualMachineOperation) string {
	m.Helper()
	err := m.cluster.Client.Get(m.Context(), client.ObjectKeyFromObject(o), o)
	if apierrors.IsNotFound(err) {
		return "gone"
	}
	m.Must(err)
	if c := meta.FindStatusCondition(o.Status.Conditions, string(v1alpha1.ConditionCompleted)); c != nil {
		return fmt.Sprintf("%s/%s", o.Status.Phase, c.Reason)
	}
	return string(o.Status.Phase)
}

// ends waits until an operation has ended, and checks how.
func (m *machine) ends(o *v1alpha1.VirtualMachineOperation, want string) {
	m.Helper()
	m.until(fmt.Sprintf("%s has ended", o.Name), func() bool {
		state := m.state(o)
		return state == "gone" || o.Finished() && len(o.Finalizers) == 0
	})
	if got := m.state(o); got != want {
		m.Errorf("%s %s is %s and not %s: %+v", o.Spec.Type, o.Name, got, want, o.Status)
	}
}

// tells waits until the runtime was told to carry an operation out.
func (m *machine) tells(o *v1alpha1.VirtualMachineOperation) {
	m.Helper()
	m.until(fmt.Sprintf("the runtime was told of %s", o.Name), func() bool {
		m.state(o)
		return meta.IsStatusConditionTrue(o.Status.Conditions, string(v1alpha1.ConditionSignalSent))
	})
}

// supersedes checks that one has taken the other's place, and that both say so.
func (m *machine) supersedes(winner, loser *v1alpha1.VirtualMachineOperation) {
	m.Helper()
	m.ends(loser, "Completed/Superseded")
	if by := loser.Status.SupersededBy; by == nil || by.Name != winner.Name || by.UID != winner.UID {
		m.Errorf("%s was superseded by %+v and not by %s", loser.Name, by, winner.Name)
	}
	if !meta.IsStatusConditionTrue(loser.Status.Conditions, string(v1alpha1.ConditionSuperseded)) {
		m.Errorf("the condition Superseded of %s is not true: %+v", loser.Name, loser.Status.Conditions)
	}
}
