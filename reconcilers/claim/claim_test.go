package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"sallyport.dev/sallyport/api/v1alpha1"
)

func holder(id string, t v1alpha1.OperationType) Holder {
	return Holder{ID: id, Origin: v1alpha1.OriginOperation, Name: "op-" + id, Type: t}
}

func at(second int64) metav1.MicroTime { return metav1.NewMicroTime(time.Unix(second, 0).UTC()) }

// A Stop over a Start that hangs: one write makes the Stop the holder and the Start undone, with a pointer to the Stop.
func TestTakeSupersedesInOneWrite(t *testing.T) {
	var status v1alpha1.VirtualMachineStatus
	start, stop := holder("a", v1alpha1.OperationStart), holder("b", v1alpha1.OperationStop)
	if err := Take(&status, start, nil, at(1)); err != nil {
		t.Fatal(err)
	}
	if err := Take(&status, stop, nil, at(2)); !errors.Is(err, ErrHeld) {
		t.Fatalf("got %v for a claim on a machine that another holds", err)
	}
	if err := Take(&status, stop, []Holder{start}, at(2)); err != nil {
		t.Fatal(err)
	}
	want := v1alpha1.VirtualMachineStatus{
		ActiveOperation: &v1alpha1.ActiveOperation{
			ID: "b", Origin: "Operation", Name: "op-b", Type: "Stop", ClaimedAt: at(2),
			PreviousIntent: &v1alpha1.PowerIntent{State: "Running", By: "op-a", At: at(1)},
		},
		Undoing: []v1alpha1.UndoingOperation{{
			ID: "a", Origin: "Operation", Name: "op-a", Type: "Start", End: "Superseded",
			By: &v1alpha1.OperationReference{Name: "op-b", UID: "b"},
		}},
		PowerIntent: &v1alpha1.PowerIntent{State: "Stopped", By: "op-b", At: at(2)},
	}
	if diff := cmp.Diff(want, status); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := Take(&status, start, []Holder{stop}, at(3)); !errors.Is(err, ErrLost) {
		t.Errorf("got %v for a claim of one who is being undone", err)
	}
}

// A Migrate counts for the node that it names from the moment of its claim.
func TestTakeNamesTheNode(t *testing.T) {
	var status v1alpha1.VirtualMachineStatus
	o := &v1alpha1.VirtualMachineOperation{Spec: v1alpha1.VirtualMachineOperationSpec{
		Type: v1alpha1.OperationMigrate, Migrate: &v1alpha1.MigrateTarget{NodeName: "node-2"},
	}}
	if err := Take(&status, OfOperation(o), nil, at(1)); err != nil || status.ActiveOperation.NodeName != "node-2" {
		t.Errorf("got %v and a claim %+v", err, status.ActiveOperation)
	}
	if h, _ := Current(&status); h != OfOperation(o) {
		t.Errorf("the holder is %+v", h)
	}
}

func TestWithdrawPutsThePowerIntentBack(t *testing.T) {
	yesterday := &v1alpha1.PowerIntent{State: v1alpha1.PowerStopped, By: "stop-1", At: at(1)}
	for _, tc := range []struct {
		kind v1alpha1.OperationType
		want v1alpha1.PowerState // while it holds
	}{
		{v1alpha1.OperationStart, v1alpha1.PowerRunning},
		{v1alpha1.OperationRestart, v1alpha1.PowerRunning},
		{v1alpha1.OperationMigrate, v1alpha1.PowerStopped},
	} {
		status := v1alpha1.VirtualMachineStatus{PowerIntent: yesterday.DeepCopy()}
		if err := Take(&status, holder("a", tc.kind), nil, at(2)); err != nil {
			t.Fatal(err)
		}
		if status.PowerIntent.State != tc.want {
			t.Errorf("%s: the intent is %s while it holds", tc.kind, status.PowerIntent.State)
		}
		if err := Withdraw(&status, "a", v1alpha1.EndDeadlineExceeded); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(yesterday, status.PowerIntent); diff != "" || !Lost(&status, "a") || Holds(&status, "a") {
			t.Errorf("%s: after its deadline (-want +got):\n%s", tc.kind, diff)
		}
	}
}

func TestFinishAndSettleAreTheOwners(t *testing.T) {
	var status v1alpha1.VirtualMachineStatus
	if err := Take(&status, holder("a", v1alpha1.OperationStart), nil, at(1)); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"finishing another's claim":   Finish(&status, "b"),
		"withdrawing another's claim": Withdraw(&status, "b", v1alpha1.EndDeleted),
		"settling a holder":           Settle(&status, "a"),
	} {
		if !errors.Is(err, ErrNotHeld) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if err := Finish(&status, "a"); err != nil || status.ActiveOperation != nil || status.PowerIntent.State != v1alpha1.PowerRunning {
		t.Errorf("got %v and %+v", err, status)
	}
}

