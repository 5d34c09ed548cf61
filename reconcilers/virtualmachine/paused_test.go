package virtualmachine

import (
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/double/fake"
)

// A machine that somebody has suspended is resumed by AlwaysOn, powered off by AlwaysOff, and otherwise reported (machine-controller#299,
// vagrant-vsphere#93). A Start resumes it; what its guest would have to hear fails.
func TestPaused(t *testing.T) {
	const reported = "Paused False/PowerStateDiffers"
	for name, tc := range map[string]struct {
		policy   v1alpha1.RunPolicy
		ask      string
		want     string
		operated string
	}{
		"AlwaysOn":                           {policy: v1alpha1.RunPolicyAlwaysOn, want: "Running True/AsWanted"},
		"AlwaysOnUnlessStoppedManually":      {policy: v1alpha1.RunPolicyAlwaysOnUnlessStoppedManually, want: reported},
		"Manual":                             {policy: v1alpha1.RunPolicyManual, want: reported},
		"AlwaysOff":                          {policy: v1alpha1.RunPolicyAlwaysOff, want: "Stopped True/AsWanted"},
		"a Start":                            {v1alpha1.RunPolicyManual, "Start", "Running True/AsWanted", "Completed/Succeeded"},
		"a Stop":                             {v1alpha1.RunPolicyManual, "Stop", reported, "Failed/PhaseForbids"},
		"a Restart":                          {v1alpha1.RunPolicyManual, "Restart", reported, "Failed/PhaseForbids"},
		"a forced Stop":                      {v1alpha1.RunPolicyManual, "Stop force", "Stopped True/AsWanted", "Completed/Succeeded"},
		"a forced Restart":                   {v1alpha1.RunPolicyManual, "Restart force", "Running True/AsWanted", "Completed/Succeeded"},
		"a Start that the run policy awaits": {v1alpha1.RunPolicyAlwaysOnUnlessStoppedManually, "Start", "Running True/AsWanted", "Completed/Succeeded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			uid := f.machine(v1alpha1.RunPolicyAlwaysOn)
			f.settle()
			was := f.vm().Status.Incarnation
			f.change(func(s *v1alpha1.VirtualMachineSpec) { s.RunPolicy = v1alpha1.RunPolicyManual })
			f.settle()
			f.world.Pause(uid)
			f.settle()
			f.is(reported)
			if got := f.message(); !strings.Contains(got, "(kubectl sallyport start ") || !strings.Contains(got, " --force)") || !f.events.has(got) {
				t.Errorf("people read %q, and were told %v", got, f.events.all)
			}
			f.offset += longestPause
			f.change(func(s *v1alpha1.VirtualMachineSpec) { s.RunPolicy = tc.policy })
			if tc.ask != "" {
				f.ask("op", tc.ask)
			}
			f.settle()
			f.is(tc.want)
			if tc.ask != "" && f.state("op") != tc.operated {
				t.Errorf("the operation is %s", f.state("op"))
			}
			resumed := tc.ask == "Start" || tc.policy == v1alpha1.RunPolicyAlwaysOn
			if got := f.vm().Status.Incarnation; resumed && got != was {
				t.Errorf("the machine was not resumed: it is incarnation %s, after %s", got, was)
			}
		})
	}
}

// A guest that hears nothing by the time that a Stop has the machine is not waited for: meanwhile nobody could start the machine.
func TestPausedBeforeTheGuestIsAsked(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	uid := f.machine(v1alpha1.RunPolicyManual)
	f.settle()
	f.ask("start", "Start")
	f.settle()
	f.ask("stop", "Stop")
	f.onStatus = func(o client.Object) { // the Stop is admitted again, and about to take the machine
		if vm, is := o.(*v1alpha1.VirtualMachine); is && vm.Status.ActiveOperation != nil {
			f.world.Pause(uid)
		}
	}
	f.settle()
	f.is("Paused False/PowerStateDiffers")
	if got := f.state("stop") + ": " + f.completed("stop"); !strings.HasPrefix(got, "Failed/RuntimeFailed: ") || !strings.Contains(got, "use --force") {
		t.Errorf("the Stop is %s", got)
	}
	f.onStatus = nil
	f.ask("resume", "Start")
	f.settle()
	f.is("Running True/AsWanted")
}

// A machine that is paused while a rollout waits for its guest does not lose its memory to the rollout.
func TestPausedInARollout(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	uid := f.startedByHand()
	f.world.SetGuest(uid, fake.Guest{Ignores: true})
	f.change(func(s *v1alpha1.VirtualMachineSpec) { s.CPU = new(int32(7)) })
	f.settle()
	f.heldByRollout()
	f.world.Pause(uid)
	f.settle()
	f.is("Paused False/PowerStateDiffers")
}

// A machine of which somebody has made something else says how to undo that, whatever is wanted of it, and goes on afterwards.
func TestUnusable(t *testing.T) {
	const convert = "the machine is a template: convert it"
	for name, tc := range map[string]struct {
		wants    func(f *fixture)
		is, then string
	}{
		"nothing is wanted": {func(*fixture) {}, "Stopped False/InstanceUnusable", "Stopped True/AsWanted"},
		"the run policy starts it": {func(f *fixture) {
			f.change(func(s *v1alpha1.VirtualMachineSpec) { s.RunPolicy = v1alpha1.RunPolicyAlwaysOn })
		}, "Starting False/InstanceUnusable", "Running True/AsWanted"},
		"it is deleted": {func(f *fixture) { f.Must(f.api.Delete(f.Context(), f.vm())) }, "Terminating False/InstanceUnusable", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			uid := f.machine(v1alpha1.RunPolicyManual)
			f.settle()
			repair := f.world.Spoil(uid, convert)
			tc.wants(f)
			f.settle()
			f.is(tc.is)
			if f.message() != convert || !f.events.has(convert) {
				t.Errorf("people read %q, and were told %v", f.message(), f.events.all)
			}
			repair()
			f.settle()
			if tc.then == "" {
				if vm := f.lookup(); vm != nil {
					t.Errorf("the VirtualMachine is still there: %+v", vm.Status)
				}
				return
			}
			f.is(tc.then)
		})
	}
}
