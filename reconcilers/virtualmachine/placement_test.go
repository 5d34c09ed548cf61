package virtualmachine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/double/fake"
	"sallyport.dev/sallyport/test/support/step"
)

// placed gives the node of the machine, and what PlacementSettled says.
func (f *fixture) placed() string {
	f.Helper()
	status := f.vm().Status
	c := meta.FindStatusCondition(status.Conditions, "PlacementSettled")
	return strings.TrimSpace(status.NodeName + " " + string(c.Status) + " " + c.Reason + " " + c.Message)
}

// on has the machine be wanted on a node.
func on(node string) func(*v1alpha1.VirtualMachineSpec) {
	return func(s *v1alpha1.VirtualMachineSpec) { s.NodeName = node }
}

// pinned gives a machine that is on node-1, as its spec has it, and that was not started just now.
func pinned(t *testing.T, policy v1alpha1.RunPolicy) *fixture {
	t.Helper()
	f := newFixture(t)
	f.machine(policy, func(vm *v1alpha1.VirtualMachine) { vm.Spec.NodeName = "node-1" })
	f.settle()
	f.offset += time.Minute
	return f
}

// A machine that is on another node than its spec names is moved there, whether it is on or off.
func TestPlacement(t *testing.T) {
	for _, policy := range []v1alpha1.RunPolicy{v1alpha1.RunPolicyAlwaysOn, v1alpha1.RunPolicyAlwaysOff} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			f := pinned(t, policy)
			f.change(on("node-2"))
			f.settle()
			if got := f.placed(); got != "node-2 True OnNode" {
				t.Errorf("it is on %s", got)
			}
			if !f.events.has("Migrate to node node-2 finished: the machine is on node node-2") {
				t.Errorf("nobody was told: %v", f.events.all)
			}
		})
	}
}

// A machine that cannot be moved says why, is tried again later and later, and goes on living where it is.
func TestPlacementThatCannotBe(t *testing.T) {
	t.Parallel()
	f := pinned(t, v1alpha1.RunPolicyAlwaysOn)
	f.world.SetHost(fake.Host{Name: "node-2", Disconnected: true})
	f.change(on("node-2"))
	f.settle()
	const why = "node-1 False MigrationNeeded the machine is on node node-1, not on node node-2, and the last move failed: no connected node meets the target"
	if got := f.placed(); !strings.HasPrefix(got, why) {
		t.Errorf("it is on %s", got)
	}
	f.is("Running False/MigrationNeeded")
	f.change(on("node"))
	f.settle()
	if got := f.placed(); got != "node-1 False MigrationNeeded the machine is on node node-1, not on node node" {
		t.Errorf("what was said of another node is still said: it is on %s", got)
	}
	f.change(on("node-2"))
	f.offset += time.Minute
	f.settle()
	f.world.SetHost(fake.Host{Name: "node-2"})
	f.settle()
	if got := f.placed(); !strings.HasPrefix(got, why) {
		t.Errorf("it was tried again at once: it is on %s", got)
	}
	f.offset += time.Minute
	f.settle()
	if got := f.placed(); got != "node-2 True OnNode" {
		t.Errorf("it is on %s", got)
	}
}

// What a spec wants that has changed while the machine is on its way is what counts.
func TestPlacementThatChanges(t *testing.T) {
	for node, want := range map[string]string{"node-1": "node-1 True OnNode", "": "True NodeNotChosen"} {
		t.Run("to "+node, func(t *testing.T) {
			t.Parallel()
			f := pinned(t, v1alpha1.RunPolicyAlwaysOn)
			release := f.world.Hold(f.vm().UID, runtime.TaskRelocate)
			f.change(on("node-2"))
			f.settle()
			if got := f.placed(); got != "node-1 False Migrating Migrate by Placement is in progress" {
				t.Errorf("on its way: it is on %s", got)
			}
			f.change(on(node))
			f.settle()
			release()
			for range 3 {
				f.offset += time.Minute
				f.settle()
			}
			if got := f.placed(); !strings.HasSuffix(got, want) {
				t.Errorf("it is on %s", got)
			}
		})
	}
}

// A move that the policies refuse when it would begin waits, says why, and does not keep the machine from being started.
func TestPlacementThatIsRefused(t *testing.T) {
	t.Parallel()
	f := pinned(t, v1alpha1.RunPolicyAlwaysOn)
	var reason v1alpha1.ConditionReason
	var failure error
	f.vms.AdmitsMove = func(_ context.Context, vm *v1alpha1.VirtualMachine, node string) (v1alpha1.ConditionReason, string, error) {
		if vm.Status.NodeName != "node-1" || node != "node-2" {
			t.Errorf("asked about a move from %s to %s", vm.Status.NodeName, node)
		}
		return reason, "two others are", failure
	}
	for _, tc := range []struct {
		reason v1alpha1.ConditionReason
		err    error
		want   string
	}{
		{"TooManyMigrations", nil, "TooManyMigrations the machine is on node node-1, not on node node-2, and the move is not admitted yet: two others are"},
		{"", errors.New("no policies"), "MoveNotDecided the machine is on node node-1, not on node node-2, and the move is not admitted yet: no policies"},
	} {
		reason, failure = tc.reason, tc.err
		f.world.GuestPowersOff(f.vm().UID)
		f.change(on("node-2"))
		f.settle()
		f.offset += time.Minute // a machine is not moved right after a start
		f.settle()
		if got := f.placed(); got != "node-1 False "+tc.want {
			t.Errorf("it is on %s", got)
		}
		f.is("Running False/" + strings.Fields(tc.want)[0])
	}
	if !f.events.has("TooManyMigrations: the machine is on node node-1, not on node node-2") {
		t.Errorf("nobody was told: %v", f.events.all)
	}
	reason, failure = "", nil
	f.settle()
	if got := f.placed(); got != "node-2 True OnNode" {
		t.Errorf("it is on %s", got)
	}
}

