//go:build !race

package vcenter

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/depth"
)

// scenarios are the collisions that have names.
var scenarios = []struct {
	name string
	test func(t *testing.T)
}{
	{"Stop over a stuck Start", stopOverStuckStart},
	{"forced Stop over a Stop that the guest ignores", forcedStopOverIgnoredStop},
	{"Restart over a running migration", restartOverMigration},
	{"forced Restart over a Restart whose second half hangs", forcedRestartOverRestart},
	{"Stop while the run policy is starting the machine", stopOverRunPolicy},
	{"operation deleted while holder", operationDeleted},
	{"VM deleted while held", machineDeleted},
	{"VM re-created under operations", machineRecreated},
	{"two Starts at once", twoStarts},
	{"backend away past the deadline", backendAway},
	{"a Stop that waits for a power-on that cannot be cancelled", cancelIgnored},
	{"operations on a suspended machine", suspended},
}

func TestScenarios(t *testing.T) {
	depth.Only(t)
	var all sync.WaitGroup
	for _, s := range scenarios {
		all.Go(func() { t.Run(s.name, func(t *testing.T) { s.test(t) }) })
	}
	all.Wait()
}

// stuck gives a machine on which an operation hangs.
func stuck(t *testing.T, what string) (m *machine, o *v1alpha1.VirtualMachineOperation) {
	t.Helper()
	power := v1alpha1.PowerRunning
	if what == "Start" {
		power = v1alpha1.PowerStopped
	}
	m = newMachine(t, power)
	m.hang(what)
	o = m.ask(what)
	m.tells(o)
	return m, o
}

func stopOverStuckStart(t *testing.T) {
	m, start := stuck(t, "Start")
	stop := m.ask("Stop")
	m.ends(stop, "Completed/Succeeded")
	m.supersedes(stop, start)
	m.rests(v1alpha1.PowerStopped)
	m.intends(v1alpha1.PowerStopped, stop.Name)
}

func forcedStopOverIgnoredStop(t *testing.T) {
	m, gentle := stuck(t, "Stop")
	forced := m.ask("Stop force")
	m.ends(forced, "Completed/Succeeded")
	m.supersedes(forced, gentle)
	m.rests(v1alpha1.PowerStopped)
}

func restartOverMigration(t *testing.T) {
	m, move := stuck(t, "Migrate")
	node, incarnation := m.node(), m.get().Status.Incarnation
	restart := m.ask("Restart")
	m.ends(restart, "Completed/Succeeded")
	m.supersedes(restart, move)
	m.rests(v1alpha1.PowerRunning)
	if m.node() != node {
		t.Errorf("the machine went from %s to %s", node, m.node())
	}
	if m.get().Status.Incarnation == incarnation {
		t.Error("the machine has not been off")
	}
}

func forcedRestartOverRestart(t *testing.T) {
	m := newMachine(t, v1alpha1.PowerRunning)
	release := m.hold(runtime.TaskPowerOn)
	gentle := m.ask("Restart")
	m.until("the second half has begun", func() bool {
		m.state(gentle)
		return gentle.Status.Step == v1alpha1.StepPowerOn && m.power() == v1alpha1.PowerStopped
	})
	m.tells(gentle)
	forced := m.ask("Restart force")
	m.supersedes(forced, gentle)
	release()
	m.ends(forced, "Completed/Succeeded")
	m.rests(v1alpha1.PowerRunning)
}

func stopOverRunPolicy(t *testing.T) {
	m := newMachine(t, v1alpha1.PowerRunning)
	m.hold(runtime.TaskPowerOn)
	vm := m.get()
	before := client.MergeFrom(vm.DeepCopy()) // and not an update, which a status that is just being written would refuse
	vm.Spec.RunPolicy = v1alpha1.RunPolicyAlwaysOnUnlessStoppedManually
	m.Must(stack.client.Patch(t.Context(), vm, before))
	stack.vcenter.SetPower(m.path, v1alpha1.PowerStopped)
	m.until("the run policy is starting it", func() bool {
		a := m.get().Status.ActiveOperation
		return a != nil && a.Origin == v1alpha1.OriginRunPolicy && a.Type == v1alpha1.OperationStart
	})
	stop := m.ask("Stop")
	m.ends(stop, "Completed/Succeeded")
	m.rests(v1alpha1.PowerStopped)
	m.intends(v1alpha1.PowerStopped, stop.Name)
}

func operationDeleted(t *testing.T) {
	m, start := stuck(t, "Start")
	m.Must(stack.client.Delete(t.Context(), start))
	m.until("the operation is gone", func() bool { return m.state(start) == "gone" })
	m.rests(v1alpha1.PowerStopped)
	if i := m.get().Status.PowerIntent; i != nil && i.By == start.Name {
		t.Errorf("the power intent is still that of the deleted operation: %+v", i)
	}
}

// goes deletes the VirtualMachine and waits until nothing of it is left.
func (m *machine) goes() {
	m.Helper()
	m.Must(stack.client.Delete(m.Context(), m.get()))
	m.until("the VirtualMachine is gone", func() bool {
		vm := m.get()
		return vm == nil || vm.UID != m.uid
	})
	if power := m.power(); power != "" {
		m.Errorf("the machine is still marked as the VirtualMachine's, and it is %s", power)
	}
}

