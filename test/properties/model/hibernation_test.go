package model

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/double/fake"
)

// stepOf is the step that is persisted before a call of a move by hibernation.
var stepOf = map[runtime.Verb]v1alpha1.MigrationStep{
	runtime.VerbHibernate: v1alpha1.MigrationHibernate, runtime.VerbWake: v1alpha1.MigrationWake, runtime.VerbRelease: v1alpha1.MigrationRelease,
	runtime.VerbRestore: v1alpha1.MigrationRestore, runtime.VerbRetract: v1alpha1.MigrationRestore, runtime.VerbDiscard: v1alpha1.MigrationDiscard,
}

// checkMove tells whether a call of a move was persisted before, and who may make it: only who has the machine moved puts it to sleep
// and removes it from its node, and who is undone, or nobody, takes the move to its end.
func (m *model) checkMove(w *worker, verb runtime.Verb, machine runtime.Machine, sees *v1alpha1.VirtualMachine) {
	a, move, undoing := sees.Status.ActiveOperation, sees.Status.Migration, len(sees.Status.Undoing) > 0
	moving := a != nil && claim.Moves(a.Type) && !undoing
	fenced := sees.Annotations[v1alpha1.AnnotationSourceFenced] != ""
	switch {
	case !sees.DeletionTimestamp.IsZero() && !undoing:
		if verb != runtime.VerbDiscard {
			m.violated("%s sends %s for a machine that is being deleted", w, verb)
		}
	case move == nil || move.Step != stepOf[verb] || !equality.Semantic.DeepEqual(move, machine.Migration):
		m.violated("%s sends %s for %+v, and the move is %+v", w, verb, machine.Migration, move)
	case verb == runtime.VerbHibernate && !moving, verb == runtime.VerbRelease && !moving && !fenced:
		m.violated("%s sends %s, and nobody has the machine moved: %s", w, verb, claimOf(sees))
	case a != nil && !undoing && !claim.Moves(a.Type):
		m.violated("%s sends %s while another holds the machine: %s", w, verb, claimOf(sees))
	}
}

// remember keeps what a machine was like when it was live last.
func (m *model) remember(e fake.Effect) {
	p := m.of(e.Machine)
	switch e.Kind {
	case fake.Hibernated:
		m.stats.slept++
		p.memory = e.Memory
	case fake.Woken:
		m.stats.woken++
		p.memory = e.Memory
	case fake.PoweredOn, fake.PoweredOff, fake.Created:
		p.memory = e.Memory
	case fake.Restored:
		m.stats.restored++
		if e.Memory != p.memory && !p.lost {
			m.violated("machine %s was restored as it was at %d, and was live last at %d", e.Machine, e.Memory, p.memory)
		}
	case fake.Deleted:
		p.lost = true
	}
}

// checkCopies sees that each machine is somewhere, as it was last, and nowhere twice.
func (m *model) checkCopies() {
	count := map[any]int{}
	for _, in := range m.world.Instances() {
		count[in.Owner]++
		vm := m.byUID(in.Owner)
		if live := in.State == ""; live && vm != nil {
			m.of(in.Owner).memory = in.Memory
		}
		if in.Owner != "" && count[in.Owner] > 1 {
			m.violated("machine %s has two instances", in.Owner)
		}
	}
	for uid, p := range m.machines {
		vm := m.byUID(uid)
		if vm == nil || !vm.DeletionTimestamp.IsZero() || p.lost || vm.Status.InstanceID == "" {
			continue
		}
		in, there := m.world.Instance(uid)
		leaving := m.world.State(uid) == runtime.InstanceLeaving
		kept := slices.ContainsFunc(m.world.Snapshots(uid), func(s fake.Snapshot) bool { return s.Memory == p.memory })
		if whole := there && !leaving && (in.State == "" || in.State == runtime.InstanceAsleep); !whole && !kept {
			m.violated("there is no copy of machine %s as it was last, at %d: instance %+v, snapshots %+v", uid, p.memory, in, m.world.Snapshots(uid))
		}
	}
}

// unrestOfMove says how a move by hibernation is not over.
func (m *model) unrestOfMove(vm *v1alpha1.VirtualMachine) string {
	in, there := m.world.Instance(vm.UID)
	switch {
	case m.of(vm.UID).lost:
		return ""
	case vm.Status.Migration != nil:
		return fmt.Sprintf("is still moved: %+v", *vm.Status.Migration)
	case there && in.State != "":
		return fmt.Sprintf("is %s", in.State)
	case !there && vm.Status.InstanceID != "":
		return "is nowhere"
	case len(m.world.Snapshots(vm.UID)) > 0:
		return fmt.Sprintf("has left snapshots: %+v", m.world.Snapshots(vm.UID))
	}
	return ""
}

// fairToMoves undoes all that stands in the way of moves, but for nodes that are dead with an instance on them that is being made or
// removed: those stay dead, and people have their say.
func (m *model) fairToMoves() {
	m.world.SetRegistry(fake.Registry{})
	for _, node := range []string{"node-1", "node-2"} {
		if !slices.Contains(m.deadForGood, node) {
			m.world.SetHost(fake.Host{Name: node})
		}
	}
}

