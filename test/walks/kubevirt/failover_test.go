//go:build kubevirt

package kubevirt

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// TestFailover kills the manager while every operation hangs, each on another machine. The next manager completes them once they do not
// hang any more, and does nothing twice.
func TestFailover(t *testing.T) {
	s := newSite(t)
	replace := s.release(nil)
	namespace := s.namespace()
	boots := map[string]int{"Start": 1, "Stop": 1, "Stop force": 1, "Restart": 2, "Restart force": 2, "Migrate": 1, "Evict": 1}
	var hung, completed sync.WaitGroup
	replaced := make(chan struct{})
	for what, want := range boots {
		hung.Add(1)
		completed.Go(func() {
			t.Run(what, func(t *testing.T) { s.in(t).failOver(namespace, what, want, hung.Done, replaced) })
		})
	}
	hung.Wait()
	replace()
	close(replaced)
	completed.Wait()
}

// failOver requests an operation on a machine, and releases it once the manager is replaced.
func (s *site) failOver(namespace, what string, boots int, hangs func(), replaced <-chan struct{}) {
	hangs = sync.OnceFunc(hangs)
	defer hangs()
	kind, forced := strings.CutSuffix(what, " force")
	name := strings.ToLower(strings.ReplaceAll(what, " ", "-"))
	spec := machine(namespace, name, true).Spec
	spec.RunPolicy = v1alpha1.RunPolicyAlwaysOnUnlessStoppedManually
	before, after := v1alpha1.VirtualMachineRunning, v1alpha1.VirtualMachineRunning
	switch v1alpha1.OperationType(kind) {
	case v1alpha1.OperationStart:
		spec.RunPolicy, before = v1alpha1.RunPolicyManual, v1alpha1.VirtualMachineStopped
	case v1alpha1.OperationStop:
		after = v1alpha1.VirtualMachineStopped
	}
	vm := s.virtualMachine(namespace, name, spec)
	s.shows(vm, before)
	key := client.ObjectKeyFromObject(vm)
	release := s.hang(key, v1alpha1.OperationType(kind), forced)
	op := &v1alpha1.VirtualMachineOperation{Spec: v1alpha1.VirtualMachineOperationSpec{
		Type: v1alpha1.OperationType(kind), Force: forced, VirtualMachineName: name,
	}}
	op.Namespace, op.Name = namespace, name
	s.Must(s.Create(s.Context(), op))
	phase := func(want v1alpha1.OperationPhase) {
		s.Helper()
		s.Until(fmt.Sprintf("the operation is %s", want), func() (string, bool) {
			s.Must(s.Get(s.Context(), client.ObjectKeyFromObject(op), op))
			return fmt.Sprintf("%+v", op.Status), op.Status.Phase == want
		})
	}
	phase(v1alpha1.OperationInProgress)
	hangs()
	<-replaced
	release()
	phase(v1alpha1.OperationCompleted)
	if s.shows(vm, after); s.Agent.Boots(key) != boots {
		s.Errorf("%d instances have booted, not %d", s.Agent.Boots(key), boots)
	}
}
