package model

import (
	"fmt"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/drive"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/fake"
	"sallyport.dev/sallyport/reconcilers/virtualmachine"
)

// sources are those of the origins that nothing of the product has yet: a machine is moved to the node that its spec names.
var sources = []virtualmachine.Source{placement{}}

// placement moves machines.
type placement struct{}

func (placement) Origin() v1alpha1.ClaimOrigin { return v1alpha1.OriginPlacement }

func (placement) Wants(vm *v1alpha1.VirtualMachine, _ *runtime.Observation) *drive.Intent {
	node := vm.Spec.NodeName
	if p := vm.Status.Placement; p != nil && p.InPlaceOf == node {
		node = p.NodeName
	}
	if node == "" {
		return nil
	}
	return &drive.Intent{Type: v1alpha1.OperationMigrate, Target: v1alpha1.MigrateTarget{NodeName: node}}
}

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

// unlikeSources says what sources still want of a machine at rest.
func unlikeSources(vm *v1alpha1.VirtualMachine, seen *runtime.Observation) string {
	for _, s := range sources {
		if in := s.Wants(vm, seen); in != nil && !drive.Reached(*in, *seen) {
			return string("is still wanted by " + s.Origin())
		}
	}
	return ""
}

// unlikeSize says whether a machine at rest that was made has not got its size.
func unlikeSize(vm *v1alpha1.VirtualMachine, in fake.Instance) string {
	if want := vm.Spec.CPU; want != nil && *want != in.CPU && !in.Adopted && in.Power == v1alpha1.PowerRunning {
		return fmt.Sprintf("has %d processors, and not %d", in.CPU, *want)
	}
	return ""
}
