package virtualmachine

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/reconcilers/drive"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// placement is the source that moves machines to the wanted node.
type placement struct{}

func (placement) Origin() v1alpha1.ClaimOrigin { return v1alpha1.OriginPlacement }

// Wants returns a move to the wanted node if the machine is known to be on another one. A move that has begun is
// finished while a node is wanted.
func (p placement) Wants(vm *v1alpha1.VirtualMachine, seen *runtime.Observation) *drive.Intent {
	held := vm.Status.ActiveOperation
	begun := held != nil && held.Origin == p.Origin()
	node := wantedNode(vm)
	if node == "" || !begun && seen.NodeName == "" {
		return nil
	}
	return &drive.Intent{Type: v1alpha1.OperationMigrate, Target: v1alpha1.MigrateTarget{NodeName: node}}
}

// denial is the reason why a move is not admitted.
type moveDenial struct {
	reason  v1alpha1.ConditionReason
	message string
}

// moveAdmitted reports whether the policies admit a move to the node now. A denied move is evaluated again after a
// pause. A machine that is already between two nodes is not evaluated: a limit of concurrent moves could otherwise
// block machines in each other's favor for ever.
func (r *Reconciler) moveAdmitted(ctx context.Context, v *view, node string) bool {
	if r.AdmitsMove == nil || v.VM.Status.Migration.Travels() {
		return true
	}
	vm := v.VM.DeepCopy()
	vm.Status.NodeName = v.seen.NodeName
	reason, message, err := r.AdmitsMove(ctx, vm, node)
	switch {
	case err != nil:
		v.moveDenial = moveDenial{v1alpha1.ReasonMoveNotDecided, err.Error()}
		v.Trouble(fmt.Errorf("evaluating the policies for the move of VirtualMachine %s to node %s: %w", v.Key(), node, err))
	case reason != "":
		v.moveDenial = moveDenial{reason, message}
		v.Wait(shortestPause)
	}
	return v.moveDenial.reason == ""
}

// wantedNode returns the node chosen by an operation, or else by the spec. A change of the spec overrides the
// operation's choice.
func wantedNode(vm *v1alpha1.VirtualMachine) string {
	if p := vm.Status.Placement; p != nil && p.InPlaceOf == vm.Spec.NodeName {
		return p.NodeName
	}
	return vm.Spec.NodeName
}

func (v *view) setPlacementSettled() {
	status := &v.VM.Status
	want := wantedNode(v.VM)
	if status.Placement != nil && status.Placement.InPlaceOf != v.VM.Spec.NodeName {
		status.Placement = nil
	}
	t := v1alpha1.ConditionPlacementSettled
	c := t.Condition(metav1.ConditionTrue, v1alpha1.ReasonOnNode, v.VM.Generation, "")
	switch {
	case status.Migration != nil && status.Migration.Step != v1alpha1.MigrationDiscard:
		c = t.Condition(metav1.ConditionFalse, migrationReason(status.Migration), v.VM.Generation, migrationMessage(status.Migration))
	case status.ActiveOperation != nil && claim.Moves(status.ActiveOperation.Type):
		c = t.Condition(metav1.ConditionFalse, v1alpha1.ReasonMigrating, v.VM.Generation, v.inProgressMessage())
	case status.Placement != nil && status.Placement.By == "":
		c = t.Condition(metav1.ConditionFalse, v1alpha1.ReasonRolledBack, v.VM.Generation, fmt.Sprintf(
			"the move to node %s was rolled back to node %s: change spec.nodeName, or create a Migrate operation", v.VM.Spec.NodeName, status.NodeName))
	case want == "":
		c = t.Condition(metav1.ConditionTrue, v1alpha1.ReasonNodeNotChosen, v.VM.Generation, "")
	case status.NodeName == "":
		c = t.Condition(metav1.ConditionUnknown, v1alpha1.ReasonNodeUnknown, v.VM.Generation, "")
	case status.NodeName != want:
		c = v.onOtherNode(want)
	}
	v.setCondition(c)
}

func migrationReason(m *v1alpha1.Migration) v1alpha1.ConditionReason {
	return v1alpha1.ConditionReason(cmp.Or(m.Reason, string(v1alpha1.ReasonMigrating)))
}

// migrationMessage returns the step of a move by hibernation, and what it waits for.
func migrationMessage(m *v1alpha1.Migration) string {
	text := fmt.Sprintf("move %s from %s, step %s", m.ID, m.Was.NodeName, m.Step)
	if m.Message != "" {
		text += ": " + m.Message
	}
	return text
}

// onOtherNode returns the condition of a machine that is not on the wanted node. It keeps the error of the last move
// between the same two nodes.
func (v *view) onOtherNode(want string) metav1.Condition {
	t := v1alpha1.ConditionPlacementSettled
	nodes := fmt.Sprintf("the machine is on node %s, not on node %s", v.VM.Status.NodeName, want)
	if v.moveDenial.reason != "" {
		text := nodes + ", and the move is not admitted yet: " + v.moveDenial.message
		return t.Condition(metav1.ConditionFalse, v.moveDenial.reason, v.VM.Generation, text)
	}
	text := nodes
	switch before := meta.FindStatusCondition(v.VM.Status.Conditions, string(t)); {
	case v.cannotMove:
		text += ", and its runtime does not support migration: change spec.nodeName back, " +
			"or delete the VirtualMachine and create it on node " + want
	case v.moveFailure != "":
		text += ", and the last move failed: " + v.moveFailure
	case before != nil && before.Reason == string(v1alpha1.ReasonMigrationNeeded) && strings.HasPrefix(before.Message, nodes+", "):
		text = before.Message
	}
	return t.Condition(metav1.ConditionFalse, v1alpha1.ReasonMigrationNeeded, v.VM.Generation, text)
}
