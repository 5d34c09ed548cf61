package model

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/double/fake"
)

// scenario is a short story of one machine, vm-0, in chapters: after each the leader works until it has nothing to do.
type scenario struct {
	name     string
	policy   v1alpha1.RunPolicy
	power    v1alpha1.PowerState
	chapters []func(*model)
	want     string // as outcome has it
	// change is what somebody else does just before the call with that number.
	change   func(*model)
	changeAt int
}

// asks makes an operation that nobody judges first.
func asks(name string, t v1alpha1.OperationType, force bool) func(*model) {
	return func(m *model) {
		o := &v1alpha1.VirtualMachineOperation{}
		o.Name, o.Spec.Type, o.Spec.Force, o.Spec.VirtualMachineName = name, t, force, "vm-0"
		m.sleep(time.Millisecond) // or the UIDs decide who is older
		m.ask(o)
	}
}

// stuck has tasks of a kind not end before the story does.
func stuck(kind runtime.TaskKind) func(*model) {
	return func(m *model) { m.releases = append(m.releases, m.world.Hold(m.machine("vm-0").UID, kind)) }
}

func ignored(m *model) { m.world.SetGuest(m.machine("vm-0").UID, fake.Guest{Ignores: true}) }

func moves(m *model) {
	m.world.Advance(m.machine("vm-0").UID)
	m.settle()
}

func deleted(m *model) { m.delete(m.machine("vm-0")) }

// ends goes on until an operation has ended.
func ends(name string) func(*model) {
	return func(m *model) {
		for range 30 {
			if o := m.operation(name); o == nil || o.Finished() || m.broken() {
				return
			}
			m.newQueue().work()
			m.world.AdvanceAll()
			m.sleep(time.Second)
		}
	}
}

var scenarios = []scenario{
	{
		name: "Stop over a Start that hangs", policy: v1alpha1.RunPolicyManual, power: v1alpha1.PowerStopped,
		chapters: []func(*model){stuck(runtime.TaskPowerOn), asks("a", "Start", false), asks("b", "Stop", false)},
		want:     "a Completed/Superseded, b Completed/Succeeded, Stopped, intent Stopped",
	},
	{
		name: "Restart over a migration", policy: v1alpha1.RunPolicyManual, power: v1alpha1.PowerRunning,
		chapters: []func(*model){stuck(runtime.TaskRelocate), asks("a", "Migrate", false), asks("b", "Restart", false), moves, moves},
		want:     "a Completed/Superseded, b Completed/Succeeded, Running, intent Running",
	},
	{
		name: "forced Restart over a Restart that the guest ignores", policy: v1alpha1.RunPolicyAlwaysOn, power: v1alpha1.PowerRunning,
		chapters: []func(*model){ignored, asks("a", "Restart", false), asks("b", "Restart", true), moves, moves},
		want:     "a Completed/Superseded, b Completed/Succeeded, Running, intent Running",
	},
	{
		name: "Stop while the run policy starts", policy: v1alpha1.RunPolicyAlwaysOnUnlessStoppedManually, power: v1alpha1.PowerStopped,
		chapters: []func(*model){stuck(runtime.TaskPowerOn), func(*model) {}, asks("b", "Stop", false)},
		want:     "b Completed/Succeeded, Stopped, intent Stopped",
	},
	{
		name: "machine deleted while an operation holds it", policy: v1alpha1.RunPolicyManual, power: v1alpha1.PowerStopped,
		chapters: []func(*model){stuck(runtime.TaskPowerOn), asks("a", "Start", false), deleted},
		want:     "a Failed, gone",
	},
	{
		name: "machine deleted while it is made", policy: v1alpha1.RunPolicyManual, power: "",
		chapters: []func(*model){func(*model) {}, deleted},
		want:     "gone",
	},
	{
		name: "machine from its creation to its deletion", policy: v1alpha1.RunPolicyAlwaysOn, power: "",
		chapters: []func(*model){func(*model) {}, moves, moves, deleted, moves},
		want:     "gone",
	},
	{
		name: "two Starts", policy: v1alpha1.RunPolicyManual, power: v1alpha1.PowerStopped,
		chapters: []func(*model){asks("a", "Start", false), asks("b", "Start", false), moves},
		want:     "a Completed/Succeeded, b Failed, Running, intent Running",
	},
	{
		name: "a Start after a Stop", policy: v1alpha1.RunPolicyAlwaysOnUnlessStoppedManually, power: v1alpha1.PowerRunning,
		chapters: []func(*model){asks("a", "Stop", false), ends("a"), asks("b", "Start", false), moves},
		want:     "a Completed/Succeeded, b Completed/Succeeded, Running, intent Running",
	},
}

// outcome is what a story comes to.
func (m *model) outcome() string {
	var parts []string
	for _, o := range m.requests { // some are gone
		text := o.Name + " Failed" // for a reason that depends on how far the other one has come
		if o.Status.Phase != v1alpha1.OperationFailed {
			text = fmt.Sprintf("%s %s/%s", o.Name, o.Status.Phase, reasonOf(o))
		}
		parts = append(parts, text)
	}
	slices.Sort(parts)
	vm := m.machine("vm-0")
	if vm == nil {
		return strings.Join(append(parts, "gone"), ", ")
	}
	in, _ := m.world.Instance(vm.UID)
	parts = append(parts, string(in.Power))
	if vm.Status.PowerIntent != nil {
		parts = append(parts, "intent "+string(vm.Status.PowerIntent.State))
	}
	return strings.Join(parts, ", ")
}