// From the admission on a move to the write of its claim no other move is ruled on, or two would pass a limit that has room for one.
func TestMovesAreJudgedOneAtATime(t *testing.T) {
	t.Parallel()
	f := pinned(t, v1alpha1.RunPolicyAlwaysOn)
	free := func(within time.Duration) bool {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		release, err := f.vms.Locks.LockMoves(ctx)
		if err == nil {
			release()
		}
		return err == nil
	}
	const soon = 10 * time.Millisecond
	asked, claimed := 0, 0
	f.vms.AdmitsMove = func(context.Context, *v1alpha1.VirtualMachine, string) (v1alpha1.ConditionReason, string, error) {
		if asked++; free(soon) {
			t.Error("another move can be judged at the same time")
		}
		return "", "", nil
	}
	f.onStatus = func(o client.Object) {
		if vm := o.(*v1alpha1.VirtualMachine); vm.Status.ActiveOperation != nil && vm.Status.ActiveOperation.Signal == "" && claimed == 0 {
			if claimed++; free(soon) {
				t.Error("another move can be judged before the claim is written")
			}
			if vm.Status.Phase != v1alpha1.VirtualMachineMigrating {
				t.Errorf("the limit does not count a machine in phase %s", vm.Status.Phase)
			}
		}
	}
	f.change(on("node-2"))
	f.settle()
	if asked != 1 || claimed != 1 || !free(step.Patience) {
		t.Errorf("asked %d times, claimed %d times, or the lock was not released", asked, claimed)
	}
	if got := f.placed(); got != "node-2 True OnNode" {
		t.Errorf("it is on %s", got)
	}
}

// A machine that was started a moment ago is moved as soon as its pause is over: what is left of the pause is waited for, not all of it again.
func TestMoveAfterTheRestOfThePause(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.machine(v1alpha1.RunPolicyAlwaysOn, func(vm *v1alpha1.VirtualMachine) { vm.Spec.NodeName = "node-1" })
	f.settle()
	const left = 5 * time.Second
	f.offset += shortestPause - left
	f.change(on("node-2"))
	result, err := f.vms.Reconcile(t.Context(), ctrl.Request{NamespacedName: f.key()})
	if err != nil || result.RequeueAfter > left {
		t.Errorf("looks again after %v, error %v", result.RequeueAfter, err)
	}
	f.offset += left
	f.settle()
	if got := f.placed(); got != "node-2 True OnNode" {
		t.Errorf("it is on %s", got)
	}
}

// still is a runtime that cannot move machines.
type still struct{ runtime.Runtime }

// A runtime that cannot move machines is not asked, and nobody waits for that.
func TestPlacementWithoutMoves(t *testing.T) {
	t.Parallel()
	f := pinned(t, v1alpha1.RunPolicyAlwaysOn)
	f.vms.Runtimes = func(context.Context, *v1alpha1.VirtualMachine) (*runtime.Client, error) {
		return runtime.NewClient(still{f.world.Client("still")}), nil
	}
	f.change(on("node-2"))
	f.settle()
	const want = "node-1 False MigrationNeeded the machine is on node node-1, not on node node-2, and its runtime does not support migration: " +
		"change spec.nodeName back, or delete the VirtualMachine and create it on node node-2"
	if got := f.placed(); got != want {
		t.Errorf("it is on %s", got)
	}
}

// A machine that is moved by hibernation is not where it is for good, also where its spec wants it.
func TestPlacementOfMachineThatIsMoved(t *testing.T) {
	t.Parallel()
	f := pinned(t, v1alpha1.RunPolicyAlwaysOn)
	vm := f.vm()
	vm.Status.Migration = &v1alpha1.Migration{
		ID: "m-1", Instance: "i-1", Step: v1alpha1.MigrationWake, Since: metav1.NowMicro(), Was: v1alpha1.OperationBaseline{NodeName: "node-1"},
		Reason: string(v1alpha1.ReasonSourceUnreachable), Message: "node node-1 is gone",
	}
	if err := f.api.Status().Update(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	f.settle()
	if got, want := f.placed(), "node-1 False SourceUnreachable move m-1 from node-1, step Wake: node node-1 is gone"; got != want {
		t.Errorf("it is on %s\nwant %s", got, want)
	}
}
