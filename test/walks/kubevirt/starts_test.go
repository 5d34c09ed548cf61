//go:build kubevirt

package kubevirt

import (
	"strings"

	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/kubevirt"
)

// startedByOthers are starts with virtctl that no node takes. They keep nobody from stopping, deleting or releasing the machine.
func (s *site) startedByOthers(namespace string) {
	spec := machine(namespace, "stuck", true).Spec
	spec.RunPolicy = v1alpha1.RunPolicyManual
	vm := s.virtualMachine(namespace, "stuck", spec)
	s.shows(vm, v1alpha1.VirtualMachineStopped)
	defer s.start(vm)()
	s.operate(vm, "end", v1alpha1.VirtualMachineOperationSpec{Type: v1alpha1.OperationStop, Force: true})
	s.shows(vm, v1alpha1.VirtualMachineStopped)

	s.start(vm)
	s.Must(s.Delete(s.Context(), vm))
	s.gone(vm)
	s.gone(&virtv1.VirtualMachine{ObjectMeta: vm.ObjectMeta})

	theirs := foreignVM(namespace, "begun")
	s.Must(s.Create(s.Context(), theirs))
	vm = s.virtualMachine(namespace, "begun", &v1alpha1.VirtualMachineSpec{
		RunPolicy: v1alpha1.RunPolicyManual, Runtime: v1alpha1.VirtualMachineRuntime{KubeVirt: &v1alpha1.KubeVirtRuntime{}},
	})
	s.shows(vm, v1alpha1.VirtualMachineStopped)
	defer s.start(vm)()
	s.Must(s.Delete(s.Context(), vm))
	s.gone(vm)
	s.Must(s.Get(s.Context(), client.ObjectKeyFromObject(theirs), theirs))

	// A name that KubeVirt does not take cannot be looked for, and that will not pass.
	m := machine(namespace, strings.Repeat("m", 64), true)
	m.UID = "uid"
	if _, err := (&kubevirt.Runtime{Client: s.Client, Live: s.Client}).Observe(s.Context(), m); !runtime.NothingOfOurs(err) {
		s.Errorf("a name that is too long: got error %v", err)
	}
}

// start starts a machine as virtctl does. No node takes it until it is released.
func (s *site) start(vm *v1alpha1.VirtualMachine) (release func()) {
	s.Helper()
	key := client.ObjectKeyFromObject(vm)
	release = s.Agent.Hold(key, runtime.TaskPowerOn)
	subresources, err := kubevirt.NewSubresources(s.Plane.Config)
	s.Must(err)
	s.Must(subresources.Put(s.Context(), "virtualmachines", key, "start", &virtv1.StartOptions{}))
	s.Eventually("there is an instance", func() bool { return s.Get(s.Context(), key, &virtv1.VirtualMachineInstance{}) == nil })
	return release
}
