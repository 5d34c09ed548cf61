package virtualmachine

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/double/fake"
)

var up = runtime.Guest{Hostname: "web", Addresses: []string{"10.0.0.7", "2001:db8::7"}, Tools: v1alpha1.ToolsRunning}

func TestGuestStatus(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	uid := f.machine(v1alpha1.RunPolicyAlwaysOn)
	f.settle()
	f.world.SetGuest(uid, fake.Guest{Says: up})
	f.settle()
	f.is("Running True/AsWanted")
	status := f.vm().Status
	want := &v1alpha1.GuestStatus{Hostname: "web", ToolsState: v1alpha1.ToolsRunning, ToolsSeenIn: status.Incarnation}
	if diff := cmp.Diff([]any{up.Addresses, want}, []any{status.Addresses, status.Guest}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	f.change(func(s *v1alpha1.VirtualMachineSpec) { s.RunPolicy = v1alpha1.RunPolicyAlwaysOff })
	f.settle()
	if status := f.vm().Status; status.Addresses != nil || status.Guest != nil {
		t.Errorf("a guest that is off says %v %+v", status.Addresses, status.Guest)
	}
}

// Each reason for Degraded is shown, told once, and passes.
func TestDegraded(t *testing.T) {
	for name, tc := range map[string]struct {
		begin, end func(f *fixture, vm *v1alpha1.VirtualMachine)
		want       string
		message    string
	}{
		"the tools stop": {
			begin: func(f *fixture, vm *v1alpha1.VirtualMachine) {
				f.world.SetGuest(vm.UID, fake.Guest{Says: runtime.Guest{Tools: v1alpha1.ToolsNotRunning}})
			},
			end:     func(f *fixture, vm *v1alpha1.VirtualMachine) { f.world.SetGuest(vm.UID, fake.Guest{Says: up}) },
			want:    "Degraded False/ToolsNotRunning",
			message: "have stopped running since",
		},
		"the runtime asks": {
			begin: func(f *fixture, vm *v1alpha1.VirtualMachine) {
				f.world.Ask(vm.UID, &v1alpha1.PendingQuestion{Text: "Moved or copied?", Choices: []string{"Moved", "Copied"}})
			},
			end:     func(f *fixture, vm *v1alpha1.VirtualMachine) { f.world.Ask(vm.UID, nil) },
			want:    "Degraded False/QuestionPending",
			message: "Moved or copied? (answers: Moved, Copied)",
		},
		"the connection is lost": {
			begin: func(f *fixture, _ *v1alpha1.VirtualMachine) {
				f.world.Script(fake.At{Verb: runtime.VerbObserve}, fake.Fail(runtime.NewDisconnected("shown as disconnected")).Always())
			},
			end:     func(f *fixture, _ *v1alpha1.VirtualMachine) { f.world.ClearScripts() },
			want:    "Degraded Unknown/Disconnected",
			message: "shown as disconnected",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.world.SetGuest(f.machine(v1alpha1.RunPolicyAlwaysOn), fake.Guest{Says: up})
			f.settle()
			tc.begin(f, f.vm())
			f.settle()
			f.is(tc.want)
			told := slices.DeleteFunc(slices.Clone(f.events.all), func(e string) bool { return !strings.Contains(e, tc.message) })
			if !strings.Contains(f.message(), tc.message) || len(told) != 1 {
				t.Errorf("people read %q, and were told %v", f.message(), f.events.all)
			}
			tc.end(f, f.vm())
			f.settle()
			f.is("Running True/AsWanted")
		})
	}
}

// A second question is told as the first one was.
func TestNextQuestion(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	uid := f.machine(v1alpha1.RunPolicyAlwaysOn)
	f.settle()
	for _, question := range []string{"Moved or copied?", "Disconnect the CD-ROM?"} {
		f.world.Ask(uid, &v1alpha1.PendingQuestion{Text: question})
		f.settle()
		if !f.events.has(question) {
			t.Errorf("nobody was told: %s", question)
		}
	}
}

// What is in the way while an operation holds the machine is told with the operation: a question of the runtime, which the machine shows as
// well, or that the machine was made into something else.
func TestOperationSaysWhatIsInTheWay(t *testing.T) {
	const question = "Moved or copied?"
	for text, befall := range map[string]func(f *fixture, uid types.UID) (over func()){
		question: func(f *fixture, uid types.UID) func() {
			release := f.world.Hold(uid, runtime.TaskPowerOn)
			f.world.Ask(uid, &v1alpha1.PendingQuestion{Text: question})
			return func() { f.world.Ask(uid, nil); release() }
		},
		"convert it": func(f *fixture, uid types.UID) func() { return f.world.Spoil(uid, "convert it") },
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			uid := f.machine(v1alpha1.RunPolicyManual)
			f.settle()
			over := befall(f, uid)
			f.ask("start", "Start")
			f.settle()
			if got := f.completed("start"); !strings.Contains(got, text) {
				t.Errorf("the operation says %q", got)
			}
			if text == question {
				f.is("Starting False/QuestionPending")
			}
			over()
			f.settle()
			f.is("Running True/AsWanted")
		})
	}
}

// What does not run is not degraded, whatever is lost.
func TestDisconnectedWhileOff(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.machine(v1alpha1.RunPolicyAlwaysOff)
	f.settle()
	f.world.Script(fake.At{Verb: runtime.VerbObserve}, fake.Fail(runtime.NewDisconnected("shown as disconnected")).Always())
	f.settle()
	f.is("Stopped Unknown/Disconnected")
}

// In phase Degraded a machine can be stopped and restarted, and is not moved.
func TestOperationsOnDegraded(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	uid := f.machine(v1alpha1.RunPolicyManual)
	f.settle()
	f.ask("start", "Start")
	f.settle()
	f.world.SetGuest(uid, fake.Guest{Says: up})
	f.settle()
	f.world.SetGuest(uid, fake.Guest{Says: runtime.Guest{Tools: v1alpha1.ToolsNotRunning}})
	f.settle()
	f.is("Degraded False/ToolsNotRunning")
	f.ask("evict", "Evict")
	f.settle()
	if got := f.state("evict"); got != "Failed/PhaseForbids" {
		t.Errorf("the Evict is %s", got)
	}
	f.ask("restart", "Restart force")
	f.settle()
	f.is("Running True/AsWanted")
	if got := f.state("restart"); got != "Completed/Succeeded" {
		t.Errorf("the Restart is %s", got)
	}
}
