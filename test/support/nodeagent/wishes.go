package nodeagent

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/agent"
)

// What Hold and Fail call what is no request: the making of a machine, also from a snapshot, and its removal; and the report of a machine
// that has been pushed, which can only be held.
const (
	Creating  agent.Request = "Create"
	Deleting  agent.Request = "Delete"
	Reporting agent.Request = "Report"
)

// Guest is what a guest is like.
type Guest struct {
	// Ignores has it ignore requests to shut down.
	Ignores bool
	// NoTools leaves nothing in it that could be asked.
	NoTools bool
}

// wishes are what an agent was told of the machine of a VirtualMachine, wherever that is.
type wishes struct {
	guest Guest
	held  map[agent.Request]bool
	fails map[agent.Request]string
}

func (a *Agent) wish(vm types.UID) *wishes {
	if a.wishes[vm] == nil {
		a.wishes[vm] = &wishes{held: map[agent.Request]bool{}, fails: map[agent.Request]string{}}
	}
	return a.wishes[vm]
}

// change changes the wishes for a machine, and gives what changes them back.
func (a *Agent) change(vm types.UID, to, back func(*wishes)) func() {
	set := func(change func(*wishes)) {
		a.mu.Lock()
		defer a.mu.Unlock()
		change(a.wish(vm))
	}
	set(to)
	return func() { set(back) }
}

// Hold keeps the agents from doing that for the machine of the VirtualMachine with that UID, until release is called.
func (a *Agent) Hold(vm types.UID, request agent.Request) (release func()) {
	return a.change(vm, func(w *wishes) { w.held[request] = true }, func(w *wishes) { delete(w.held, request) })
}

// Fail has the agents report, with that message, that they could not do that for the machine, until they can again.
func (a *Agent) Fail(vm types.UID, request agent.Request, message string) (can func()) {
	return a.change(vm, func(w *wishes) { w.fails[request] = message }, func(w *wishes) { delete(w.fails, request) })
}

// SetGuest says what the machine's guest is like from now on. One that ignored a request heeds it if it does not ignore any more.
func (a *Agent) SetGuest(vm types.UID, g Guest) { a.change(vm, func(w *wishes) { w.guest = g }, nil) }

// Die has the agent of a node do nothing any more. What runs there goes on.
func (a *Agent) Die(node string) { a.setDead(node, true) }

// Revive has it go on where it was.
func (a *Agent) Revive(node string) { a.setDead(node, false) }

func (a *Agent) setDead(node string, dead bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dead[node] = dead
}

func (a *Agent) isDead(node string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.dead[node]
}

// Pause suspends the machine, if it is on.
func (a *Agent) Pause(vm types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range a.machines {
		if m.vm == vm && m.runs() {
			m.state = agent.Paused
		}
	}
}

// Work has the machine do some work if it runs, and gives how much it has done since it was made, wherever that was. It is 0 if
// it does not run.
func (a *Agent) Work(vm types.UID) (all int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range a.machines {
		if m.vm == vm && m.runs() && m.state == agent.Running {
			m.work++
			all = max(all, m.work)
			a.worked[vm] = max(a.worked[vm], m.work)
		}
	}
	return all
}

// Live gives what runs now, or is paused: for each VirtualMachine its node and instance, or several, which must never be.
func (a *Agent) Live() map[types.UID][]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	live := map[types.UID][]string{}
	for _, m := range a.machines {
		if m.runs() {
			live[m.vm] = append(live[m.vm], m.node+"/"+m.instance())
		}
	}
	return live
}

// Violations are what must never be and was all the same, since the agent was made: a machine that ran twice, or that went back to what it
// was before.
func (a *Agent) Violations() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.violations)
}

func (a *Agent) violated(format string, args ...any) {
	a.violations = append(a.violations, fmt.Sprintf(format, args...))
}
