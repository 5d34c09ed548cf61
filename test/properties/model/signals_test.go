package model

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/double/fake"
)

// tag tags a call, as it reaches the runtime, with the claim that its sender has last seen, and holds it against the rules. Of
// a process that has lost its lease they are only asked by what it has last seen: what it sends may come late.
func (m *model) tag(ctx context.Context, verb runtime.Verb, machine runtime.Machine) string {
	w := workerOf(ctx)
	if w == nil || w.claim == nil {
		return ""
	}
	sees := w.claim
	name := ""
	if a := sees.Status.ActiveOperation; a != nil {
		name = a.ID
	}
	if verb == runtime.VerbObserve {
		return name
	}
	if verb != runtime.VerbEnsure { // which is tried again for a machine that is not there to be adopted
		m.stats.signals++
	}
	m.trace("    >> %s sends %s for %q", w, verb, name)
	if time.Until(w.until) > 0 && !m.noWait {
		m.violated("%s sends %s before it may", w, verb)
	}
	m.checkCall(w, verb, machine, sees)
	if now := m.machine(machine.Name); !w.deposed {
		if now == nil || now.UID != machine.UID {
			m.violated("%s sends %s for a machine that is gone", w, verb)
			return name
		}
		// A leader that stands still between a look in its wait and its Cancel may be late: what that withdraws is sent again.
		if claimKey(now) != claimKey(sees) {
			m.violated("%s sends %s and the claim is not as it saw it: %s, not %s", w, verb, claimOf(now), claimOf(sees))
		}
	}
	return name
}

// claimKey is what of a claim must not change between the look and the call.
func claimKey(vm *v1alpha1.VirtualMachine) string {
	key := ""
	if a := vm.Status.ActiveOperation; a != nil {
		key = a.ID
	}
	for _, u := range vm.Status.Undoing {
		key += " " + u.ID
	}
	if move := vm.Status.Migration; move != nil {
		key += fmt.Sprintf(" %s %s %v %v", move.ID, move.Step, move.To, move.Back)
	}
	return key
}

// checkCall tells whether a claim allows a call.
func (m *model) checkCall(w *worker, verb runtime.Verb, machine runtime.Machine, sees *v1alpha1.VirtualMachine) {
	a, undoing := sees.Status.ActiveOperation, len(sees.Status.Undoing)
	switch {
	case sees.UID != machine.UID:
		m.violated("%s sends %s for another machine of that name", w, verb)
	case verb == runtime.VerbCancel:
		if undoing == 0 {
			m.violated("%s cancels, and nobody is being undone", w)
		}
		return
	case stepOf[verb] != "":
		m.checkMove(w, verb, machine, sees)
		return
	case undoing > 0:
		m.violated("%s sends %s while somebody is being undone: %s", w, verb, claimOf(sees))
	case verb == runtime.VerbEnsure:
		if !sees.DeletionTimestamp.IsZero() {
			m.violated("%s makes a machine that is being deleted", w)
		}
		return
	case a == nil:
		m.violated("%s sends %s, and nobody holds the machine", w, verb)
	case !fits(a.Type, verb):
		m.violated("%s sends %s for %s", w, verb, claimOf(sees))
	}
}

// fits tells whether an operation of that type sends that.
func fits(t v1alpha1.OperationType, verb runtime.Verb) bool {
	switch t {
	case v1alpha1.OperationStart:
		return verb == runtime.VerbPowerOn
	case v1alpha1.OperationStop:
		return verb == runtime.VerbPowerOff
	case v1alpha1.OperationRestart:
		return verb == runtime.VerbPowerOn || verb == runtime.VerbPowerOff
	case v1alpha1.OperationMigrate, v1alpha1.OperationEvict:
		return verb == runtime.VerbMigrate
	case v1alpha1.OperationDelete:
		return verb == runtime.VerbPowerOff || verb == runtime.VerbDelete
	}
	return false
}