// disturbance is what befalls a story at one of its calls.
type disturbance int

const (
	nothing disturbance = iota
	crashBefore
	crashAfter
	losesReply
	suspended         // for good: the process is stopped with its call not made
	suspendedThenCall // makes its call just before the new leader's wait is over, after all that is left of the story
	suspendedThenAll  // the same, and goes on for as long as it has something to do
	suspendedAtOnce   // makes its call as soon as the new leader has done what it can do
)

func (d disturbance) String() string {
	return [...]string{
		"nothing", "crash before", "crash after", "reply lost", "suspended for good", "suspended, then the call",
		"suspended, then all", "suspended, the call at once",
	}[d]
}

// telling is a story that is told.
type telling struct {
	*model
	*scenario
	how    disturbance
	at     int // the call that it befalls
	calls  int
	writes []int // those of the calls that change anything
}

// tell plays a scenario, with the disturbance at that call.
func (s *scenario) tell(t *testing.T, o options, how disturbance, at int) *telling {
	t.Helper()
	tale := &telling{scenario: s, how: how, at: at}
	inBubble(t, o, func(m *model) {
		tale.model, m.interrupt = m, tale.interrupt
		m.leader = m.newProcess(0)
		kind := known
		if s.power == "" {
			kind = fresh
		}
		m.addMachine("vm-0", s.policy, kind, s.power)
		for _, chapter := range s.chapters {
			chapter(m)
			m.settle()
			m.newQueue().work()
			if how == suspendedAtOnce {
				tale.late(1)
			}
		}
		switch how {
		case suspendedThenCall:
			tale.late(1)
		case suspendedThenAll:
			tale.late(100)
		}
		if !m.broken() {
			m.end(false)
		}
	})
	return tale
}

// interrupt is asked before each call of the leader: what befalls it, and whether its worker goes no further.
func (t *telling) interrupt(w *worker) (v verdict, over bool) {
	if t.calls++; t.calls == t.changeAt {
		t.change(t.model)
	}
	if w.at.write {
		t.writes = append(t.writes, t.calls)
	}
	if t.calls != t.at {
		return goOn, false
	}
	switch t.how {
	case nothing:
		return goOn, false
	case losesReply:
		return lose, false
	case crashBefore:
		t.crash(0)
	case crashAfter:
		t.step(w, goOn)
		t.crash(0)
	default:
		t.failover()
	}
	return goOn, true
}

// late lets the new leader do what it can do while it waits, and then the old one make some calls.
func (t *telling) late(calls int) {
	if t.old == nil {
		return
	}
	q := t.newQueue()
	for range 4 {
		t.sleep(3 * time.Second)
		q.work()
		t.world.AdvanceAll()
		t.settle()
	}
	for range calls {
		parked := t.old.parked()
		if len(parked) == 0 || t.broken() {
			break
		}
		if parked[0].at.outside {
			t.step(parked[0], goOn)
		}
		if parked[0].at != nil {
			t.step(parked[0], goOn)
		}
	}
	t.stopOld()
	t.world.AdvanceAll()
	t.settle()
}

// atEveryCall tells a story with everything that may befall it at whichever call: it always comes to the same end.
func (s *scenario) atEveryCall(t *testing.T, o options) {
	t.Helper()
	m := s.tell(t, o, nothing, 0)
	if m.broken() {
		t.Fatal(m.report())
	}
	if got := m.outcome(); got != s.want {
		m.violated("the story comes to %q and not to %q", got, s.want)
		t.Fatal(m.report())
	}
	cases, calls := 0, m.calls
	stride := 1
	if testing.Short() {
		stride = 9 // those of each kind of disturbance at other calls
	}
	for how := crashBefore; how <= suspendedAtOnce; how++ {
		for at := 1 + int(how)%stride; at <= calls; at += stride {
			m := s.tell(t, o, how, at)
			if got := m.outcome(); got != s.want {
				m.violated("comes to %q", got)
			}
			if cases++; m.broken() {
				t.Errorf("%s at call %d of %d: %s", how, at, calls, m.report())
				break
			}
		}
	}
	t.Logf("%d calls, %d cases", calls, cases)
}

// Each story comes to the same end whatever befalls it at whichever call: a crash before it or after it, a lost reply, or a
// failover with the old leader suspended there, for good or until just before the new one may send.
func TestScenariosAtEveryCall(t *testing.T) {
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) { s.atEveryCall(t, options{}) })
	}
}

// The model can fail: a new leader that does not wait sends beside the old one, and that is seen.
func TestModelSeesLeaderThatDoesNotWait(t *testing.T) {
	o := options{noWait: true}
	calls := scenarios[0].tell(t, o, nothing, 0).calls
	for at := 1; at <= calls; at++ {
		if m := scenarios[0].tell(t, o, suspendedThenCall, at); m.broken() {
			t.Logf("at call %d of %d: %s", at, calls, m.violation)
			return
		}
	}
	t.Errorf("%d runs and nothing was seen", calls)
}
