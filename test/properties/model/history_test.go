package model

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/claim"
)

// held is one who has taken a machine.
type held struct {
	v1alpha1.ActiveOperation
	withdrawn bool
	effects   int // how many the world had seen before
}

// past is what is known of one machine, by its UID.
type past struct {
	claims    []*held
	found     v1alpha1.PowerState // how it was adopted
	abandoned bool
	gone      bool
	memory    int  // all that it was when it was live last
	lost      bool // somebody else has removed it
}

// history is what has been written so far, as invariants need it.
type history struct {
	machines map[types.UID]*past
	// requests are all operations that ever were, as they were last.
	requests map[types.UID]*v1alpha1.VirtualMachineOperation
}

func (h *history) of(uid types.UID) *past {
	if h.machines == nil {
		h.machines, h.requests = map[types.UID]*past{}, map[types.UID]*v1alpha1.VirtualMachineOperation{}
	}
	if h.machines[uid] == nil {
		h.machines[uid] = &past{}
	}
	return h.machines[uid]
}

// claimed gives who has taken the machine by the ID of the claim, or nil.
func (p *past) claimed(id string) *held {
	i := slices.IndexFunc(p.claims, func(h *held) bool { return h.ID == id })
	if i < 0 {
		return nil
	}
	return p.claims[i]
}

// intent is the power state of the last claim that was not withdrawn.
func (p *past) intent() v1alpha1.PowerState {
	for _, h := range slices.Backward(p.claims) {
		if h.withdrawn {
			continue
		}
		switch h.Type {
		case v1alpha1.OperationStart, v1alpha1.OperationRestart:
			return v1alpha1.PowerRunning
		case v1alpha1.OperationStop:
			return v1alpha1.PowerStopped
		}
	}
	return p.found
}

// written looks at every write there is.
func (m *model) written(before, after client.Object) {
	m.stats.writes++
	switch was := before.(type) {
	case *v1alpha1.VirtualMachine:
		now, _ := after.(*v1alpha1.VirtualMachine)
		m.machineWritten(was, now)
	case *v1alpha1.VirtualMachineOperation:
		now, _ := after.(*v1alpha1.VirtualMachineOperation)
		m.operationWritten(was, now)
	case nil:
		m.of(after.GetUID())
		if o, is := after.(*v1alpha1.VirtualMachineOperation); is {
			m.requests[o.UID] = o
		}
	}
}

// machineWritten holds a write of a machine against the rules of the claim.
func (m *model) machineWritten(before, now *v1alpha1.VirtualMachine) {
	p := m.of(before.UID)
	if now == nil {
		m.trace("    VirtualMachine %s (%s) is gone", before.Name, before.UID)
		p.gone = true
		m.checkGone(before, p)
		return
	}
	if claimOf(before) != claimOf(now) {
		m.trace("    %s: %s", now.Name, claimOf(now))
	}
	if now.Annotations[v1alpha1.AnnotationAbandonInstance] == string(now.UID) {
		p.abandoned = true
	}
	if now.Status.PowerIntent != nil && now.Status.PowerIntent.By == "Adoption" {
		p.found = now.Status.PowerIntent.State
	}
	was, is := before.Status.ActiveOperation, now.Status.ActiveOperation
	if is != nil && (was == nil || was.ID != is.ID) {
		if p.claimed(is.ID) != nil {
			m.violated("%s has had machine %s before and has it again", is.ID, now.Name)
		}
		m.stats.claimed(is.Origin, 1)
		p.claims = append(p.claims, &held{ActiveOperation: *is, effects: len(m.world.Effects())})
	}
	if was != nil && (is == nil || was.ID != is.ID) {
		m.letGo(p, was, now)
	}
	m.checkUndoing(before, now)
	state := v1alpha1.PowerState("")
	if now.Status.PowerIntent != nil {
		state = now.Status.PowerIntent.State
	}
	if want := p.intent(); state != want {
		m.violated("the power intent of machine %s is %q, and the last claim that was not withdrawn wanted %q", now.Name, state, want)
	}
}

// letGo looks at how a holder lost the machine: by its success, or into undoing.
func (m *model) letGo(p *past, was *v1alpha1.ActiveOperation, now *v1alpha1.VirtualMachine) {
	i := slices.IndexFunc(now.Status.Undoing, func(u v1alpha1.UndoingOperation) bool { return u.ID == was.ID })
	if i >= 0 {
		m.stats.undone++
		if now.Status.Undoing[i].End != v1alpha1.EndSuperseded {
			p.claimed(was.ID).withdrawn = true
		}
		return
	}
	o := m.requests[types.UID(was.ID)]
	if was.Origin == v1alpha1.OriginOperation && (o == nil || !o.Finished()) {
		m.violated("%s %s lost machine %s, has not ended and is not being undone", was.Type, was.Name, now.Name)
	}
	if now.Status.ActiveOperation != nil {
		m.violated("%s %s had ended, and lost machine %s to another in the same write", was.Type, was.Name, now.Name)
	}
}

