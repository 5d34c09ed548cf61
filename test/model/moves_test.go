package model

import (
	"slices"
	"testing"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime/fake"
	"sallyport.dev/sallyport/test/depth"
)

// wanted has the spec name a node, or none.
func wanted(node string) func(*model) {
	return func(m *model) {
		vm := m.machine("vm-0")
		if vm == nil || !vm.DeletionTimestamp.IsZero() {
			return
		}
		m.trace("vm-0 is wanted on %q", node)
		after := vm.DeepCopy()
		after.Spec.NodeName = node
		if err := m.store.update(after); err != nil {
			m.violated("changing vm-0: %v", err)
		}
	}
}

// goesOn takes the world a step on, also without the machine.
func goesOn(m *model) {
	m.world.AdvanceAll()
	m.settle()
}

// untilMoved is how many steps of the world a move takes at most.
var untilMoved = slices.Repeat([]func(*model){goesOn}, 6)

// aMove is a machine that is on and is moved from node-1 of three.
func aMove(begins func(*model), more ...func(*model)) scenario {
	first := func(m *model) {
		m.world.SetHost(fake.Host{Name: "node-3"})
		begins(m)
	}
	return scenario{
		policy: v1alpha1.RunPolicyManual, power: v1alpha1.PowerRunning, chapters: slices.Concat([]func(*model){first}, more, untilMoved),
	}
}

// movesAtEveryCall are stories of moves, by what comes first and how they end.
var movesAtEveryCall = map[string]struct {
	first []func(*model)
	want  string
}{
	"spec.nodeName":              {[]func(*model){wanted("node-2")}, "Running"},
	"Evict":                      {[]func(*model){asks("a", "Evict", false)}, "a Completed/Succeeded, Running"},
	"back while it is put aside": {[]func(*model){wanted("node-2"), wanted("node-1")}, "Running"},
	"back while it is asleep":    {[]func(*model){wanted("node-2"), goesOn, wanted("node-1")}, "Running"},
	"Stop over a move": {
		[]func(*model){asks("a", "Migrate", false), asks("b", "Stop", true)}, "a Completed/Superseded, b Completed/Succeeded, Stopped, intent Stopped",
	},
	"deleted while it is on no node": {[]func(*model){wanted("node-2"), goesOn, goesOn, deleted}, "gone"},
}

// Whatever befalls a move at whichever call, it comes to the same end, and the machine is the one that it was.
func TestMovesAtEveryCall(t *testing.T) {
	for name, tc := range movesAtEveryCall {
		t.Run(name, func(t *testing.T) {
			s := aMove(tc.first[0], tc.first[1:]...)
			s.want = tc.want
			s.atEveryCall(t, options{hibernates: true})
		})
	}
}

// What somebody does while a machine is moved, and where it is in the end: on any node without a name.
var changesOfMoves = map[string]struct {
	change func(*model)
	where  string
}{
	"wanted back":      {wanted("node-1"), "node-1"},
	"wanted elsewhere": {wanted("node-3"), "node-3"},
	"wanted nowhere":   {wanted(""), ""},
	"deleted":          {func(m *model) { deleted(m) }, "gone"},
}

// Whatever is changed before whichever call of a move, and whichever call after that is the last that its process makes, or the one whose
// reply is lost: the machine is where it is wanted, as it was, and nothing is left of the move.
func TestChangesAtEveryCallOfMoves(t *testing.T) {
	o := options{hibernates: true}
	plain := aMove(wanted("node-2"))
	_, calls := plain.tell(t, o, nothing, 0)
	for name, tc := range changesOfMoves {
		t.Run(name, func(t *testing.T) {
			cases, stride := 0, depth.Of(7, 1)
			for changeAt := 1; changeAt <= calls; changeAt += stride {
				s := plain
				s.change, s.changeAt = tc.change, changeAt
				_, all := s.tell(t, o, nothing, 0)
				for at := changeAt; at <= all; at += stride {
					for _, how := range []disturbance{crashAfter, losesReply} {
						m, _ := s.tell(t, o, how, at)
						if where := m.where(); !m.broken() && where != tc.where && (tc.where != "" || where == "gone") {
							m.violated("the machine is on %q and not on %q", where, tc.where)
						}
						if cases++; m.broken() {
							t.Fatalf("changed at call %d, %s at call %d of %d: %s", changeAt, how, at, all, m.report())
						}
					}
				}
			}
			t.Logf("%d calls of a move, %d cases, 0 lost", calls, cases)
		})
	}
}

// where is the node that vm-0 is on.
func (m *model) where() string {
	vm := m.machine("vm-0")
	if vm == nil {
		return "gone"
	}
	in, _ := m.world.Instance(vm.UID)
	return in.NodeName
}
