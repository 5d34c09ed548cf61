//go:build !race

package vcenter

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// However many operations there are, on however many machines at once, the manager has one session with a vCenter, and another
// one in its place when vCenter has ended it half-way.
func TestSessions(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	t.Parallel()
	const machines, rounds = 10, 4
	s := newSite(t).ready()
	vms := make([]*v1alpha1.VirtualMachine, machines)
	for i := range vms {
		name := fmt.Sprintf("web-%d", i)
		s.machine(name)
		vms[i] = s.adopt(s.vm(name))
		s.shows(vms[i], asWanted)
	}
	s.sessions(1, 1)
	var done atomic.Int32
	var all sync.WaitGroup
	for _, vm := range vms {
		all.Go(func() {
			for range rounds {
				for _, what := range []v1alpha1.OperationType{v1alpha1.OperationStart, v1alpha1.OperationStop} {
					if !s.succeeds(s.ask(vm, what)) {
						return
					}
					if int(done.Add(1)) == machines*rounds {
						s.vcenter.ExpireSessions()
					}
				}
			}
		})
	}
	all.Wait()
	if got := int(done.Load()); got != 2*machines*rounds {
		t.Fatalf("%d operations have succeeded", got)
	}
	s.sessions(1, 2)
	for _, vm := range vms {
		s.shows(vm, asWanted)
		if state := s.vcenter.State(folder + vm.Name); state.Power != v1alpha1.PowerStopped || state.PowerOns != rounds {
			t.Errorf("%s is %s and was powered on %d times", vm.Name, state.Power, state.PowerOns)
		}
	}
}

// sessions checks how many sessions there are, and how many logins there were.
func (s *site) sessions(present, logins int) {
	s.Helper()
	allowed, refused := s.vcenter.Logins()
	if got := s.vcenter.Sessions(); got != present || allowed != logins || refused != 0 {
		s.Errorf("there are %d sessions after %d logins, and %d that were refused", got, allowed, refused)
	}
}

// ask asks for an operation.
func (s *site) ask(vm *v1alpha1.VirtualMachine, what v1alpha1.OperationType) *v1alpha1.VirtualMachineOperation {
	s.Helper()
	o := &v1alpha1.VirtualMachineOperation{
		ObjectMeta: metav1.ObjectMeta{Namespace: vm.Namespace, GenerateName: vm.Name + "-"},
		Spec:       v1alpha1.VirtualMachineOperationSpec{Type: what, VirtualMachineName: vm.Name},
	}
	s.patiently(func() error { return stack.Client.Create(s.Context(), o) })
	return o
}

// succeeds waits for the end of an operation. It may be called from any goroutine.
func (s *site) succeeds(o *v1alpha1.VirtualMachineOperation) bool {
	err := poll(s.Context(), func() bool {
		return stack.Client.Get(s.Context(), client.ObjectKeyFromObject(o), o) == nil && o.Finished() && len(o.Finalizers) == 0
	})
	ended := meta.FindStatusCondition(o.Status.Conditions, string(v1alpha1.ConditionCompleted))
	if err != nil || ended == nil || ended.Reason != string(v1alpha1.ReasonSucceeded) {
		s.Errorf("%s of %s has not succeeded: %+v", o.Spec.Type, o.Spec.VirtualMachineName, o.Status)
		return false
	}
	return true
}

// powers counts the machines in a power state.
func (s *site) powers(power v1alpha1.PowerState) int {
	return len(slices.DeleteFunc(s.vcenter.Machines(), func(path string) bool { return s.vcenter.State(path).Power != power }))
}
