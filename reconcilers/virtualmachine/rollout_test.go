package virtualmachine

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/double/fake"
)

// fourProcessors is a change of the spec.
func fourProcessors(spec *v1alpha1.VirtualMachineSpec) { spec.CPU = new(int32(4)) }

// restartsApproved approves restarts for changes of the spec.
func restartsApproved(vm *v1alpha1.VirtualMachine) {
	vm.Spec.RestartApprovalMode = v1alpha1.RestartAutomatic
}

// startedByHand creates a machine whose restarts are approved, and starts it by an operation.
func (f *fixture) startedByHand() types.UID {
	f.Helper()
	uid := f.machine(v1alpha1.RunPolicyManual, restartsApproved)
	f.settle()
	f.ask("start", "Start")
	f.settle()
	return uid
}

// heldByRollout fails the test unless a rollout holds the machine.
func (f *fixture) heldByRollout() {
	f.Helper()
	if held := f.vm().Status.ActiveOperation; held == nil || held.Origin != v1alpha1.OriginRollout {
		f.Fatalf("the machine is held by %+v", held)
	}
}

// restartRequired gives status and message of RestartRequired.
func (f *fixture) restartRequired() string {
	f.Helper()
	c := meta.FindStatusCondition(f.vm().Status.Conditions, "RestartRequired")
	if c == nil {
		return ""
	}
	return strings.TrimSpace(string(c.Status) + " " + c.Reason + " " + strings.ReplaceAll(c.Message, " -n "+f.vm().Namespace, " -n NAMESPACE"))
}

const required = "True SpecDiffers spec.cpu is 4, but the machine has 1: restart required (kubectl sallyport restart web-1 -n NAMESPACE)"

// A change that takes a restart is shown, and made by whoever restarts the machine, or by us if that was approved.
func TestRestartRequired(t *testing.T) {
	for name, c := range map[string]struct {
		mode  v1alpha1.RestartApprovalMode
		how   func(*fixture)
		shows string // before that
	}{
		"an operation": {v1alpha1.RestartManual, func(f *fixture) { f.ask("restart", "Restart") }, required},
		"no mode":      {"", func(f *fixture) { f.ask("restart", "Restart force") }, required},
		"by itself":    {v1alpha1.RestartAutomatic, func(*fixture) {}, "False AsWanted"},
		"approved at last": {v1alpha1.RestartManual, func(f *fixture) {
			f.change(func(s *v1alpha1.VirtualMachineSpec) { s.RestartApprovalMode = "Automatic" })
		}, required},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			uid := f.machine(v1alpha1.RunPolicyAlwaysOn, func(vm *v1alpha1.VirtualMachine) { vm.Spec.RestartApprovalMode = c.mode })
			f.settle()
			was, _ := f.world.Instance(uid)
			f.offset += time.Minute // it was not started just now
			if got := f.restartRequired(); got != "False AsWanted" {
				t.Errorf("at first it shows %q", got)
			}
			f.change(fourProcessors)
			f.settle()
			if got := f.restartRequired(); got != c.shows {
				t.Errorf("it shows %q", got)
			}
			c.how(f)
			f.settle()
			is, _ := f.world.Instance(uid)
			if got := f.restartRequired(); got != "False AsWanted" || is.CPU != 4 || is.Incarnation == was.Incarnation {
				t.Errorf("after it: %q, %+v", got, is)
			}
			f.is("Running True/AsWanted")
			if c.mode == v1alpha1.RestartAutomatic && !f.events.has("Restart for a change of the spec finished") {
				t.Errorf("nobody was told: %v", f.events.all)
			}
		})
	}
}

// A machine that was just started is not restarted at once: if that went wrong, it would be off until its next start is due.
func TestRolloutWaits(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	uid := f.machine(v1alpha1.RunPolicyAlwaysOn, restartsApproved)
	f.settle()
	was, _ := f.world.Instance(uid)
	f.change(fourProcessors)
	f.settle()
	is, _ := f.world.Instance(uid)
	was.Memory = is.Memory // which grows as long as it runs
	if !reflect.DeepEqual(is, was) {
		t.Errorf("it is %+v, and was %+v", is, was)
	}
	f.is("Running True/AsWanted")
	if got := f.restartRequired(); got != required {
		t.Errorf("it shows %q", got)
	}
	f.offset += time.Minute
	f.settle()
	if is, _ := f.world.Instance(uid); is.CPU != 4 {
		t.Errorf("it is %+v", is)
	}
}

// What can be given to a machine while it is on is given at once, without a restart.
func TestAdjusted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	uid := f.machine(v1alpha1.RunPolicyAlwaysOn, restartsApproved)
	f.settle()
	was, _ := f.world.Instance(uid)
	f.world.SetHotAdd(uid)
	f.change(fourProcessors)
	f.settle()
	is, _ := f.world.Instance(uid)
	if is.CPU != 4 || is.Incarnation != was.Incarnation || f.restartRequired() != "False AsWanted" {
		t.Errorf("it is %+v, and shows %q", is, f.restartRequired())
	}
}

// A machine that is off, or to be off, is not powered on for a change; it gets that with its next start.
func TestChangedWhileOff(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	uid := f.machine(v1alpha1.RunPolicyAlwaysOnUnlessStoppedManually, restartsApproved)
	f.settle()
	f.ask("stop", "Stop")
	f.settle()
	f.change(fourProcessors)
	f.settle()
	f.is("Stopped True/AsWanted")
	f.ask("start", "Start")
	f.settle()
	if is, _ := f.world.Instance(uid); is.CPU != 4 || is.Power != v1alpha1.PowerRunning {
		t.Errorf("it is %+v", is)
	}
}

// A stronger wish than a change of the spec takes the machine from it, and the change is made in the end.
func TestRolloutYields(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	uid := f.startedByHand()
	f.offset += time.Minute
	release := f.world.Hold(uid, "PowerOff")
	f.world.SetGuest(uid, fake.Guest{NoTools: true})
	f.change(fourProcessors)
	f.settle()
	f.heldByRollout()
	f.ask("stop", "Stop force")
	f.settle()
	release()
	f.settle()
	f.is("Stopped True/AsWanted")
	if got := f.state("stop"); got != "Completed/Succeeded" {
		t.Errorf("the Stop is %s", got)
	}
}
