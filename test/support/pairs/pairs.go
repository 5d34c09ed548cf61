// Package pairs requests every operation while every other one is in progress, on any runtime.
package pairs

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// operations are all of them, in the order of the matrix.
var operations = []string{
	"Start", "Stop", "Stop force", "Restart", "Restart force", "Migrate", "Migrate force", "Evict", "Evict force",
}

// yields is the matrix as docs/operations.md has it: what is running, and what may supersede it.
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

// Run requests every operation while every other one hangs, each time on another machine: 81 pairs, or one of every so many of them, 16 at a
// time. If the matrix allows it, the running one ends superseded and the new one succeeds. Otherwise the new one is denied, and the running
// one succeeds once it does not hang any more. create returns a machine that is off, by a name that no other pair has.
func Run(t *testing.T, every int, create func(t *testing.T, name string) *Machine) {
	var all sync.WaitGroup
	slots := make(chan struct{}, 16)
	turn := 0
	for _, running := range operations {
		for _, asked := range operations {
			if turn++; turn%every != 0 {
				continue
			}
			all.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				t.Run(running+" then "+asked, func(t *testing.T) {
					create(t, strings.ReplaceAll(strings.ToLower(running+"-then-"+asked), " ", "-")).pair(running, asked)
				})
			})
		}
	}
	all.Wait()
}

func (m *Machine) pair(running, asked string) {
	m.rests(v1alpha1.PowerStopped)
	if running != "Start" {
		m.ends(m.ask("Start"), "Completed/Succeeded")
		m.rests(v1alpha1.PowerRunning)
	}
	kind, forced := strings.CutSuffix(running, " force")
	release := m.Hang(v1alpha1.OperationType(kind), forced)
	node, incarnation := m.Node(), m.get().Status.Incarnation
	first := m.ask(running)
	m.sent(first)
	second := m.request(asked)
	err := m.submit(second)
	if !yields(running, asked) {
		switch {
		case err == nil:
			m.Fatalf("%s was admitted while %s is running", asked, running)
		case strings.Contains(err.Error(), first.Name) && strings.Contains(err.Error(), "OperationInProgress"):
		default:
			m.Errorf("the denial does not say that %s is in progress: %v", first.Name, err)
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
	if now := m.Node(); now != node && node != "" && now != "" {
		m.Errorf("the machine went from %s to %s though its migration was superseded", node, now)
	}
	if strings.HasPrefix(asked, "Restart") && m.get().Status.Incarnation == incarnation {
		m.Error("the machine has not been off")
	}
	release()
}

// sent waits until an operation has sent its request to the runtime.
func (m *Machine) sent(o *v1alpha1.VirtualMachineOperation) {
	m.Helper()
	m.Until(o.Name+" was sent", func() (string, bool) {
		m.state(o)
		return fmt.Sprintf("%+v", o.Status), meta.IsStatusConditionTrue(o.Status.Conditions, string(v1alpha1.ConditionSignalSent))
	})
}
