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

// placement is the source that moves machines to the nodes on which they are wanted.
type placement struct{}

// Origin is that of its claims.
func (placement) Origin() v1alpha1.ClaimOrigin { return v1alpha1.OriginPlacement }

// Wants is a move to the node that is wanted, if it is known that the machine is on another one. A move that has begun is brought to its
// end as long as a node is wanted.
func (p placement) Wants(vm *v1alpha1.VirtualMachine, seen *runtime.Observation) *drive.Intent {
	held := vm.Status.ActiveOperation
	begun := held != nil && held.Origin == p.Origin()
	node := placedOn(vm)
	if node == "" || !begun && seen.NodeName == "" {
		return nil
	}
	return &drive.Intent{Type: v1alpha1.OperationMigrate, Target: v1alpha1.MigrateTarget{NodeName: node}}
}

// refusal is why the policies do not admit a move.
type refusal struct {
	reason  v1alpha1.ConditionReason
	message string
}

// admitted reports whether the policies admit a move to the node now. One that they refuse is asked about again after a pause. A machine
// that is between two nodes already is not asked about: the limit of moves would keep it off as long as others are, and they it.
func (r *Reconciler) admitted(ctx context.Context, l *look, node string) bool {
	if r.AdmitsMove == nil || l.VM.Status.Migration.Travels() {
		return true
	}
	vm := l.VM.DeepCopy()
	vm.Status.NodeName = l.seen.NodeName
	reason, message, err := r.AdmitsMove(ctx, vm, node)
	switch {
	case err != nil:
		l.refusal = refusal{v1alpha1.ReasonMoveNotDecided, err.Error()}
		l.Trouble(fmt.Errorf("evaluating the policies for the move of VirtualMachine %s to node %s: %w", l.Key(), node, err))
	case reason != "":
		l.refusal = refusal{reason, message}
		l.Wait(shortestPause)
	}
	return l.refusal.reason == ""
}

// placedOn is the node that is wanted: the one that an operation chose, or else the one that the spec names. An operation's choice ends
// when the spec is changed.
func placedOn(vm *v1alpha1.VirtualMachine) string {
	if p := vm.Status.Placement; p != nil && p.InPlaceOf == vm.Spec.NodeName {
		return p.NodeName
	}
	return vm.Spec.NodeName
}

// settled shows whether the machine is on the node that is wanted.
func (l *look) settled() {
	status := &l.VM.Status
	want := placedOn(l.VM)
	if status.Placement != nil && status.Placement.InPlaceOf != l.VM.Spec.NodeName {
		status.Placement = nil
	}
	t := v1alpha1.ConditionPlacementSettled
	c := t.Condition(metav1.ConditionTrue, v1alpha1.ReasonOnNode, l.VM.Generation, "")
	switch {
	case status.Migration != nil && status.Migration.Step != v1alpha1.MigrationDiscard:
		c = t.Condition(metav1.ConditionFalse, moving(status.Migration), l.VM.Generation, movingText(status.Migration))
	case status.ActiveOperation != nil && claim.Moves(status.ActiveOperation.Type):
		c = t.Condition(metav1.ConditionFalse, v1alpha1.ReasonMigrating, l.VM.Generation, l.doing())
	case status.Placement != nil && status.Placement.By == "":
		c = t.Condition(metav1.ConditionFalse, v1alpha1.ReasonRolledBack, l.VM.Generation, fmt.Sprintf(
			"the move to node %s was rolled back to node %s: change spec.nodeName, or create a Migrate operation", l.VM.Spec.NodeName, status.NodeName))
	case want == "":
		c = t.Condition(metav1.ConditionTrue, v1alpha1.ReasonNodeNotChosen, l.VM.Generation, "")
	case status.NodeName == "":
		c = t.Condition(metav1.ConditionUnknown, v1alpha1.ReasonNodeUnknown, l.VM.Generation, "")
	case status.NodeName != want:
		c = l.elsewhere(want)
	}
	l.set(c)
}

// moving is why a move by hibernation takes time.
func moving(m *v1alpha1.Migration) v1alpha1.ConditionReason {
	return v1alpha1.ConditionReason(cmp.Or(m.Reason, string(v1alpha1.ReasonMigrating)))
}

// movingText says which step a move by hibernation is in, and what is waited for.
func movingText(m *v1alpha1.Migration) string {
	text := fmt.Sprintf("move %s from %s, step %s", m.ID, m.Was.NodeName, m.Step)
	if m.Message != "" {
		text += ": " + m.Message
	}
	return text
}

// elsewhere says that the machine is on another node than the one that is wanted, and why it could not be moved the last time, as long as
// that is about these two nodes.
func (l *look) elsewhere(want string) metav1.Condition {
	t := v1alpha1.ConditionPlacementSettled
	nodes := fmt.Sprintf("the machine is on node %s, not on node %s", l.VM.Status.NodeName, want)
	if l.refusal.reason != "" {
		text := nodes + ", and the move is not admitted yet: " + l.refusal.message
		return t.Condition(metav1.ConditionFalse, l.refusal.reason, l.VM.Generation, text)
	}
	text := nodes
	switch before := meta.FindStatusCondition(l.VM.Status.Conditions, string(t)); {
	case l.stays:
		text += ", and its runtime does not support migration: change spec.nodeName back, " +
			"or delete the VirtualMachine and create it on node " + want
	case l.unmoved != "":
		text += ", and the last move failed: " + l.unmoved
	case before != nil && before.Reason == string(v1alpha1.ReasonMigrationNeeded) && strings.HasPrefix(before.Message, nodes+", "):
		text = before.Message
	}
	return t.Condition(metav1.ConditionFalse, v1alpha1.ReasonMigrationNeeded, l.VM.Generation, text)
}
