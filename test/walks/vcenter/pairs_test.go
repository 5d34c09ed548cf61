//go:build !race

package vcenter

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/machine"
	"sallyport.dev/sallyport/test/support/pairs"
	"sallyport.dev/sallyport/test/support/step"
)

// Every operation is requested while every other one hangs.
func TestPairs(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	s := newSite(t).ready()
	pairs.Run(t, 1, s.paired)
}

// paired creates a VirtualMachine, and the machine in vCenter that it adopts.
func (s *site) paired(t *testing.T, name string) *pairs.Machine {
	t.Helper()
	inner := *s
	inner.T = step.T{T: t}
	path := inner.machine(name)
	uid := inner.adopt(inner.vm(name)).UID
	t.Cleanup(func() { s.remove(s.vm(name)) })
	return &pairs.Machine{
		T: inner.T, Client: stack.Client, Key: types.NamespacedName{Namespace: s.name, Name: name},
		Hang: func(kind v1alpha1.OperationType, forced bool) func() { return s.hang(path, kind, forced) },
		Node: func() string { return s.vcenter.State(path).Host },
		Differs: func(power v1alpha1.PowerState) string {
			if state := s.vcenter.State(path); state.Power != power || state.ExtraConfig[machine.OwnerKey] != string(uid) {
				return fmt.Sprintf("the machine in vCenter is %+v", state)
			}
			return ""
		},
	}
}

// hang has the next operation of a type hang until release: the task of the hypervisor, or the guest.
func (s *site) hang(path string, kind v1alpha1.OperationType, forced bool) (release func()) {
	switch {
	case kind == v1alpha1.OperationStart:
		return s.vcenter.Hold(path, runtime.TaskPowerOn)
	case kind == v1alpha1.OperationMigrate, kind == v1alpha1.OperationEvict:
		return s.vcenter.Hold(path, runtime.TaskRelocate)
	case forced:
		return s.vcenter.Hold(path, runtime.TaskPowerOff)
	}
	s.vcenter.IgnoreShutdown(path)
	return func() { s.vcenter.HeedShutdown(path) }
}