func machineDeleted(t *testing.T) {
	m, start := stuck(t, "Start")
	m.goes()
	m.ends(start, "Failed/VirtualMachineDeleted")
}

// unstoppable gives a machine on which a Start hangs that cannot be cancelled.
func unstoppable(t *testing.T) (m *machine, start *v1alpha1.VirtualMachineOperation, release func()) {
	t.Helper()
	m = newMachine(t, v1alpha1.PowerStopped)
	stack.vcenter.IgnoreCancels(m.path)
	release = m.hang("Start")
	start = m.ask("Start")
	m.tells(start)
	return m, start, release
}

func machineRecreated(t *testing.T) {
	m, start, release := unstoppable(t)
	stop := m.ask("Stop") // waits until the power-on has ended
	m.until("the Stop holds the machine", func() bool {
		a := m.get().Status.ActiveOperation
		return a != nil && a.ID == string(stop.UID)
	})
	before := m.uid
	m.Must(stack.client.Delete(t.Context(), m.get()))
	m.until("the deletion holds the machine", func() bool {
		a := m.get().Status.ActiveOperation
		return a != nil && a.Origin == v1alpha1.OriginDeletion
	})
	release()
	m.until("the VirtualMachine is gone", func() bool { return m.get() == nil })
	m.create()
	m.ends(start, "Failed/VirtualMachineDeleted")
	m.ends(stop, "Failed/VirtualMachineDeleted")
	m.until("the new one's machine is there", func() bool { return m.get().Status.InstanceID != "" })
	m.rests(m.power())
	if i := m.get().Status.PowerIntent; m.uid == before || i != nil && (i.By == start.Name || i.By == stop.Name) {
		t.Errorf("the new VirtualMachine has something of the old one: %+v", m.get().Status)
	}
}

func twoStarts(t *testing.T) {
	m := newMachine(t, v1alpha1.PowerStopped)
	asked := []*v1alpha1.VirtualMachineOperation{m.request("Start"), m.request("Start")}
	refused := make([]error, len(asked))
	var both sync.WaitGroup
	for i, o := range asked {
		both.Go(func() { refused[i] = m.submit(o) })
	}
	both.Wait()
	m.rests(v1alpha1.PowerRunning)
	won := 0
	for i, o := range asked {
		if refused[i] != nil {
			continue
		}
		m.until("it has ended", func() bool { m.state(o); return o.Finished() })
		switch got := m.state(o); got {
		case "Completed/Succeeded":
			won++
		case "Failed/OperationInProgress", "Failed/PhaseForbids": // both were admitted, and the second door was shut
		default:
			t.Errorf("a Start is %s: %+v", got, o.Status)
		}
	}
	if won != 1 {
		t.Errorf(depth.Effect+"%d Starts succeeded; refused: %v", won, refused)
	}
}

func backendAway(t *testing.T) {
	m := newMachine(t, v1alpha1.PowerStopped)
	reconnect := m.disconnect()
	start := m.ask("Start", func(s *v1alpha1.VirtualMachineOperationSpec) { s.ActiveDeadlineSeconds = new(int32(3)) })
	m.ends(start, "Failed/DeadlineExceeded")
	if m.get().Status.ActiveOperation != nil {
		t.Errorf("the machine is still held: %+v", m.get().Status)
	}
	reconnect()
	m.rests(v1alpha1.PowerStopped)
}

func cancelIgnored(t *testing.T) {
	m, start, release := unstoppable(t)
	stop := m.ask("Stop")
	m.until("the power-on is being undone", func() bool {
		u := m.get().Status.Undoing
		return len(u) == 1 && u[0].ID == string(start.UID) && u[0].Task != ""
	})
	release()
	m.ends(stop, "Completed/Succeeded")
	m.supersedes(stop, start)
	m.rests(v1alpha1.PowerStopped)
}

// suspended is what is asked of a machine that somebody has suspended (machine-controller#299, vagrant-vsphere#93).
func suspended(t *testing.T) {
	m := newMachine(t, v1alpha1.PowerRunning)
	incarnation := m.get().Status.Incarnation
	suspend := func() {
		stack.vcenter.SetPower(m.path, v1alpha1.PowerPaused)
		touch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata": {"labels": {"looked-at": "%d"}}}`, names.Add(1)))
		m.Must(stack.client.Patch(m.Context(), m.get(), touch)) // so that it is observed
		m.rests(v1alpha1.PowerPaused)
	}
	suspend()
	for _, deaf := range []string{"Stop", "Restart", "Migrate", "Evict"} {
		err := m.submit(m.request(deaf))
		if err == nil || !strings.Contains(err.Error(), "allowed in phase Paused: start, stop --force, restart --force") {
			t.Errorf("a %s is answered with %v", deaf, err)
		}
	}
	m.ends(m.ask("Start"), "Completed/Succeeded")
	m.rests(v1alpha1.PowerRunning)
	if got := m.get().Status.Incarnation; got != incarnation {
		t.Errorf("the machine was not resumed: it is incarnation %s, after %s", got, incarnation)
	}
	suspend()
	m.ends(m.ask("Restart force"), "Completed/Succeeded")
	m.rests(v1alpha1.PowerRunning)
	if m.get().Status.Incarnation == incarnation {
		t.Error("the machine has not been off")
	}
	suspend()
	m.ends(m.ask("Stop force"), "Completed/Succeeded")
	m.rests(v1alpha1.PowerStopped)
}