func TestUndoingIsBounded(t *testing.T) {
	var status v1alpha1.VirtualMachineStatus
	for i := range MaxUndoing {
		status.Undoing = append(status.Undoing, undoingEntry(holder(fmt.Sprint(i), v1alpha1.OperationStart), v1alpha1.EndDeleted, nil))
	}
	if err := Take(&status, holder("next", v1alpha1.OperationStop), nil, at(1)); err != nil {
		t.Fatalf("a full list must not bar a claim that supersedes nobody: %v", err)
	}
	before := status.DeepCopy()
	if err := Withdraw(&status, "next", v1alpha1.EndDeleted); !errors.Is(err, ErrFull) {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff(before, &status); diff != "" {
		t.Errorf("a refused transition changed the claim:\n%s", diff)
	}
}

// The invariants of the package's comment, after any sequence of transitions by anybody.
func TestInvariants(t *testing.T) {
	kinds := []v1alpha1.OperationType{
		v1alpha1.OperationStart, v1alpha1.OperationStop, v1alpha1.OperationRestart, v1alpha1.OperationMigrate,
	}
	ends := []v1alpha1.UndoEnd{v1alpha1.EndDeadlineExceeded, v1alpha1.EndDeleted, v1alpha1.EndFailed}
	rapid.Check(t, func(t *rapid.T) {
		var status v1alpha1.VirtualMachineStatus
		someone := rapid.Custom(func(t *rapid.T) Holder {
			return holder(rapid.StringMatching(`[a-f]`).Draw(t, "id"), rapid.SampledFrom(kinds).Draw(t, "type"))
		})
		second := int64(0)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			second++
			before := status.DeepCopy()
			who := someone.Draw(t, "who")
			var settled string
			var err error
			switch rapid.IntRange(0, 3).Draw(t, "transition") {
			case 0:
				err = Take(&status, who, rapid.SliceOfN(someone, 0, 3).Draw(t, "yield"), at(second))
			case 1:
				err = Finish(&status, who.ID)
			case 2:
				err = Withdraw(&status, who.ID, rapid.SampledFrom(ends).Draw(t, "end"))
			case 3:
				settled = who.ID
				err = Settle(&status, settled)
			}
			if err != nil {
				if diff := cmp.Diff(before, &status); diff != "" {
					t.Fatalf("a refused transition changed the claim: %v\n%s", err, diff)
				}
				continue
			}
			checkInvariants(t, before, &status, settled)
		}
	})
}

func checkInvariants(t *rapid.T, before, after *v1alpha1.VirtualMachineStatus, settled string) {
	seen := map[string]bool{}
	for _, u := range after.Undoing {
		if seen[u.ID] || Holds(after, u.ID) {
			t.Fatalf("%s is in undoing twice, or holds the machine: %+v", u.ID, after)
		}
		seen[u.ID] = true
	}
	for _, u := range before.Undoing {
		kept := slices.ContainsFunc(after.Undoing, func(v v1alpha1.UndoingOperation) bool { return cmp.Equal(u, v) })
		if !kept && u.ID != settled {
			t.Fatalf("the entry of %s was changed or dropped", u.ID)
		}
	}
	if was, held := Current(before); held && !Holds(after, was.ID) && !Lost(after, was.ID) {
		if after.ActiveOperation != nil {
			t.Fatalf("%s lost the machine to another and is not being undone", was.ID)
		}
		if !cmp.Equal(before.PowerIntent, after.PowerIntent) {
			t.Fatalf("finishing changed the power intent")
		}
	}
}

func TestLocksLetOneInAtATime(t *testing.T) {
	var locks Locks
	var wg sync.WaitGroup
	inside := map[types.NamespacedName]int{}
	var mu sync.Mutex
	for i := range 50 {
		wg.Go(func() {
			machine := types.NamespacedName{Name: fmt.Sprint(i % 3)}
			release, err := locks.Lock(context.Background(), machine)
			if err != nil {
				t.Error(err)
				return
			}
			defer release()
			mu.Lock()
			inside[machine]++
			if inside[machine] != 1 {
				t.Errorf("%d hold the lock of machine %s", inside[machine], machine)
			}
			mu.Unlock()
			mu.Lock()
			inside[machine]--
			mu.Unlock()
		})
	}
	wg.Wait()
	if len(locks.queues) != 0 {
		t.Errorf("%d locks are kept that nobody needs", len(locks.queues))
	}
}

func TestLockLeavesWithItsContext(t *testing.T) {
	var locks Locks
	m := types.NamespacedName{Name: "m"}
	release, err := locks.Lock(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := locks.Lock(ctx, m); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	release()
	again, err := locks.Lock(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	again()
}
