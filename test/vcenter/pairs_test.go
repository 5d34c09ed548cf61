//go:build !race

package vcenter

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere"
	"sallyport.dev/sallyport/test/depth"
	"sallyport.dev/sallyport/test/step"
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
	s := newSite(t).ready()
	var all sync.WaitGroup
	slots := make(chan struct{}, 16)
	for _, running := range operations {
		for _, asked := range operations {
			all.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				t.Run(running+" then "+asked, func(t *testing.T) { s.pair(t, running, asked) })
			})
		}
	}
	all.Wait()
}

func (s *site) pair(t *testing.T, running, asked string) {
	m := s.running(t, strings.ReplaceAll(strings.ToLower(running+"-then-"+asked), " ", "-"))
	if running == "Start" {
		m.ends(m.ask("Stop force"), "Completed/Succeeded")
	}
	release := m.hang(running)
	node, incarnation := m.node(), m.get().Status.Incarnation
	first := m.ask(running)
	m.until(first.Name+" was sent", func() string {
		m.state(first)
		return fmt.Sprint(meta.IsStatusConditionTrue(first.Status.Conditions, string(v1alpha1.ConditionSignalSent)))
	}, "true")
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
		return m.vcenter.Hold(m.path, runtime.TaskPowerOn)
	case kind == "Migrate", kind == "Evict":
		return m.vcenter.Hold(m.path, runtime.TaskRelocate)
	case forced:
		return m.vcenter.Hold(m.path, runtime.TaskPowerOff)
	}
	m.vcenter.IgnoreShutdown(m.path)
	return func() { m.vcenter.HeedShutdown(m.path) }
}

// machine is a VirtualMachine with run policy Manual, and the machine in vCenter that it adopts.
type machine struct {
	*site
	name, path string
	uid        types.UID
}

// running creates both, and starts the machine. The VirtualMachine is deleted at the end of the test.
func (s *site) running(t *testing.T, name string) *machine {
	t.Helper()
	inner := *s
	inner.T = step.T{T: t}
	m := &machine{site: &inner, name: name, path: inner.machine(name)}
	m.uid = m.adopt(m.vm(name)).UID
	t.Cleanup(func() { s.remove(s.vm(name)) })
	m.rests(v1alpha1.PowerStopped)
	m.ends(m.ask("Start"), "Completed/Succeeded")
	m.rests(v1alpha1.PowerRunning)
	return m
}

// node returns the host on which the machine is.
func (m *machine) node() string { return m.vcenter.State(m.path).Host }

func (m *machine) get() *v1alpha1.VirtualMachine {
	m.Helper()
	vm := m.vm(m.name)
	m.Must(stack.Client.Get(m.Context(), client.ObjectKeyFromObject(vm), vm))
	return vm
}

// rests waits until the VirtualMachine is unclaimed and shows that power state, and compares it with vCenter.
func (m *machine) rests(power v1alpha1.PowerState) {
	m.Helper()
	phase := map[v1alpha1.PowerState]v1alpha1.VirtualMachinePhase{
		v1alpha1.PowerRunning: v1alpha1.VirtualMachineRunning, v1alpha1.PowerStopped: v1alpha1.VirtualMachineStopped,
	}[power]
	m.Until(fmt.Sprintf("the VirtualMachine is %s and free", phase), func() (string, bool) {
		vm := m.get()
		return fmt.Sprintf("%+v", vm.Status), vm.Status.Phase == phase && !vm.Busy()
	})
	if state := m.vcenter.State(m.path); state.Power != power || state.ExtraConfig[vsphere.OwnerKey] != string(m.uid) {
		m.Errorf("the machine is %+v in vCenter, and %s in the VirtualMachine", state, power)
	}
}

// intends checks the power intent, and who has set it.
func (m *machine) intends(state v1alpha1.PowerState, by string) {
	m.Helper()
	if i := m.get().Status.PowerIntent; i == nil || i.State != state || i.By != by {
		m.Errorf("the power intent is %+v and not %s by %s", i, state, by)
	}
}

// request returns an operation, such as "Stop force", without creating it.
func (m *machine) request(what string) *v1alpha1.VirtualMachineOperation {
	kind, force := strings.CutSuffix(what, " force")
	return &v1alpha1.VirtualMachineOperation{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.site.name, GenerateName: m.name + "-"},
		Spec:       v1alpha1.VirtualMachineOperationSpec{Type: v1alpha1.OperationType(kind), Force: force, VirtualMachineName: m.name},
	}
}

// ask creates an operation, which must be admitted.
func (m *machine) ask(what string) *v1alpha1.VirtualMachineOperation {
	m.Helper()
	o := m.request(what)
	m.Must(m.submit(o))
	return o
}

// submit creates an operation and returns the denial. It tries again after a timeout of a policy or of a webhook.
func (m *machine) submit(o *v1alpha1.VirtualMachineOperation) (verdict error) {
	_ = step.Await(m.Context(), func(context.Context) (bool, error) {
		verdict = stack.Client.Create(m.Context(), o)
		return verdict == nil || !apierrors.IsInternalError(verdict) && !strings.Contains(verdict.Error(), "policy evaluation failed"), nil
	})
	return verdict
}

// state returns an operation's phase and the reason of its condition Completed, such as Completed/Superseded.
func (m *machine) state(o *v1alpha1.VirtualMachineOperation) string {
	m.Helper()
	m.Must(stack.Client.Get(m.Context(), client.ObjectKeyFromObject(o), o))
	if c := meta.FindStatusCondition(o.Status.Conditions, string(v1alpha1.ConditionCompleted)); c != nil {
		return fmt.Sprintf("%s/%s", o.Status.Phase, c.Reason)
	}
	return string(o.Status.Phase)
}

// ends waits until an operation has ended, and checks how.
func (m *machine) ends(o *v1alpha1.VirtualMachineOperation, want string) {
	m.Helper()
	m.Until(o.Name+" has ended", func() (string, bool) { return m.state(o), o.Finished() && len(o.Finalizers) == 0 })
	if got := m.state(o); got != want {
		m.Errorf("%s %s is %s and not %s: %+v", o.Spec.Type, o.Name, got, want, o.Status)
	}
}

// supersedes waits until the loser has ended, and checks that it names the winner.
func (m *machine) supersedes(winner, loser *v1alpha1.VirtualMachineOperation) {
	m.Helper()
	m.ends(loser, "Completed/Superseded")
	if by := loser.Status.SupersededBy; by == nil || by.Name != winner.Name || by.UID != winner.UID {
		m.Errorf("%s was superseded by %+v and not by %s", loser.Name, by, winner.Name)
	}
	if !meta.IsStatusConditionTrue(loser.Status.Conditions, string(v1alpha1.ConditionSuperseded)) {
		m.Errorf("the condition Superseded of %s is not true: %+v", loser.Name, loser.Status.Conditions)
	}
}
