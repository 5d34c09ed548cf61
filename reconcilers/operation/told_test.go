package operation

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/double/fake"
)

// People are told on the operation and on the machine, each thing once.
func TestEvents(t *testing.T) {
	t.Parallel()
	f := stuckStart(t)
	f.ask("again", "Start")
	f.pass()
	f.ask("stop", "Stop")
	f.until("stop", "Completed/Succeeded")
	f.pass()
	notes := []string{
		"InProgress: Start start: in progress (has claimed the machine)",
		"OperationInProgress: Start again: start does not yield",
		"InProgress: Stop stop: in progress (has claimed the machine), superseding Start start",
		"Superseded: Start start: superseded by operation stop",
		"Succeeded: Stop stop: the machine is off",
	}
	var want []string
	for _, note := range notes {
		name := strings.TrimSuffix(strings.Fields(note)[2], ":")
		want = append(want, "VirtualMachineOperation "+name+" "+note, "VirtualMachine "+machine+" "+note)
	}
	if !slices.Equal(f.events.all, want) {
		t.Errorf("people were told\n%s\nand not\n%s", strings.Join(f.events.all, "\n"), strings.Join(want, "\n"))
	}
}

func TestProgress(t *testing.T) {
	t.Parallel()
	f := newFixture(t, v1alpha1.PowerRunning)
	release := f.world.Hold(f.uid, runtime.TaskRelocate)
	f.ask("move", "Migrate")
	f.pass()
	f.world.SetProgress(f.uid, 40)
	f.pass()
	if p := f.operation("move").Status.Progress; p == nil || *p != 40 {
		t.Errorf("the progress is %v", p)
	}
	f.quiet()
	release()
	f.until("move", "Completed/Succeeded")
	if p := f.operation("move").Status.Progress; p == nil || *p != 100 {
		t.Errorf("the progress at the end is %v", p)
	}
}

// What is being withdrawn can be looked up at the runtime.
func TestTaskThatIsWaitedFor(t *testing.T) {
	t.Parallel()
	f := stuckStart(t)
	f.world.SetCancels(f.uid, fake.Cancels{Ignored: true})
	seen, err := f.world.Client("an administrator").Observe(t.Context(), runtime.MachineOf(f.vm()))
	f.Must(err)
	f.ask("stop", "Stop")
	f.pass()
	if u := f.vm().Status.Undoing; len(u) != 1 || u[0].Task != seen.InFlight[0].ID {
		t.Errorf("undoing is %+v, in flight is %+v", u, seen.InFlight)
	}
	f.quiet()
}

// A move that somebody else began, such as DRS, is waited for and not withdrawn, and people are told whose it is; also while
// somebody who would have moved the machine is undone.
func TestForeignTasksAreWaitedFor(t *testing.T) {
	t.Parallel()
	f := newFixture(t, v1alpha1.PowerRunning)
	release := f.world.Hold(f.uid, runtime.TaskRelocate)
	f.world.Begin(f.uid, runtime.TaskRelocate, "vCenter itself")
	says := func(name, want string) {
		t.Helper()
		if c := meta.FindStatusCondition(f.operation(name).Status.Conditions, "Completed"); c == nil || c.Message != want {
			t.Errorf("operation %s says %+v, want %q", name, c, want)
		}
	}
	f.ask("move", "Migrate")
	f.pass()
	says("move", "the machine is being moved by vCenter itself")
	f.ask("stop", "Stop force")
	f.pass()
	f.world.Advance(f.uid)
	f.pass()
	says("stop", "waiting for Migrate move to be undone: the machine is being moved by vCenter itself (not started by Sallyport, so not canceled)")
	if u := f.vm().Status.Undoing; len(u) != 1 || u[0].Task != "" {
		t.Errorf("undoing is %+v", u)
	}
	f.quiet()
	release()
	f.until("stop", "Completed/Succeeded")
	f.want("move", "Completed/Superseded")
	f.idle(v1alpha1.PowerStopped)
	if n := f.count(runtime.VerbCancel); n > 0 {
		t.Errorf("%d tasks were cancelled", n)
	}
	if in, _ := f.world.Instance(f.uid); in.NodeName != "node-2" {
		t.Errorf("the move was withdrawn: the machine is on %s", in.NodeName)
	}
}

// A move of others that the runtime ends when it powers the machine off does not keep users from forcing that: it may never finish. Who does not
// force waits for it.
func TestForcedStopDuringAMoveByOthers(t *testing.T) {
	t.Parallel()
	for _, forced := range []string{"Stop force", "Restart force"} {
		f := newFixture(t, v1alpha1.PowerRunning)
		f.world.Hold(f.uid, runtime.TaskRelocate) // for good
		f.world.BeginYielding(f.uid, runtime.TaskRelocate, "KubeVirt")
		f.ask("graceful", "Stop")
		f.pass()
		f.want("graceful", "InProgress/InProgress")
		if n := f.count(runtime.VerbPowerOff); n > 0 {
			t.Errorf("the graceful stop sent %d requests during the move", n)
		}
		f.ask("forced", forced)
		f.until("forced", "Completed/Succeeded")
		f.want("graceful", "Completed/Superseded")
	}
}

// A start by others that no node takes keeps nobody from stopping the machine: there is no guest to wait for.
func TestStopDuringAStartByOthers(t *testing.T) {
	t.Parallel()
	for _, stop := range []string{"Stop", "Stop force"} {
		f := newFixture(t, v1alpha1.PowerStopped)
		f.world.Hold(f.uid, runtime.TaskPowerOn) // for good
		f.world.BeginYielding(f.uid, runtime.TaskPowerOn, "virtctl")
		f.ask("stop", stop)
		f.until("stop", "Completed/Succeeded")
		f.idle(v1alpha1.PowerStopped)
		if in, _ := f.world.Instance(f.uid); in.Incarnation != "" {
			t.Errorf("%s: the machine was on: %+v", stop, in)
		}
	}
}

// An entry that names its task has that one withdrawn and no other.
func TestOnlyTheNamedTaskIsWithdrawn(t *testing.T) {
	t.Parallel()
	f := stuckStart(t)
	f.r.Arbiter = nil // nothing is judged: the claim is taken by hand
	vm := f.vm()
	f.Must(claim.Withdraw(&vm.Status, vm.Status.ActiveOperation.ID, v1alpha1.EndFailed))
	claim.Track(&vm.Status, vm.Status.Undoing[0].ID, "task-of-another-time")
	f.Must(f.api.Status().Update(t.Context(), vm))
	f.pass()
	if n := f.count(runtime.VerbCancel); n > 0 {
		t.Errorf("%d tasks were cancelled", n)
	}
	f.want("start", "InProgress/InProgress")
}

// A machine that belongs to another owner by now has nothing of ours in flight: nobody is undone for ever.
func TestUndoingEndsWithTheMarker(t *testing.T) {
	t.Parallel()
	f := stuckStart(t)
	f.delete(f.operation("start"))
	f.world.Script(fake.At{}, fake.Fail(runtime.NewOwnedByAnother(nil, "belongs to another")).Always())
	for range 3 {
		_, _ = f.reconcile()
	}
	if vm := f.vm(); vm.Busy() {
		t.Errorf("the claim is not empty: %+v", vm.Status)
	}
}
