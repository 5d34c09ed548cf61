//go:build !race

package vcenter

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/depth"
)

// operations are all of them, in the order of the matrix.
var operations = []string{
	"Start", "Stop", "Stop force", "Restart", "Restart force", "Migrate", "Migrate force", "Evict", "Evict force",
}

// yields is the matrix as docs/operations.md has it: what is running, and what may take its place.
func yields(running, asked string) bool {
	row := map[string][]string{
		"Start":   {"Stop", "Stop force"},
		"Stop":    {"Stop force", "Restart force"},
		"Restart": {"Stop force", "Restart force"},
		"Migrate": {"Stop", "Stop force", "Restart", "Restart force"},
		"Evict":   {"Stop", "Stop force", "Restart", "Restart force"},
	}
	kind, forced := strings.CutSuffix(running, " force")
	if forced && (kind == "Stop" || kind == "Restart") {
		return false
	}
	return slices.Contains(row[kind], asked)
}

// leaves is the power state in which an operation leaves its machine.
func leaves(what string) v1alpha1.PowerState {
	if strings.HasPrefix(what, "Stop") {
		return v1alpha1.PowerStopped
	}
	return v1alpha1.PowerRunning
}

// Every operation is requested while every other one hangs, each time on another machine: 81 pairs. If the matrix allows it, the running one
// ends superseded and the new one succeeds. Otherwise the new one is refused, and the running one succeeds once it does not hang any more.
func TestPairs(t *testing.T) {
	depth.Only(t)
	var all sync.WaitGroup
	slots := make(chan struct{}, 16)
	for _, running := range operations {
		for _, asked := range operations {
			all.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				t.Run(running+" then "+asked, func(t *testing.T) { pair(t, running, asked) })
			})
		}
	}
	all.Wait()
}

func pair(t *testing.T, running, asked string) {
	m := newMachine(t, map[bool]v1alpha1.PowerState{true: v1alpha1.PowerStopped, false: v1alpha1.PowerRunning}[running == "Start"])
	release := m.hang(running)
	node, incarnation := m.node(), m.get().Status.Incarnation
	first := m.ask(running)
	m.tells(first)
	second := m.request(asked)
	err := m.submit(second)
	if !yields(running, asked) {
		switch {
		case err == nil:
			t.Fatalf("%s was admitted while %s is running", asked, running)
		case asked == "Start force" || strings.Contains(err.Error(), first.Name) && strings.Contains(err.Error(), "OperationInProgress"):
		default:
			t.Errorf("the refusal does not say that %s is in progress: %v", first.Name, err)
		}
		release()
		m.ends(first, "Completed/Succeeded")
		m.rests(leaves(running))
		return
	}
	m.Must(err)
	m.ends(second, "Completed/Succeeded")
	m.supersedes(second, first)
	m.rests(leaves(asked))
	m.intends(leaves(asked), second.Name)
	if m.node() != node {
		t.Errorf(depth.Effect+"the machine went from %s to %s though its migration was superseded", node, m.node())
	}
	if strings.HasPrefix(asked, "Restart") && m.get().Status.Incarnation == incarnation {
		t.Error("the machine has not been off")
	}
	release()
}

// hang has the next operation of that kind hang until release: the task of the hypervisor, or the guest.
func (m *machine) hang(what string) (release func()) {
	kind, forced := strings.CutSuffix(what, " force")
	switch {
	case kind == "Start":
		return m.hold(runtime.TaskPowerOn)
	case kind == "Migrate", kind == "Evict":
		return m.hold(runtime.TaskRelocate)
	case forced:
		return m.hold(runtime.TaskPowerOff)
	}
	stack.vcenter.IgnoreShutdown(m.path)
	return func() { stack.vcenter.HeedShutdown(m.path) }
}
