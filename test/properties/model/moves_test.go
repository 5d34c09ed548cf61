package model

import (
	"slices"
	"testing"
	"time"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/double/fake"
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
var untilMoved = slices.Repeat([]func(*model){goesOn}, 7)

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

// Whatever is changed before whichever call of a move, and whichever write or call of the runtime after that is the last that its process
// makes, or the one whose reply is lost: the machine is where it is wanted, as it was, and nothing is left of the move.
func TestChangesAtEveryCallOfMoves(t *testing.T) {
	plain := aMove(wanted("node-2"))
	stride := 2
	if testing.Short() {
		stride = 9
	}
	calls := plain.tell(t, options{hibernates: true}, nothing, 0).calls
	for name, tc := range changesOfMoves {
		t.Run(name, func(t *testing.T) {
			cases := 0
			for at := 1; at <= calls; at += stride {
				s := plain
				s.change, s.changeAt = tc.change, at
				cases += s.atEveryWrite(t, tc.where, at/stride%stride, stride)
			}
			t.Logf("%d calls of a move, %d cases, 0 lost", calls, cases)
		})
	}
}

// atEveryWrite tells a story of a move with a crash, and with a lost reply, at every so many of the writes from the change on, and gives
// how often it was told.
func (s *scenario) atEveryWrite(t *testing.T, where string, first, stride int) (cases int) {
	t.Helper()
	o := options{hibernates: true}
	writes := s.tell(t, o, nothing, 0).writes
	from, _ := slices.BinarySearch(writes, s.changeAt)
	for i := from + first; i < len(writes); i += stride {
		for _, how := range []disturbance{crashAfter, losesReply} {
			m := s.tell(t, o, how, writes[i])
			if is := m.where(); !m.broken() && is != where && (where != "" || is == "gone") {
				m.violated("the machine is on %q and not on %q", is, where)
			}
			if cases++; m.broken() {
				t.Fatalf("changed at call %d, %s at call %d: %s", s.changeAt, how, writes[i], m.report())
			}
		}
	}
	return cases
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

// A restore that fails again and again is tried again after a rest, and in the end the machine is back, with the wish given up.
func TestFailedRestoresRest(t *testing.T) {
	m := inBubble(t, options{hibernates: true}, func(m *model) {
		m.leader = m.newProcess(0)
		m.addMachine("vm-0", v1alpha1.RunPolicyManual, known, v1alpha1.PowerRunning)
		m.world.SetHibernations(m.machine("vm-0").UID, fake.Hibernations{FailRestores: 5})
		wanted("node-2")(m)
		failures, last := 0, time.Now()
		for range 90 {
			m.newQueue().work()
			goesOn(m)
			n := 0
			for _, e := range m.world.Effects() {
				if e.Kind == fake.TaskFailed {
					n++
				}
			}
			if n > failures {
				if pause := time.Since(last); failures > 0 && pause < 30*time.Second {
					m.violated("failure %d comes %s after the one before", n, pause)
				}
				failures, last = n, time.Now()
			}
			m.sleep(5 * time.Second)
		}
		if p := m.machine("vm-0").Status.Placement; failures != 5 || p == nil || p.InPlaceOf != "node-2" {
			m.violated("%d failures, and the machine is kept on %+v", failures, p)
		}
		m.end(false)
	})
	if m.broken() {
		t.Error(m.report())
	}
}

// A move is not over before the registry has removed its snapshots, also if that takes until the registry lets it.
func TestRegistryThatRemovesNothing(t *testing.T) {
	m := inBubble(t, options{hibernates: true}, func(m *model) {
		m.leader = m.newProcess(0)
		m.addMachine("vm-0", v1alpha1.RunPolicyManual, known, v1alpha1.PowerRunning)
		m.world.SetRegistry(fake.Registry{ReadOnly: true})
		wanted("node-2")(m)
		for range 10 {
			m.newQueue().work()
			goesOn(m)
			m.sleep(5 * time.Second)
		}
		if move := m.machine("vm-0").Status.Migration; m.where() != "node-2" || move == nil || move.Step != v1alpha1.MigrationDiscard {
			m.violated("the machine is on %q, and the move is %+v", m.where(), move)
		}
		m.end(false)
	})
	if m.broken() {
		t.Error(m.report())
	}
}

// A move whose Pod nobody lets it remove is rolled back in time: the machine does not stay asleep, and its claim ends. What its spec wants
// is not tried again and again.
func TestPodThatCannotBeRemoved(t *testing.T) {
	for what, begins := range map[string]func(*model){"an operation": asks("a", "Evict", false), "spec.nodeName": wanted("node-2")} {
		t.Run(what, func(t *testing.T) { podThatCannotBeRemoved(t, begins, what == "spec.nodeName") })
	}
}

func podThatCannotBeRemoved(t *testing.T, begins func(*model), placed bool) {
	t.Helper()
	m := inBubble(t, options{hibernates: true}, func(m *model) {
		m.leader = m.newProcess(0)
		m.addMachine("vm-0", v1alpha1.RunPolicyManual, known, v1alpha1.PowerRunning)
		uid := m.machine("vm-0").UID
		m.world.Script(fake.At{Machine: uid, Verb: runtime.VerbRelease}, fake.Fail(runtime.NewPermission(nil, "a policy protects the Pod")).Always())
		begins(m)
		slept := time.Duration(0)
		for range 240 {
			m.newQueue().work()
			goesOn(m)
			m.sleep(5 * time.Second)
			if m.world.State(uid) == runtime.InstanceAsleep {
				slept += 5 * time.Second
			}
		}
		if state := m.world.State(uid); slept < time.Minute || slept > 6*time.Minute || state != runtime.InstanceLive || m.where() != "node-1" {
			m.violated("the machine is %s on %q and has slept for %s", state, m.where(), slept)
		}
		if p := m.machine("vm-0").Status.Placement; placed != (p != nil && p.InPlaceOf == "node-2") {
			m.violated("the machine is kept on %+v", p)
		}
		if vm := m.machine("vm-0"); vm.Status.ActiveOperation != nil || vm.Status.Migration != nil || len(vm.Status.Undoing) > 0 {
			m.violated("the move is not over: %+v", vm.Status)
		}
		m.world.ClearScripts()
		m.end(false)
	})
	if m.broken() {
		t.Error(m.report())
	}
}
