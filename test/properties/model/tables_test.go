package model

import (
	"context"
	"slices"
	"sync"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/policies"
	"sallyport.dev/sallyport/reconcilers/operation"
	"sallyport.dev/sallyport/test/support/shipped"
)

// tables judges operations as the shipped policies do, from their parameters: a decision of theirs takes half a millisecond,
// and a run takes dozens. A test compares the two.
type tables struct{ shipped.Tables }

// shippedTables reads the parameters of the shipped policies.
func shippedTables() (*tables, error) {
	objects, err := policies.Shipped()
	if err != nil {
		return nil, err
	}
	t, err := shipped.TablesOf(objects)
	return &tables{t}, err
}

// tablesOnce reads them once for all runs.
var tablesOnce = sync.OnceValues(shippedTables)

// keyOf is how the tables call an operation.
func keyOf(t v1alpha1.OperationType, force bool) string {
	if force {
		return string(t) + " force"
	}
	return string(t)
}

// yields tells whether one operation takes the place of another.
func (t *tables) yields(holder, next string) bool {
	return slices.Contains(t.SupersededBy[holder], next)
}

// Arbitrate judges an operation.
func (t *tables) Arbitrate(
	_ context.Context, o *v1alpha1.VirtualMachineOperation, vm *v1alpha1.VirtualMachine, unfinished []v1alpha1.VirtualMachineOperation,
) (operation.Admission, error) {
	asked := keyOf(o.Spec.Type, o.Spec.Force)
	deny := func(reason string) (operation.Admission, error) {
		return operation.Admission{Denied: true, Reason: reason, Message: "denied: " + reason}, nil
	}
	phase := v1alpha1.VirtualMachinePending
	switch {
	case vm == nil:
		return deny("VirtualMachineNotFound")
	case !vm.DeletionTimestamp.IsZero():
		return deny("VirtualMachineTerminating")
	case vm.Status.Phase != "":
		phase = vm.Status.Phase
	}
	switch {
	case !slices.Contains(t.RunPolicies[string(vm.Spec.RunPolicy)], asked):
		return deny("RunPolicyForbids")
	case !slices.Contains(t.Phases[string(phase)], asked) && phase == v1alpha1.VirtualMachineFailed:
		return deny("InstanceLost")
	case !slices.Contains(t.Phases[string(phase)], asked):
		return deny("PhaseForbids")
	}
	held := vm.Status.ActiveOperation
	unheld := held == nil && len(vm.Status.Undoing) == 0 && phase == v1alpha1.VirtualMachineMigrating
	if vm.Status.Migration.Travels() && (unheld || held != nil && held.Origin != v1alpha1.OriginDeletion) {
		return deny("OperationInProgress")
	}
	var admission operation.Admission
	for i := range unfinished {
		other := &unfinished[i]
		undone := slices.ContainsFunc(vm.Status.Undoing, func(u v1alpha1.UndoingOperation) bool { return u.ID == string(other.UID) })
		switch {
		case other.UID == o.UID, other.Finished(), undone:
		case !t.yields(keyOf(other.Spec.Type, other.Spec.Force), asked):
			return deny("OperationInProgress")
		default:
			admission.Supersedes = append(admission.Supersedes, other.Name)
		}
	}
	if held != nil && held.Origin != v1alpha1.OriginOperation {
		if !t.yields(string(held.Type), asked) {
			return deny("OperationInProgress")
		}
		admission.SupersedesOrigins = []string{string(held.Origin)}
	}
	return admission, nil
}
