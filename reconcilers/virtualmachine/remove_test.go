package virtualmachine

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/double/fake"
)

func reconcileRequest(f *fixture) ctrl.Request { return ctrl.Request{NamespacedName: f.key()} }

// delete deletes the VirtualMachine, and checks that nothing is left of it once all has come to rest.
func (f *fixture) delete() {
	f.Helper()
	f.Must(f.api.Delete(f.Context(), f.vm()))
}

func (f *fixture) isGone(uid types.UID) {
	f.Helper()
	if vm := f.lookup(); vm != nil {
		f.Errorf("the VirtualMachine stays: %+v", vm.Status)
	}
	if in, is := f.world.Instance(uid); is {
		f.Errorf("the instance stays: %+v", in)
	}
}

func TestDeletion(t *testing.T) {
	for name, tc := range map[string]struct {
		policy v1alpha1.RunPolicy
		change func(f *fixture) func(*v1alpha1.VirtualMachine)
		guest  fake.Guest
		want   string
	}{
		"one that is off": {v1alpha1.RunPolicyManual, nil, fake.Guest{Steps: 1}, "Created Deleted"},
		"one that is on":  {v1alpha1.RunPolicyAlwaysOn, nil, fake.Guest{Steps: 1}, "Created PoweredOn ShutdownAsked PoweredOff Deleted"},
		"one without tools": {v1alpha1.RunPolicyAlwaysOn, nil, fake.Guest{NoTools: true},
			"Created PoweredOn PoweredOff Deleted"},
		"one without grace": {v1alpha1.RunPolicyAlwaysOn, func(*fixture) func(*v1alpha1.VirtualMachine) { return grace(0) },
			fake.Guest{Ignores: true}, "Created PoweredOn PoweredOff Deleted"},
		"an adopted one is released as it is": {v1alpha1.RunPolicyManual, func(f *fixture) func(*v1alpha1.VirtualMachine) {
			return f.adopted(v1alpha1.PowerRunning)
		}, fake.Guest{}, "Adopted Released"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			change := func(*v1alpha1.VirtualMachine) {}
			if tc.change != nil {
				change = tc.change(f)
			}
			uid := f.machine(tc.policy, change)
			f.world.SetGuest(uid, tc.guest)
			f.settle()
			f.delete()
			f.settle()
			f.isGone(uid)
			if got := f.effects(); got != tc.want {
				t.Errorf("what happened: %s", got)
			}
		})
	}
}

// The guest has its time, is asked once, and then the power is taken away.
func TestDeletionGivesTheGuestItsTime(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	uid := f.machine(v1alpha1.RunPolicyAlwaysOn, grace(90))
	f.world.SetGuest(uid, fake.Guest{Ignores: true})
	f.settle()
	f.delete()
	f.settle()
	f.offset += time.Minute
	f.settle()
	f.is("Terminating False/Terminating")
	if m := f.message(); !strings.Contains(m, "waiting for the guest to shut down (until ") {
		t.Errorf("people read: %s", m)
	}
	f.offset += time.Minute
	f.settle()
	f.isGone(uid)
	if got := f.effects(); got != "Created PoweredOn ShutdownAsked PoweredOff Deleted" {
		t.Errorf("what happened: %s", got)
	}
}

// A VirtualMachine that is deleted while an operation holds it: what is in flight is undone, the operation and those that wait
// fail with the reason, and nothing is left.
func TestDeletionTakesTheMachineFromAnOperation(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	uid := f.machine(v1alpha1.RunPolicyManual)
	f.settle()
	f.world.Hold(uid, runtime.TaskPowerOn)
	f.ask("start", "Start")
	f.settle()
	f.ask("more", "Start")
	f.delete()
	f.settle()
	f.isGone(uid)
	if got, more := f.state("start"), f.state("more"); got != "Failed/VirtualMachineDeleted" || more != got {
		t.Errorf("the Start is %s, the one that waits %s", got, more)
	}
	if got := f.effects(); got != "Created TaskCancelled Deleted" {
		t.Errorf("what happened: %s", got)
	}
}

// While a power-on cannot be withdrawn, nothing is deleted.
func TestDeletionWaitsForWhatCannotBeCancelled(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	uid := f.machine(v1alpha1.RunPolicyAlwaysOn)
	f.world.SetCancels(uid, fake.Cancels{Ignored: true})
	release := f.world.Hold(uid, runtime.TaskPowerOn)
	f.settle()
	f.delete()
	f.settle()
	f.is("Terminating False/Terminating")
	if m := f.message(); !strings.Contains(m, "waiting for Start by RunPolicy to be undone") {
		t.Errorf("people read: %s", m)
	}
	release()
	f.settle()
	f.isGone(uid)
}