// changes tells whether an effect is one that only the holder of a machine may have.
func changes(e fake.Effect) bool {
	switch e.Kind {
	case fake.PoweredOn, fake.PoweredOff, fake.Resumed, fake.Moved, fake.Deleted, fake.Released, fake.Hibernated:
		return e.Cause != 0 && !e.ByGuest
	}
	return false
}

// checkEffects holds what has happened since against the claim as it is: it came of who holds the machine, or of who is being
// undone.
func (m *model) checkEffects() {
	all := m.world.Effects()
	for _, e := range all[m.effects:] {
		m.trace("    ** %s of %s, by call %d for %q, by guest %v", e.Kind, e.Machine, e.Cause, e.Tag, e.ByGuest)
		m.remember(e)
		if !changes(e) {
			continue
		}
		vm := m.byUID(e.Machine)
		switch {
		case vm == nil:
			m.violated("%s for %q, and the machine's object is gone", e.Kind, e.Tag)
		case !claim.Holds(&vm.Status, e.Tag) && !claim.Lost(&vm.Status, e.Tag):
			m.violated("%s came of %q, which neither holds the machine nor is being undone: %s", e.Kind, e.Tag, claimOf(vm))
		}
	}
	m.effects = len(all)
	if m.hibernates {
		m.checkCopies()
	}
}

func (m *model) byUID(uid types.UID) *v1alpha1.VirtualMachine {
	for _, o := range m.store.current {
		if vm, is := o.(*v1alpha1.VirtualMachine); is && vm.UID == uid {
			return vm
		}
	}
	return nil
}

// checkOrder looks at the whole of what was sent and what came of it: once somebody has signalled, nothing comes of what
// another has sent before; and who is told to use force holds the machine with force.
func (m *model) checkOrder() {
	effects := map[int][]fake.Effect{} // by the call that they come of
	for _, e := range m.world.Effects() {
		if changes(e) {
			effects[e.Cause] = append(effects[e.Cause], e)
		}
	}
	calls := m.world.Calls()
	for i, c := range calls {
		if !signals(c) {
			continue
		}
		h := m.of(c.Machine.UID).claimed(c.Tag)
		if h == nil {
			continue // tag has said so
		}
		graceful := h.Type != v1alpha1.OperationDelete && h.Origin == v1alpha1.OriginOperation && !h.Force
		if c.Verb == runtime.VerbPowerOff && h.Origin == v1alpha1.OriginOperation && graceful != (c.Mode == runtime.Graceful) {
			m.violated("call %d is %s, and its sender's force is %v", c.Seq, c.Mode, h.Force)
		}
		for _, next := range calls[i+1:] {
			if !signals(next) || next.Machine.UID != c.Machine.UID || next.Tag == c.Tag || refused(next) {
				continue
			}
			for _, e := range effects[c.Seq] {
				if e.Seq > next.Seq {
					m.violated("%s came of call %d of %q after %q had sent call %d", e.Kind, c.Seq, c.Tag, next.Tag, next.Seq)
				}
			}
		}
	}
}

func signals(c fake.Call) bool {
	switch c.Verb {
	case runtime.VerbPowerOn, runtime.VerbPowerOff, runtime.VerbMigrate, runtime.VerbDelete, runtime.VerbHibernate:
		return true
	}
	return false
}

// refused tells whether nothing can have come of a call.
func refused(c fake.Call) bool { return c.Err != nil && !runtime.MayHaveActed(c.Err) }

// checkGone sees that nothing is left of a machine whose object is gone, unless it was given up on.
func (m *model) checkGone(vm *v1alpha1.VirtualMachine, p *past) {
	if p.abandoned || m.withoutMachines {
		return
	}
	if in, there := m.world.Instance(vm.UID); there {
		m.violated("VirtualMachine %s is gone, and its instance %s is still there", vm.Name, in.ID)
	}
	if n := len(m.world.Snapshots(vm.UID)); n > 0 {
		m.violated("VirtualMachine %s is gone, and %d snapshots of it are still there", vm.Name, n)
	}
}
