//go:build kubevirt

package kubevirt

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/kubevirt"
	"sallyport.dev/sallyport/test/support/pairs"
)

// Every operation is requested while every other one hangs: a quarter of the pairs with -short, since KubeVirt takes its time.
func TestPairs(t *testing.T) {
	s := newSite(t)
	s.release([]string{ // many machines are moved at a time
		"policies.placement-migration.parameters.maxPerNode=0", "policies.placement-migration.parameters.maxOnKubeVirt=0",
	})
	namespace := s.namespace()
	every := 1
	if testing.Short() {
		every = 4
	}
	pairs.Run(t, every, func(t *testing.T, name string) *pairs.Machine { return s.in(t).paired(namespace, name) })
}

// paired creates a VirtualMachine.
func (s *site) paired(namespace, name string) *pairs.Machine {
	s.Helper()
	spec := machine(namespace, name, true).Spec
	spec.RunPolicy = v1alpha1.RunPolicyManual
	vm := s.virtualMachine(namespace, name, spec)
	key := types.NamespacedName{Namespace: namespace, Name: name}
	return &pairs.Machine{
		T: s.T, Client: s.Client, Key: key,
		Hang: func(kind v1alpha1.OperationType, forced bool) func() { return s.hang(key, kind, forced) },
		Node: func() string { return s.instance(key).Status.NodeName },
		Differs: func(power v1alpha1.PowerState) string {
			theirs := &virtv1.VirtualMachine{}
			s.Must(s.Get(s.Context(), key, theirs))
			vmi := s.instance(key)
			if runs := vmi.Status.Phase == virtv1.Running; runs != (power == v1alpha1.PowerRunning) || theirs.Labels[kubevirt.LabelMachine] != string(vm.UID) {
				return fmt.Sprintf("the instance is %q, and the labels of its VirtualMachine are %v", vmi.Status.Phase, theirs.Labels)
			}
			return ""
		},
	}
}

// instance returns an instance, which is empty if there is none.
func (s *site) instance(key types.NamespacedName) *virtv1.VirtualMachineInstance {
	s.Helper()
	vmi := &virtv1.VirtualMachineInstance{}
	if s.Get(s.Context(), key, vmi) != nil {
		return &virtv1.VirtualMachineInstance{}
	}
	return vmi
}

// hang has the next operation of a type hang until release.
func (s *site) hang(key types.NamespacedName, kind v1alpha1.OperationType, forced bool) (release func()) {
	switch {
	case kind == v1alpha1.OperationStart:
		return s.Agent.Hold(key, runtime.TaskPowerOn)
	case kind == v1alpha1.OperationMigrate, kind == v1alpha1.OperationEvict:
		return s.Agent.Hold(key, runtime.TaskRelocate)
	case forced:
		return s.Agent.Hold(key, runtime.TaskPowerOff)
	}
	s.Agent.Ignore(key, true)
	return func() { s.Agent.Ignore(key, false) }
}