// The object stays as long as nobody knows what is on its runtime, and says so; whoever knows better may give it up.
func TestDeletionWhileTheRuntimeIsAway(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	uid := f.machine(v1alpha1.RunPolicyManual)
	f.settle()
	f.world.Script(fake.At{}, fake.Fail(runtime.NewUnavailable(nil, "vc-1 does not answer")).Always())
	f.delete()
	f.settle()
	f.is("Terminating Unknown/RuntimeUnavailable")
	vm := f.vm()
	vm.Annotations = map[string]string{v1alpha1.AnnotationAbandonInstance: "another UID"}
	f.Must(f.api.Update(t.Context(), vm))
	f.settle()
	vm = f.vm()
	vm.Annotations[v1alpha1.AnnotationAbandonInstance] = string(uid)
	f.Must(f.api.Update(t.Context(), vm))
	f.settle()
	if f.lookup() != nil || !f.events.has("Abandoned") {
		t.Errorf("it stays, or people were not told: %v", f.events.all)
	}
}

// A machine whose runtime is disabled waits for it: without Sallyport's VirtualMachine, nobody would know of it.
func TestDeletionWhileTheRuntimeIsDisabled(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	uid := f.machine(v1alpha1.RunPolicyManual)
	f.settle()
	f.world.Script(fake.At{}, fake.Fail(runtime.NewNotSupported(nil, "machines of kind vsphere are disabled")).Always())
	f.delete()
	f.settle()
	f.is("Terminating False/RuntimeNotSupported")
	f.world.ClearScripts()
	f.settle()
	f.isGone(uid)
}

// What may have been made on a runtime that is disabled by now is waited for: the process died before it could record the instance.
func TestDeletionOfWhatMayHaveBeenMade(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	uid := f.machine(v1alpha1.RunPolicyManual)
	f.world.Script(fake.At{Verb: runtime.VerbEnsure}, fake.LoseReply())
	f.world.Hold(uid, runtime.TaskCreate)
	_ = f.pass()
	if s := f.vm().Status; s.InstanceID != "" || s.ProvisioningSince == nil {
		t.Fatalf("while it is being made: %+v", s)
	}
	f.world.Script(fake.At{}, fake.Fail(runtime.NewNotSupported(nil, "machines of kind vsphere are disabled")).Always())
	f.delete()
	f.settle()
	f.is("Terminating False/RuntimeNotSupported")
	f.world.ClearScripts()
	f.settle()
	f.is("Terminating False/Terminating")
}

// The status says that something may exist before the runtime is asked to make it, and until it has the instance.
func TestProvisioningIsRecordedFirst(t *testing.T) {
	for name, change := range map[string]func(f *fixture) func(*v1alpha1.VirtualMachine){
		"created": func(*fixture) func(*v1alpha1.VirtualMachine) { return func(*v1alpha1.VirtualMachine) {} },
		"adopted": func(f *fixture) func(*v1alpha1.VirtualMachine) { return f.adopted(v1alpha1.PowerStopped) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			var asked []bool
			f.world.SetTag(func(_ context.Context, verb runtime.Verb, _ runtime.Machine) string {
				if verb == runtime.VerbEnsure {
					asked = append(asked, f.vm().Status.ProvisioningSince != nil)
				}
				return ""
			})
			f.machine(v1alpha1.RunPolicyManual, change(f))
			f.settle()
			f.is("Stopped True/AsWanted")
			if len(asked) == 0 || slices.Contains(asked, false) {
				t.Errorf("recorded when the runtime was asked: %v", asked)
			}
			if s := f.vm().Status; s.ProvisioningSince != nil || s.InstanceID == "" {
				t.Errorf("afterwards: %+v", s)
			}
		})
	}
}

// A start by others that no node takes keeps no machine from being deleted or released.
func TestDeletionDuringAStartByOthers(t *testing.T) {
	for name, change := range map[string]func(f *fixture) func(*v1alpha1.VirtualMachine){
		"Deleted":  func(*fixture) func(*v1alpha1.VirtualMachine) { return func(*v1alpha1.VirtualMachine) {} },
		"Released": func(f *fixture) func(*v1alpha1.VirtualMachine) { return f.adopted(v1alpha1.PowerStopped) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			uid := f.machine(v1alpha1.RunPolicyManual, change(f))
			f.settle()
			f.world.Hold(uid, runtime.TaskPowerOn) // for good
			f.world.BeginYielding(uid, runtime.TaskPowerOn, "virtctl")
			f.delete()
			f.settle()
			f.isGone(uid)
			if got := f.effects(); !strings.HasSuffix(got, name) || strings.Contains(got, "PoweredOn") {
				t.Errorf("what happened: %s", got)
			}
		})
	}
}

// A foreign machine in the place of ours, no runtime of that kind, or a name that it cannot have: there is nothing to undo.
func TestDeletionWithNothingOfOurs(t *testing.T) {
	for name, err := range map[string]error{
		"another owner": runtime.NewOwnedByAnother(nil, "belongs to another"),
		"not supported": runtime.NewNotSupported(nil, "no kubevirt"),
		"invalid spec":  runtime.NewInvalidSpec(nil, "metadata.name is too long"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.world.Script(fake.At{}, fake.Fail(err).Always())
			f.machine(v1alpha1.RunPolicyAlwaysOn)
			f.settle()
			f.delete()
			f.settle()
			if vm := f.lookup(); vm != nil {
				t.Errorf("it stays: %+v", vm.Status)
			}
		})
	}
}
