package pairs

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/step"
)

// Machine is a VirtualMachine with run policy Manual.
type Machine struct {
	step.T
	Client client.Client
	Key    types.NamespacedName
	// Hang has the next operation of a type hang until release: the task of the runtime, or the guest that is asked to shut down.
	Hang func(kind v1alpha1.OperationType, forced bool) (release func())
	// Node returns where the machine is, empty if it is nowhere.
	Node func() string
	// Differs returns how the machine in the runtime differs from one in that power state that the VirtualMachine owns, empty if it does not.
	Differs func(v1alpha1.PowerState) string
}

func (m *Machine) get() *v1alpha1.VirtualMachine {
	m.Helper()
	vm := &v1alpha1.VirtualMachine{}
	m.Must(m.Client.Get(m.Context(), m.Key, vm))
	return vm
}

// rests waits until the VirtualMachine is unclaimed and shows that power state, and compares it with the runtime.
func (m *Machine) rests(power v1alpha1.PowerState) {
	m.Helper()
	phase := map[v1alpha1.PowerState]v1alpha1.VirtualMachinePhase{
		v1alpha1.PowerRunning: v1alpha1.VirtualMachineRunning, v1alpha1.PowerStopped: v1alpha1.VirtualMachineStopped,
	}[power]
	m.Until(fmt.Sprintf("the VirtualMachine is %s and free", phase), func() (string, bool) {
		vm := m.get()
		return fmt.Sprintf("%+v", vm.Status), vm.Status.Phase == phase && !vm.Busy()
	})
	if how := m.Differs(power); how != "" {
		m.Errorf("the VirtualMachine is %s, and %s", phase, how)
	}
}

// intends checks the power intent, and who has set it.
func (m *Machine) intends(state v1alpha1.PowerState, by string) {
	m.Helper()
	if i := m.get().Status.PowerIntent; i == nil || i.State != state || i.By != by {
		m.Errorf("the power intent is %+v and not %s by %s", i, state, by)
	}
}

// request returns an operation, such as "Stop force", without creating it.
func (m *Machine) request(what string) *v1alpha1.VirtualMachineOperation {
	kind, force := strings.CutSuffix(what, " force")
	return &v1alpha1.VirtualMachineOperation{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.Key.Namespace, GenerateName: m.Key.Name + "-"},
		Spec:       v1alpha1.VirtualMachineOperationSpec{Type: v1alpha1.OperationType(kind), Force: force, VirtualMachineName: m.Key.Name},
	}
}

// ask creates an operation, which must be admitted.
func (m *Machine) ask(what string) *v1alpha1.VirtualMachineOperation {
	m.Helper()
	o := m.request(what)
	m.Must(m.submit(o))
	return o
}

// submit creates an operation and returns the denial. It tries again after a timeout of a policy or of a webhook.
func (m *Machine) submit(o *v1alpha1.VirtualMachineOperation) (verdict error) {
	_ = step.Await(m.Context(), func(context.Context) (bool, error) {
		verdict = m.Client.Create(m.Context(), o)
		return verdict == nil || !apierrors.IsInternalError(verdict) && !strings.Contains(verdict.Error(), "policy evaluation failed"), nil
	})
	return verdict
}

// state returns an operation's phase and the reason of its condition Completed, such as Completed/Superseded.
func (m *Machine) state(o *v1alpha1.VirtualMachineOperation) string {
	m.Helper()
	m.Must(m.Client.Get(m.Context(), client.ObjectKeyFromObject(o), o))
	if c := v1alpha1.ConditionCompleted.In(o.Status.Conditions); c != nil {
		return fmt.Sprintf("%s/%s", o.Status.Phase, c.Reason)
	}
	return string(o.Status.Phase)
}

// ends waits until an operation has ended, and checks how.
func (m *Machine) ends(o *v1alpha1.VirtualMachineOperation, want string) {
	m.Helper()
	m.Until(o.Name+" has ended", func() (string, bool) {
		return m.state(o) + fmt.Sprintf(" %+v", o.Status), o.Finished() && len(o.Finalizers) == 0
	})
	if got := m.state(o); got != want {
		m.Errorf("%s %s is %s and not %s: %+v", o.Spec.Type, o.Name, got, want, o.Status)
	}
}

// supersedes waits until the loser has ended, and checks that it names the winner.
func (m *Machine) supersedes(winner, loser *v1alpha1.VirtualMachineOperation) {
	m.Helper()
	m.ends(loser, "Completed/Superseded")
	if by := loser.Status.SupersededBy; by == nil || by.Name != winner.Name || by.UID != winner.UID {
		m.Errorf("%s was superseded by %+v and not by %s", loser.Name, by, winner.Name)
	}
	if !meta.IsStatusConditionTrue(loser.Status.Conditions, string(v1alpha1.ConditionSuperseded)) {
		m.Errorf("the condition Superseded of %s is not true: %+v", loser.Name, loser.Status.Conditions)
	}
}