// checkUndoing sees that entries only leave, and only one whose operation has ended.
func (m *model) checkUndoing(before, now *v1alpha1.VirtualMachine) {
	for i, u := range now.Status.Undoing {
		if claim.Holds(&now.Status, u.ID) || slices.ContainsFunc(now.Status.Undoing[:i], func(v v1alpha1.UndoingOperation) bool { return u.ID == v.ID }) {
			m.violated("%s %s of machine %s is in undoing twice, or holds the machine", u.Type, u.Name, now.Name)
		}
	}
	for _, u := range before.Status.Undoing {
		j := slices.IndexFunc(now.Status.Undoing, func(v v1alpha1.UndoingOperation) bool { return u.ID == v.ID })
		if j >= 0 {
			if v := now.Status.Undoing[j]; v.End != u.End || v.Type != u.Type || (u.Task != "" && v.Task != u.Task) {
				m.violated("the entry of %s %s in undoing was changed", u.Type, u.Name)
			}
			continue
		}
		if o := m.current(types.UID(u.ID)); o != nil && !o.Finished() {
			m.violated("%s %s left undoing and has not ended", u.Type, u.Name)
		}
	}
}

// current gives the operation with that UID if it is still there.
func (m *model) current(uid types.UID) *v1alpha1.VirtualMachineOperation {
	last := m.requests[uid]
	if last == nil {
		return nil
	}
	if now := m.operation(last.Name); now != nil && now.UID == uid {
		return now
	}
	return nil
}

// operationWritten holds a write of an operation against the rules.
func (m *model) operationWritten(before, now *v1alpha1.VirtualMachineOperation) {
	if now == nil {
		if !before.Finished() && m.of(before.Spec.VirtualMachineUID).claimed(string(before.UID)) != nil {
			m.violated("operation %s is gone, has had its machine and had not ended", before.Name)
		}
		return
	}
	m.requests[now.UID] = now
	if reasonOf(before) != reasonOf(now) || before.Status.Phase != now.Status.Phase {
		m.trace("    %s %s: %s/%s", now.Spec.Type, now.Name, now.Status.Phase, reasonOf(now))
	}
	switch {
	case before.Finished() && (before.Status.Phase != now.Status.Phase || reasonOf(before) != reasonOf(now) ||
		!before.Status.CompletionTime.Equal(now.Status.CompletionTime)):
		m.violated("operation %s had ended %s/%s and is %s/%s", now.Name, before.Status.Phase, reasonOf(before), now.Status.Phase, reasonOf(now))
	case before.Finished() || !now.Finished():
		return
	}
	c := meta.FindStatusCondition(now.Status.Conditions, string(v1alpha1.ConditionCompleted))
	if c == nil || c.Reason == "" || (now.Status.Phase == v1alpha1.OperationFailed && c.Message == "") || now.Status.CompletionTime == nil {
		m.violated("operation %s ended without saying why or when: %+v", now.Name, now.Status)
	}
	if now.Status.SupersededBy != nil {
		m.stats.superseded++
		m.checkSuperseded(now)
	}
}

// checkSuperseded holds the pair against the tables.
func (m *model) checkSuperseded(o *v1alpha1.VirtualMachineOperation) {
	by := o.Status.SupersededBy
	p := m.of(o.Spec.VirtualMachineUID)
	winner := p.claimed(string(by.UID))
	if winner == nil {
		m.violated("operation %s was superseded by %s, which never held the machine", o.Name, by.UID)
		return
	}
	if winner.Origin == v1alpha1.OriginDeletion {
		return
	}
	if loser, next := keyOf(o.Spec.Type, o.Spec.Force), keyOf(winner.Type, winner.Force); !m.tables.yields(loser, next) {
		m.violated("%s %s was superseded by %s %s, and does not yield to it", loser, o.Name, next, winner.Name)
	}
	w := m.requests[by.UID]
	if w == nil || older(w, o) {
		m.violated("operation %s was superseded by %s, which is older", o.Name, winner.Name)
	}
}

// older tells whether an operation was asked for before another.
func older(a, b *v1alpha1.VirtualMachineOperation) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	if a.Spec.RequestedAt != b.Spec.RequestedAt {
		return a.Spec.RequestedAt < b.Spec.RequestedAt
	}
	return a.UID < b.UID
}

func reasonOf(o *v1alpha1.VirtualMachineOperation) string {
	if c := meta.FindStatusCondition(o.Status.Conditions, string(v1alpha1.ConditionCompleted)); c != nil {
		return c.Reason
	}
	return ""
}

// claimOf gives the claim on a machine for traces, with what else about it is decided on.
func claimOf(vm *v1alpha1.VirtualMachine) string {
	holder, deleted := "nobody", ""
	if a := vm.Status.ActiveOperation; a != nil {
		holder = fmt.Sprintf("%s %s%s", a.Origin, keyOf(a.Type, a.Force), " "+a.Name)
	}
	var undoing []string
	for _, u := range vm.Status.Undoing {
		undoing = append(undoing, fmt.Sprintf("%s %s %s %s", u.Origin, keyOf(u.Type, u.Force), u.Name, u.End))
	}
	if vm.DeletionTimestamp != nil {
		deleted = ", deleted"
	}
	return fmt.Sprintf("held by %s, undoing %v, phase %s, policy %s%s", holder, undoing, vm.Status.Phase, vm.Spec.RunPolicy, deleted)
}
