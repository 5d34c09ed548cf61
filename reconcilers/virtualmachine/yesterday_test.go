package virtualmachine

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/double/fake"
)

// restored puts the status of the VirtualMachine and of an operation back to what they were, as a restore of etcd does, and starts a new
// process a day later.
func (f *fixture) restored(vm *v1alpha1.VirtualMachine, o *v1alpha1.VirtualMachineOperation) {
	f.Helper()
	now := f.vm()
	now.Status = vm.Status
	f.Must(f.api.Status().Update(f.Context(), now))
	if o != nil {
		is := &v1alpha1.VirtualMachineOperation{}
		f.Must(f.api.Get(f.Context(), client.ObjectKeyFromObject(o), is))
		is.Status = o.Status
		f.Must(f.api.Status().Update(f.Context(), is))
	}
	f.offset += 24 * time.Hour
	f.restart()
}

func (f *fixture) operationNamed(name string) *v1alpha1.VirtualMachineOperation {
	f.Helper()
	o := &v1alpha1.VirtualMachineOperation{}
	f.Must(f.api.Get(f.Context(), types.NamespacedName{Namespace: f.namespace, Name: name}, o))
	return o
}

// sent are the verbs that a process has sent since a number of calls.
func (f *fixture) sent(since int) (verbs string) {
	for _, c := range f.world.Calls()[since:] {
		if c.Verb != runtime.VerbObserve && c.Verb != runtime.VerbObserveDisk {
			verbs += string(c.Verb) + " "
		}
	}
	return verbs
}

// An operation that was in progress when the backup was made has ended since, and is not carried out again.
func TestOperationsOfYesterday(t *testing.T) {
	for what, power := range map[string]v1alpha1.PowerState{"Start": "Stopped", "Stop force": "Running", "Restart force": "Running", "Migrate": "Running"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.machine(v1alpha1.RunPolicyManual, f.adopted(power))
			f.settle()
			f.ask("op", what)
			for range 20 { // until the operation is in progress, and what it sent is in flight
				f.Must(f.pass())
				if f.operationNamed("op").Status.Phase == v1alpha1.OperationInProgress && f.vm().Status.ActiveOperation != nil {
					break
				}
			}
			vm, o := f.vm(), f.operationNamed("op")
			if o.Status.Phase != v1alpha1.OperationInProgress {
				t.Fatalf("the operation is %s", f.state("op"))
			}
			f.settle() // the operation ends; the runtime is as of today
			before, calls := f.world.Instances()[0], len(f.world.Calls())
			f.restored(vm, o)
			f.settle()
			if got := f.sent(calls); got != "" {
				t.Errorf("sent again: %s", got)
			}
			if now := f.world.Instances()[0]; now.Power != before.Power || now.Incarnation != before.Incarnation || now.NodeName != before.NodeName {
				t.Errorf("the machine was %+v and is %+v", before, now)
			}
			if vm := f.vm(); vm.Busy() {
				t.Errorf("the machine is still claimed: %+v", vm.Status)
			}
		})
	}
}

// A machine that was deleted since the backup is not created again, and one that was replaced under its name is left alone.
func TestMachinesOfYesterday(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	uid := f.machine(v1alpha1.RunPolicyAlwaysOn)
	f.settle()
	vm := f.vm()
	f.world.Lose(uid)
	calls := len(f.world.Calls())
	f.restored(vm, nil)
	f.settle()
	f.is("Failed False/InstanceLost")
	f.world.AddInstance(fake.Instance{Owner: "of-today", Power: "Running", Incarnation: "x"})
	f.settle()
	f.Must(f.api.Delete(t.Context(), f.vm()))
	f.settle()
	if got := f.sent(calls); strings.Contains(got, "PowerO") || strings.Contains(got, "Ensure") {
		t.Errorf("sent: %s", got)
	}
	if f.lookup() != nil || len(f.world.Instances()) != 1 {
		t.Errorf("the VirtualMachine is %v, the machines are %+v", f.lookup(), f.world.Instances())
	}
}

// The power intent of yesterday starts a machine that was stopped since, because its run policy says so. A read-only process does not, and
// shows the machine; with run policy Manual it stays off.
func TestPowerIntentOfYesterday(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.machine(v1alpha1.RunPolicyAlwaysOnUnlessStoppedManually, f.adopted("Stopped"))
	f.settle()
	f.ask("start", "Start")
	f.settle()
	vm := f.vm()
	f.ask("stop", "Stop force")
	f.settle()
	f.is("Stopped True/AsWanted")
	f.Must(f.api.Delete(t.Context(), f.operationNamed("stop")))
	calls := len(f.world.Calls())

	f.readOnly = true
	f.restored(vm, nil)
	f.settle()
	f.is("Stopped False/PowerStateDiffers")
	f.change(func(s *v1alpha1.VirtualMachineSpec) { s.RunPolicy = v1alpha1.RunPolicyManual })
	f.readOnly = false
	f.restart()
	f.settle()
	if got := f.sent(calls); got != "" || f.world.Instances()[0].Power != v1alpha1.PowerStopped {
		t.Errorf("sent: %s, the machine is %+v", got, f.world.Instances())
	}
}

// A stop of yesterday does not stop a machine that was started since.
func TestStopOfYesterday(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.machine(v1alpha1.RunPolicyAlwaysOnUnlessStoppedManually, f.adopted("Running"))
	f.settle()
	f.ask("stop", "Stop force")
	f.settle()
	vm := f.vm()
	f.ask("start", "Start")
	f.settle()
	f.Must(f.api.Delete(t.Context(), f.operationNamed("start")))
	calls := len(f.world.Calls())
	f.restored(vm, nil)
	f.settle()
	f.is("Running False/PowerStateDiffers")
	if got := f.sent(calls); got != "" {
		t.Errorf("sent: %s", got)
	}
}
