package model

import (
	"fmt"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/double/fake"
)

// place has the spec name a node, or none.
func (d *dice) place() {
	d.change(func(vm *v1alpha1.VirtualMachine) {
		vm.Spec.NodeName = pick(d, "node", "", "node-1", "node-2")
		d.trace("%s is wanted on %q", vm.Name, vm.Spec.NodeName)
	})
}

// rollOut asks for what takes a restart.
func (d *dice) rollOut() {
	d.change(func(vm *v1alpha1.VirtualMachine) {
		processors := pick[int32](d, "processors", 1, 2, 4)
		vm.Spec.CPU, vm.Spec.RestartApprovalMode = &processors, v1alpha1.RestartAutomatic
		d.trace("%s is to have %d processors", vm.Name, processors)
	})
}

// unlikePlacement says whether a machine at rest is on another node than the one that an operation chose, or else its spec names.
func unlikePlacement(vm *v1alpha1.VirtualMachine, in fake.Instance) string {
	want := vm.Spec.NodeName
	if p := vm.Status.Placement; p != nil && p.InPlaceOf == want {
		want = p.NodeName
	}
	if want == "" || want == in.NodeName {
		return ""
	}
	return fmt.Sprintf("is on %s, and not on %s", in.NodeName, want)
}

// unlikeSize says whether a machine at rest that was made has not got its size.
func unlikeSize(vm *v1alpha1.VirtualMachine, in fake.Instance) string {
	if want := vm.Spec.CPU; want != nil && *want != in.CPU && !in.Adopted && in.Power == v1alpha1.PowerRunning {
		return fmt.Sprintf("has %d processors, and not %d", in.CPU, *want)
	}
	return ""
}