// people confirm that a node is dead where they are asked to, and bring it back where that is not what is waited for.
func (m *model) people() {
	waits := false
	for uid := range m.machines {
		vm := m.byUID(uid)
		in, there := m.world.Instance(uid)
		if vm == nil || !there || !slices.Contains(m.deadForGood, in.NodeName) {
			continue
		}
		move, state := vm.Status.Migration, m.world.State(uid)
		if !move.Travels() || !vm.DeletionTimestamp.IsZero() || (state != runtime.InstanceLeaving && state != runtime.InstanceMaking) {
			continue
		}
		waits = true
		asks := v1alpha1.AnnotationSourceFenced + "=" + string(in.UID)
		if move.Reason == string(v1alpha1.ReasonSourceUnreachable) && strings.Contains(move.Message, asks) {
			m.fence(vm, in)
		}
	}
	if !waits && len(m.deadForGood) > 0 {
		m.revive()
	}
}

// fence has a person confirm that nothing of the instance runs, on a node that never comes back.
func (m *model) fence(vm *v1alpha1.VirtualMachine, in fake.Instance) {
	if vm.Annotations[v1alpha1.AnnotationSourceFenced] == string(in.UID) {
		return
	}
	m.trace("a person confirms that nothing of %s runs on %s", in.UID, in.NodeName)
	after := vm.DeepCopy()
	metav1.SetMetaDataAnnotation(&after.ObjectMeta, v1alpha1.AnnotationSourceFenced, string(in.UID))
	if err := m.store.update(after); err != nil {
		m.violated("confirming that %s is dead: %v", in.NodeName, err)
	}
}

func (m *model) revive() {
	m.trace("%v come back", m.deadForGood)
	for _, node := range m.deadForGood {
		m.world.SetHost(fake.Host{Name: node})
	}
	m.deadForGood = nil
}

// actionsOfMoves are what else may happen where machines are moved by hibernation.
var actionsOfMoves = []action{{8, (*dice).place}, {10, (*dice).advance}, {3, (*dice).agents}, {2, (*dice).confirm}, {4, (*dice).reconcile}}

// agents has something happen to a node.
func (d *dice) agents() {
	host := fake.Host{Name: pick(d, "host", "node-1", "node-2")}
	if slices.Contains(d.deadForGood, host.Name) {
		return
	}
	switch d.roll("agent", 5) {
	case 1:
		host.Silent = true
	case 2:
		host.Disconnected = true
	case 3:
		host.Dead, host.Disconnected = true, true
	case 4:
		host.Dead, host.Disconnected = true, true
		d.deadForGood = append(d.deadForGood, host.Name)
	}
	d.trace("%+v", host)
	d.world.SetHost(host)
}

// confirm has a person do as a message says, who knows that the node will not come back.
func (d *dice) confirm() {
	if vm := d.machine(d.name()); vm != nil {
		if in, there := d.world.Instance(vm.UID); there && slices.Contains(d.deadForGood, in.NodeName) {
			d.fence(vm, in)
		}
	}
}

// faultOfMove has agents and the registry err.
func (d *dice) faultOfMove() {
	verbs := []runtime.Verb{
		runtime.VerbHibernate, runtime.VerbWake, runtime.VerbRelease, runtime.VerbRestore, runtime.VerbRetract, runtime.VerbDiscard,
	}
	at := fake.At{Verb: verbs[d.roll("verb", len(verbs))]}
	d.stats.faults++
	switch uid := d.uid(); d.roll("fault of a move", 9) {
	case 0:
		r := fake.Registry{Down: d.chance("down", 40), Forgets: d.chance("forgets", 30), ReadOnly: d.chance("read-only", 30)}
		d.trace("%+v", r)
		d.world.SetRegistry(r)
	case 1:
		d.world.SetRegistry(fake.Registry{})
	case 2, 3:
		h := fake.Hibernations{
			Unsaved: d.chance("unsaved", 25), Leftover: d.chance("left over", 50), FailRestores: d.roll("restores", 3), Stale: d.chance("stale", 25),
		}
		if d.chance("refused", 15) {
			h.Refused = "a disk is shared"
		}
		d.trace("%+v", h)
		d.world.SetHibernations(uid, h)
	case 4:
		d.world.Script(at, fake.Fail(runtime.NewUnavailable(nil, "away")))
	case 5:
		d.world.Script(at, fake.LoseReply())
	case 6: // what no agent has to do is done once the call has returned
		d.world.Script(fake.At{Verb: pick(d, "late", runtime.VerbHibernate, runtime.VerbWake, runtime.VerbRelease)}, fake.ActLate(1+d.roll("steps", 3)))
	case 7:
		d.world.Script(fake.At{Verb: pick(d, "task", runtime.VerbHibernate, runtime.VerbWake)}, fake.FailTask("no memory"))
	case 8:
		kind := pick(d, "held", runtime.TaskRelocate, runtime.TaskCreate, runtime.TaskOther, runtime.TaskDelete)
		d.releases = append(d.releases, d.world.Hold(uid, kind))
	}
}

// Machines that are moved by hibernation, with all that agents, the registry, nodes and people may do.
func TestMovesByHibernation(t *testing.T) {
	total := check(t, options{hibernates: true}, 25)
	if total.slept == 0 || total.woken == 0 || total.restored == 0 {
		t.Errorf("machines did not sleep, wake and move: %+v", total)
	}
}

// latest is how late a queue is at most in the end, as a power of two of seconds: moves by hibernation take several looks, which have to
// come within the deadline of who has the machine moved.
func (m *model) latest() int {
	if m.hibernates {
		return 6
	}
	return 12
}
