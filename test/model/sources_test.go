package model

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/drive"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/virtualmachine"
)

// sources are those of the origins that nothing of the product has yet: a machine is moved to the node that its spec names, and
// restarted when its spec has changed in a way that asks for that.
var sources = []virtualmachine.Source{placement{}, rollout{}}

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

// restartFrom is the annotation with the incarnation that a machine is not to go on in.
const restartFrom = "example.com/restart-from"

// rollout restarts machines that are on.
type rollout struct{}

func (rollout) Origin() v1alpha1.ClaimOrigin { return v1alpha1.OriginRollout }

func (rollout) Wants(vm *v1alpha1.VirtualMachine, seen *runtime.Observation) *drive.Intent {
	a := vm.Status.ActiveOperation
	begun := a != nil && a.Origin == v1alpha1.OriginRollout && a.Step == v1alpha1.StepPowerOn
	if !begun && (seen.Power != v1alpha1.PowerRunning || seen.Incarnation == "" || seen.Incarnation != vm.Annotations[restartFrom]) {
		return nil
	}
	grace := vm.Spec.TerminationGracePeriod()
	return &drive.Intent{Type: v1alpha1.OperationRestart, Grace: &grace}
}

// place has the spec name a node, or none.
func (d *dice) place() {
	d.change(func(vm *v1alpha1.VirtualMachine) {
		vm.Spec.NodeName = pick(d, "node", "", "node-1", "node-2")
		d.trace("%s is wanted on %q", vm.Name, vm.Spec.NodeName)
	})
}

// rollOut asks for a restart.
func (d *dice) rollOut() {
	d.change(func(vm *v1alpha1.VirtualMachine) {
		metav1.SetMetaDataAnnotation(&vm.ObjectMeta, restartFrom, vm.Status.Incarnation)
		d.trace("%s is not to go on in %q", vm.Name, vm.Status.Incarnation)
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
