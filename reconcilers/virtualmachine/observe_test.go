package virtualmachine

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/double/fake"
)

func (f *fixture) runPolicy(p v1alpha1.RunPolicy) {
	f.Helper()
	f.change(func(s *v1alpha1.VirtualMachineSpec) { s.RunPolicy = p })
	f.settle()
}

// A machine of run policy Observe is shown and left alone, another one adopts it, and Observe gives it back.
func TestObserve(t *testing.T) {
	for _, power := range []v1alpha1.PowerState{v1alpha1.PowerRunning, v1alpha1.PowerStopped} {
		t.Run(string(power), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			uid := f.machine(v1alpha1.RunPolicyObserve, f.adopted(power))
			f.settle()
			f.is(string(power) + " True/Observed")
			f.sendsNothing()
			if s := f.vm().Status; s.InstanceID != "" || s.PowerIntent != nil {
				t.Errorf("a machine that is only observed is recorded as adopted: %+v", s)
			}
			f.ask("stop", "Stop")
			f.settle()
			if got := f.state("stop"); got != "Failed/MachineObserved" {
				t.Errorf("the operation is %s", got)
			}
			f.runPolicy(v1alpha1.RunPolicyManual)
			f.is(string(power) + " True/AsWanted")
			f.runPolicy(v1alpha1.RunPolicyObserve)
			f.is(string(power) + " True/Observed")
			if s := f.vm().Status; s.InstanceID != "" || s.PowerIntent != nil || s.Adopted != nil {
				t.Errorf("after its release: %+v", s)
			}
			if !f.events.has("Released: instance") {
				t.Errorf("no event tells of the release: %q", f.events.all)
			}
			f.delete()
			f.settle()
			f.isGone(uid)
			if got := f.effects(); got != "Adopted Released" {
				t.Errorf("what happened: %s", got)
			}
		})
	}
}

func TestObserveNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.machine(v1alpha1.RunPolicyObserve, f.adopted(v1alpha1.PowerRunning), func(vm *v1alpha1.VirtualMachine) {
		vm.Spec.Runtime.VSphere.InventoryPath = "/dc/vm/nobody"
	})
	f.settle()
	f.is("Pending False/InstanceNotFound")
}

// What is in progress when the run policy becomes Observe ends first.
func TestObserveAfterAnOperation(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	uid := f.machine(v1alpha1.RunPolicyManual, f.adopted(v1alpha1.PowerRunning))
	f.world.SetGuest(uid, fake.Guest{Ignores: true})
	f.settle()
	f.ask("stop", "Stop")
	f.settle()
	f.runPolicy(v1alpha1.RunPolicyObserve)
	if got := f.effects(); got != "Adopted ShutdownAsked" {
		t.Errorf("while the operation is in progress: %s", got)
	}
	f.Must(f.api.Delete(t.Context(), &v1alpha1.VirtualMachineOperation{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "stop"}}))
	f.settle()
	f.is("Running True/Observed")
	if got := f.effects(); got != "Adopted ShutdownAsked Released" {
		t.Errorf("after it: %s", got)
	}
}

// A machine that is about to be adopted is not off because it is not adopted yet.
func TestStopBeforeAdoption(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.machine(v1alpha1.RunPolicyManual, f.adopted(v1alpha1.PowerRunning))
	f.ask("stop", "Stop force")
	f.settle()
	if got := f.effects(); got != "Adopted PoweredOff" {
		t.Errorf("what happened: %s", got)
	}
}

// Without a run policy, as in a request that policy `defaults` did not see, the default holds: an adopted machine stays off, a created one
// is started.
func TestWithoutARunPolicy(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.machine("", f.adopted(v1alpha1.PowerStopped))
	f.settle()
	f.is("Stopped True/AsWanted")
	created := newFixture(t)
	created.machine("")
	created.settle()
	created.is("Running True/AsWanted")
}
