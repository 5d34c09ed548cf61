package operation

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/double/fake"
)

func TestForcedStopOverStopThatTheGuestIgnores(t *testing.T) {
	t.Parallel()
	f := newFixture(t, v1alpha1.PowerRunning)
	f.world.SetGuest(f.uid, fake.Guest{Ignores: true})
	f.ask("gentle", "Stop")
	for range 4 {
		f.pass()
		f.world.Advance(f.uid)
	}
	f.want("gentle", "InProgress/InProgress")
	f.quiet()
	if n := f.count(runtime.VerbPowerOff); n != 1 {
		t.Errorf("the guest was asked %d times", n)
	}
	f.ask("forced", "Stop force")
	f.until("forced", "Completed/Succeeded")
	f.want("gentle", "Completed/Superseded")
	f.idle(v1alpha1.PowerStopped)
}

// A migration that cannot be stopped any more runs to its end before the Restart does anything.
func TestRestartWaitsForWhatCannotBeCancelled(t *testing.T) {
	t.Parallel()
	f := newFixture(t, v1alpha1.PowerRunning)
	f.world.SetCancels(f.uid, fake.Cancels{Ignored: true})
	release := f.world.Hold(f.uid, runtime.TaskRelocate)
	f.ask("move", "Migrate")
	f.pass()
	f.ask("restart", "Restart")
	for range 3 {
		f.pass()
	}
	f.want("move", "InProgress/InProgress", "restart", "InProgress/InProgress")
	f.quiet()
	if n := f.count(runtime.VerbPowerOff); n != 0 {
		t.Error("the Restart began beside a migration")
	}
	release()
	f.until("restart", "Completed/Succeeded")
	f.want("move", "Completed/Superseded")
	f.idle(v1alpha1.PowerRunning)
}

func TestForcedRestartOverRestartWhoseSecondHalfHangs(t *testing.T) {
	t.Parallel()
	f := newFixture(t, v1alpha1.PowerRunning)
	release := f.world.Hold(f.uid, runtime.TaskPowerOn)
	f.ask("gentle", "Restart")
	for range 4 {
		f.pass()
		f.world.Advance(f.uid)
	}
	if o := f.operation("gentle"); o.Status.Step != v1alpha1.StepPowerOn {
		t.Fatalf("the second half has not begun: %+v", o.Status)
	}
	f.ask("forced", "Restart force")
	f.pass()
	release()
	f.until("forced", "Completed/Succeeded")
	f.want("gentle", "Completed/Superseded")
	f.idle(v1alpha1.PowerRunning)
}

func TestMigrateAndEvict(t *testing.T) {
	t.Parallel()
	f := newFixture(t, v1alpha1.PowerRunning)
	f.ask("there", "Migrate", func(o *v1alpha1.VirtualMachineOperation) {
		o.Spec.Migrate = &v1alpha1.MigrateTarget{NodeName: "node-2"}
	})
	f.until("there", "Completed/Succeeded")
	f.idle(v1alpha1.PowerRunning)
	if p := f.vm().Status.Placement; p == nil || p.NodeName != "node-2" || p.By != "there" {
		t.Errorf("the placement is %+v", p)
	}
	f.ask("back", "Evict force")
	f.until("back", "Completed/Succeeded")
	f.idle(v1alpha1.PowerRunning)
	var forced []bool
	for _, call := range f.world.Calls() {
		if call.Verb == runtime.VerbMigrate {
			forced = append(forced, call.Target.Force)
		}
	}
	if len(forced) != 2 || forced[0] || !forced[1] {
		t.Errorf("the moves were forced: %v, want the second one only", forced)
	}
	if vm := f.vm(); vm.Status.NodeName != "node-1" || vm.Status.Incarnation != "first" {
		t.Errorf("the machine is shown as %+v", vm.Status)
	}
}

// A runtime that is no Migrator: the embedded interface hides that the fake is one.
func TestMigrateOnRuntimeThatCannot(t *testing.T) {
	t.Parallel()
	f := newFixture(t, v1alpha1.PowerRunning)
	plain := runtime.NewClient(struct{ runtime.Runtime }{f.world.Client("us")})
	f.r.Runtimes = func(context.Context, *v1alpha1.VirtualMachine) (*runtime.Client, error) { return plain, nil }
	f.ask("move", "Migrate")
	f.until("move", "Failed/RuntimeFailed")
	f.idle(v1alpha1.PowerRunning)
}

func TestTwoStartsAtOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t, v1alpha1.PowerStopped)
	f.world.Hold(f.uid, runtime.TaskPowerOn)
	f.ask("b-first", "Start")
	f.ask("a-second", "Start")
	f.pass()
	f.want("b-first", "InProgress/InProgress", "a-second", "Failed/OperationInProgress")
}

func TestNoRulingIsTriedAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t, v1alpha1.PowerStopped)
	f.policies.err = errors.New("the cache of Nodes is not in sync")
	f.ask("start", "Start")
	for range 3 {
		if _, err := f.reconcile(); err == nil {
			t.Error("no backoff")
		}
	}
	f.want("start", "Pending/NotDecided")
	if f.writes.count != 1 {
		t.Errorf("written: %v", f.writes.log)
	}
	f.offset = time.Hour
	f.pass()
	f.want("start", "Failed/DeadlineExceeded")
	f.policies.err, f.offset = nil, 0
	f.ask("again", "Start")
	f.until("again", "Completed/Succeeded")
}

// An older operation that waited while a newer one took the machine does not take it back.
func TestOlderBehindNewerHolderWaits(t *testing.T) {
	t.Parallel()
	f := newFixture(t, v1alpha1.PowerRunning)
	f.ask("older", "Start")
	f.ask("newer", "Stop force")
	older := f.operation("older")
	newer := f.operation("newer")
	vm := f.vm()
	vm.Status.ActiveOperation = &v1alpha1.ActiveOperation{
		ID: string(newer.UID), Name: newer.Name, Origin: v1alpha1.OriginOperation, Type: "Stop", Force: true, ClaimedAt: nowMicro(),
	}
	f.Must(f.api.Status().Update(t.Context(), vm))
	release := f.world.Hold(f.uid, runtime.TaskPowerOff)
	f.pass()
	f.want("older", "Pending/Waiting", "newer", "InProgress/InProgress")
	if by := f.operation("older").Status.SupersededBy; by != nil || older.Finished() {
		t.Errorf("it lost to %+v", by)
	}
	release()
	f.until("newer", "Completed/Succeeded")
	f.until("older", "Completed/Succeeded")
	f.idle(v1alpha1.PowerRunning)
}

// Three in a row, two of them asked for before anybody looks: the last one wins, the others end with a pointer to who took over, and the
// migration that had begun is withdrawn.
func TestChainOfThree(t *testing.T) {
	t.Parallel()
	f := newFixture(t, v1alpha1.PowerRunning)
	f.world.SetGuest(f.uid, fake.Guest{Ignores: true})
	f.world.Hold(f.uid, runtime.TaskRelocate)
	f.ask("c-move", "Migrate")
	f.pass()
	f.want("c-move", "InProgress/InProgress")
	f.ask("b-stop", "Stop")
	f.ask("a-forced", "Restart force")
	f.until("a-forced", "Completed/Succeeded")
	f.want("c-move", "Completed/Superseded", "b-stop", "Completed/Superseded")
	f.idle(v1alpha1.PowerRunning)
	for name, by := range map[string]string{"c-move": "b-stop", "b-stop": "a-forced"} {
		if got := f.operation(name).Status.SupersededBy; got == nil || got.Name != by {
			t.Errorf("%s is superseded by %+v and not by %s", name, got, by)
		}
	}
	if in, _ := f.world.Instance(f.uid); in.NodeName != "node-1" || in.Incarnation == "first" {
		t.Errorf("the machine is on %s in incarnation %s", in.NodeName, in.Incarnation)
	}
	if o := f.operation("a-forced"); o.Status.Step != v1alpha1.StepPowerOn || o.Status.Baseline.Incarnation != "first" {
		t.Errorf("step %s, baseline %+v", o.Status.Step, o.Status.Baseline)
	}
}

// A target that no node meets ends the operation: who asked can name another, and the machine is free for that.
func TestMigrateToNowhere(t *testing.T) {
	t.Parallel()
	f := newFixture(t, v1alpha1.PowerRunning)
	f.ask("move", "Migrate", func(o *v1alpha1.VirtualMachineOperation) {
		o.Spec.Migrate = &v1alpha1.MigrateTarget{NodeName: "node-9"}
	})
	f.until("move", "Failed/RuntimeFailed")
	c := meta.FindStatusCondition(f.operation("move").Status.Conditions, "Completed")
	if !strings.Contains(c.Message, "no connected node meets the target") {
		t.Errorf("people read: %s", c.Message)
	}
	f.idle(v1alpha1.PowerRunning)
}

// A disk that is being plugged in keeps a machine from moving for a while, and does not end the move.
func TestMigrateWhilePlugging(t *testing.T) {
	t.Parallel()
	f := newFixture(t, v1alpha1.PowerRunning)
	const why = "disk data is being plugged in"
	f.world.Plug(f.uid, why)
	f.ask("move", "Migrate")
	f.until("move", "InProgress/AttemptFailed")
	c := meta.FindStatusCondition(f.operation("move").Status.Conditions, "Completed")
	if !strings.Contains(c.Message, why) {
		t.Errorf("people read: %+v", c)
	}
	f.world.Plug(f.uid, "")
	f.until("move", "Completed/Succeeded")
	f.idle(v1alpha1.PowerRunning)
}
