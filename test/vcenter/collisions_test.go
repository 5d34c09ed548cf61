//go:build !race

package vcenter

import (
	"context"
	"fmt"
	"slices"
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
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere"
	"sallyport.dev/sallyport/test/step"
)

// folder is where the simulator has its machines.
const folder = "/DC0/vm/"

// adopting is the spec of a VirtualMachine that adopts the machine of that name.
func adopting(name string) v1alpha1.VirtualMachineSpec {
	return v1alpha1.VirtualMachineSpec{Runtime: v1alpha1.VirtualMachineRuntime{VSphere: &v1alpha1.VSphereRuntime{
		ServerRef: v1alpha1.VSphereServerReference{Name: "vc"}, InventoryPath: folder + name,
	}}}
}

// machine is a VirtualMachine with run policy Manual, and the machine in vCenter that it adopts.
type machine struct {
	step.T
	key  types.NamespacedName
	uid  types.UID
	path string // in vCenter
}

var names atomic.Int32

// newMachine creates both, and waits until the VirtualMachine is on or off.
func newMachine(t *testing.T, power v1alpha1.PowerState) *machine {
	t.Helper()
	name := fmt.Sprintf("vm-%d", names.Add(1))
	m := &machine{T: step.T{T: t}, key: types.NamespacedName{Namespace: namespace, Name: name}, path: folder + name}
	m.create()
	m.rests(v1alpha1.PowerStopped)
	if power == v1alpha1.PowerRunning {
		start := m.ask("Start")
		m.ends(start, "Completed/Succeeded")
	}
	m.rests(power)
	return m
}

// create creates the VirtualMachine, and the machine if there is none.
func (m *machine) create() {
	m.Helper()
	if !slices.Contains(stack.vcenter.Machines(), m.path) {
		_, err := stack.vcenter.AddMachine(m.key.Name)
		m.Must(err)
	}
	vm := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: m.key.Namespace, Name: m.key.Name}, Spec: adopting(m.key.Name)}
	vm.Spec.RunPolicy = v1alpha1.RunPolicyManual
	m.Must(stack.Client.Create(m.Context(), vm))
	m.uid = vm.UID
}

// power returns the power state in vCenter, nothing if no machine there is marked as that of the VirtualMachine.
func (m *machine) power() v1alpha1.PowerState {
	state := stack.vcenter.State(m.path)
	if state.ExtraConfig[vsphere.OwnerKey] != string(m.uid) {
		return ""
	}
	return state.Power
}

// node returns the host on which the machine is.
func (m *machine) node() string { return stack.vcenter.State(m.path).Host }

// hold keeps tasks of that kind in progress, unless they are cancelled, until release.
func (m *machine) hold(kind runtime.TaskKind) (release func()) {
	return stack.vcenter.Hold(m.path, kind)
}

// get returns the VirtualMachine, nil if it is gone.
func (m *machine) get() *v1alpha1.VirtualMachine {
	m.Helper()
	vm := &v1alpha1.VirtualMachine{}
	err := stack.Client.Get(m.Context(), m.key, vm)
	if apierrors.IsNotFound(err) {
		return nil
	}
	m.Must(err)
	return vm
}

// until waits for a condition, and fails with the state of the machine.
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
		m.Fatalf("waiting until %s: the VirtualMachine is %+v, its machine is %s on %s", what, vm.Status, m.power(), m.node())
	}
}

// rests waits until the VirtualMachine is unclaimed and shows that power state, and compares it with vCenter.
func (m *machine) rests(power v1alpha1.PowerState) {
	m.Helper()
	phase := map[v1alpha1.PowerState]v1alpha1.VirtualMachinePhase{
		v1alpha1.PowerRunning: v1alpha1.VirtualMachineRunning, v1alpha1.PowerStopped: v1alpha1.VirtualMachineStopped,
	}[power]
	m.until(fmt.Sprintf("the VirtualMachine is %s and free", phase), func() bool {
		vm := m.get()
		return vm != nil && vm.Status.Phase == phase && !vm.Busy()
	})
	if got := m.power(); got != power {
		m.Errorf("the machine is %s in vCenter, and %s in the VirtualMachine", got, power)
	}
}

// intends checks the power intent, and who has set it.
func (m *machine) intends(state v1alpha1.PowerState, by string) {
	m.Helper()
	if i := m.get().Status.PowerIntent; i == nil || i.State != state || i.By != by {
		m.Errorf("the power intent is %+v and not %s by %s", i, state, by)
	}
}

// request returns an operation, such as "Stop force", without creating it.
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
func (m *machine) ask(what string) *v1alpha1.VirtualMachineOperation {
	m.Helper()
	o := m.request(what)
	m.Must(m.submit(o))
	return o
}

// submit creates an operation and returns the denial. It tries again after a timeout of a policy or of a webhook.
func (m *machine) submit(o *v1alpha1.VirtualMachineOperation) (verdict error) {
	_ = step.Await(m.Context(), func(context.Context) (bool, error) {
		verdict = stack.Client.Create(m.Context(), o)
		return verdict == nil || !apierrors.IsInternalError(verdict) && !strings.Contains(verdict.Error(), "policy evaluation failed"), nil
	})
	return verdict
}

// state returns an operation's phase and the reason of its condition Completed, such as Completed/Superseded.
func (m *machine) state(o *v1alpha1.VirtualMachineOperation) string {
	m.Helper()
	err := stack.Client.Get(m.Context(), client.ObjectKeyFromObject(o), o)
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

// tells waits until an operation was sent to vCenter.
func (m *machine) tells(o *v1alpha1.VirtualMachineOperation) {
	m.Helper()
	m.until(fmt.Sprintf("the runtime was told of %s", o.Name), func() bool {
		m.state(o)
		return meta.IsStatusConditionTrue(o.Status.Conditions, string(v1alpha1.ConditionSignalSent))
	})
}

// supersedes waits until the loser has ended, and checks that it names the winner.
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
