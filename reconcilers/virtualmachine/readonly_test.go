package virtualmachine

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// sendsNothing checks that no call was made that could change something.
func (f *fixture) sendsNothing() {
	f.Helper()
	for _, c := range f.world.Calls() {
		if c.Verb != runtime.VerbObserve && c.Verb != runtime.VerbObserveDisk {
			f.Errorf("a read-only process sent %s", c.Verb)
		}
	}
}

// shows checks the condition by which a machine says that nothing is sent.
func (f *fixture) shows(readOnly bool) {
	f.Helper()
	c := v1alpha1.ConditionReadOnly.In(f.vm().Status.Conditions)
	if (c != nil) != readOnly || readOnly && (c.Status != "True" || c.Reason != "ReadOnly") {
		f.Errorf("the condition ReadOnly is %+v", c)
	}
}

// Whatever is asked of a machine, a read-only process sends nothing, and the next one that is not carries it out.
func TestReadOnlyOperations(t *testing.T) {
	for what, power := range map[string]v1alpha1.PowerState{
		"Start": "Stopped", "Stop": "Running", "Stop force": "Running", "Restart": "Running", "Restart force": "Running", "Migrate": "Running", "Evict": "Running",
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.readOnly = true
			f.restart()
			f.machine(v1alpha1.RunPolicyManual, f.adopted(power))
			f.settle()
			if f.vm().Status.InstanceID != "" {
				t.Error("the machine was adopted, which marks it")
			}
			f.readOnly = false
			f.restart()
			f.settle()
			f.shows(false)
			uid := f.vm().UID
			before := len(f.world.Calls())

			f.readOnly = true
			f.restart()
			f.ask("op", what)
			f.settle()
			f.settle()
			for _, c := range f.world.Calls()[before:] {
				if c.Verb != runtime.VerbObserve && c.Verb != runtime.VerbObserveDisk {
					t.Errorf("%s was sent", c.Verb)
				}
			}
			if got := f.state("op"); got != "Pending/ReadOnly" {
				t.Errorf("the operation is %s", got)
			}
			if vm := f.vm(); vm.Busy() {
				t.Errorf("the machine is claimed: %+v", vm.Status)
			}
			f.shows(true)

			f.readOnly = false
			f.restart()
			for range 10 {
				f.settle()
				f.world.Advance(uid)
			}
			if got := f.state("op"); got != "Completed/Succeeded" {
				t.Errorf("after read-only, the operation is %s: %s", got, f.completed("op"))
			}
			f.shows(false)
		})
	}
}

// What the spec wants is not sent either: a machine is not created, powered, or removed. It says how it differs.
func TestReadOnlyMachines(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.readOnly = true
	f.restart()
	f.machine(v1alpha1.RunPolicyAlwaysOn)
	f.settle()
	f.is("Pending False/ReadOnly")
	f.sendsNothing()

	f.readOnly = false
	f.restart()
	f.settle()
	f.is("Running True/AsWanted")
	f.readOnly = true
	f.restart()
	f.settle()
	f.is("Running True/AsWanted")
	f.shows(true)
	calls := len(f.world.Calls())
	f.change(func(s *v1alpha1.VirtualMachineSpec) { s.RunPolicy = v1alpha1.RunPolicyAlwaysOff })
	f.settle()
	f.is("Running False/PowerStateDiffers")
	if !strings.Contains(f.message(), "Sallyport is read-only") {
		t.Errorf("it says %q", f.message())
	}
	f.Must(f.api.Delete(t.Context(), f.vm()))
	f.settle()
	for _, c := range f.world.Calls()[calls:] {
		if c.Verb != runtime.VerbObserve && c.Verb != runtime.VerbObserveDisk {
			t.Errorf("%s was sent", c.Verb)
		}
	}
	if f.lookup() == nil || len(f.world.Instances()) != 1 {
		t.Error("the machine or its VirtualMachine is gone")
	}
	f.readOnly = false
	f.restart()
	f.settle()
	f.settle()
	if f.lookup() != nil || len(f.world.Instances()) != 0 {
		t.Errorf("after read-only, the machine is not removed: %+v", f.world.Instances())
	}
}

// An operation that a process has begun before waits in a read-only one. After its deadline it has failed, and nothing is sent for it.
func TestReadOnlyDeadline(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.machine(v1alpha1.RunPolicyManual, f.adopted("Running"))
	f.settle()
	f.readOnly = true
	f.restart()
	f.ask("op", "Stop force")
	f.settle()
	f.offset = time.Hour
	calls := len(f.world.Calls())
	f.settle()
	if got := f.state("op"); got != "Failed/DeadlineExceeded" {
		t.Errorf("the operation is %s", got)
	}
	f.readOnly = false
	f.restart()
	f.settle()
	for _, c := range f.world.Calls()[calls:] {
		if c.Verb == runtime.VerbPowerOff {
			t.Error("the machine was powered off for an operation that is over")
		}
	}
	if meta.IsStatusConditionTrue(f.vm().Status.Conditions, string(v1alpha1.ConditionReadOnly)) {
		t.Error("it still says that it is read-only")
	}
}
