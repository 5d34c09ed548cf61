package fake

import (
	"context"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

func TestLog(t *testing.T) {
	w, r := world(t)
	holder := "op-1"
	w.SetTag(func(_ context.Context, verb runtime.Verb, m runtime.Machine) string {
		return holder + " " + string(verb) + " " + m.Name + " of " + w.Instances()[0].ID
	})
	must(t, r.PowerOn(t.Context(), vm))
	holder = "op-2"
	w.Advance(uid)
	must(t, w.Client("b").PowerOff(t.Context(), vm, runtime.Forced))

	ignore := cmpopts.IgnoreFields(Call{}, "Machine")
	if diff := cmp.Diff([]Call{
		{Seq: 1, Returned: 2, Client: "a", Tag: "op-1 PowerOn vm of i", Verb: runtime.VerbPowerOn},
		{Seq: 4, Returned: 5, Client: "b", Tag: "op-2 PowerOff vm of i", Verb: runtime.VerbPowerOff, Mode: runtime.Forced},
	}, w.Calls(), ignore); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	// What op-1 set off carries its name, though op-2 holds the machine by then.
	if diff := cmp.Diff([]Effect{{
		Seq: 3, Kind: PoweredOn, Machine: uid, InstanceID: "i", Incarnation: "i/1", NodeName: "node-1", Memory: 1,
		Cause: 1, Client: "a", Tag: "op-1 PowerOn vm of i",
	}}, w.Effects()); diff != "" {
		t.Errorf("effects (-want +got):\n%s", diff)
	}
}

// The log keeps what was asked, whatever the caller does to its objects afterwards.
func TestLogCopiesArguments(t *testing.T) {
	w, r := running(t)
	m := vm
	m.Spec = vm.Spec.DeepCopy()
	selector := map[string]v1alpha1.LabelValue{"zone": "b"}
	_ = r.Migrate(t.Context(), m, runtime.Target{NodeSelector: selector})
	m.Spec.NodeName, selector["zone"] = "changed", "changed"
	call := w.Calls()[0]
	if call.Machine.Spec.NodeName != "" || call.Target.NodeSelector["zone"] != "b" {
		t.Errorf("the log changed to %+v", call)
	}
}

func TestConcurrentCallers(t *testing.T) {
	w, _ := world(t)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			r := w.Client("c")
			for range 20 {
				_ = r.PowerOn(t.Context(), vm)
				w.Advance(uid)
				_ = r.PowerOff(t.Context(), vm, runtime.Forced)
				_, _ = r.Observe(t.Context(), vm)
				_ = r.Cancel(t.Context(), vm, "task-1")
				w.Calls()
				w.Effects()
			}
		})
	}
	group.Wait()
	seen := map[int]bool{}
	for _, c := range w.Calls() {
		if seen[c.Seq] || seen[c.Returned] || c.Returned <= c.Seq {
			t.Fatalf("call %+v has no place of its own in the order", c)
		}
		seen[c.Seq], seen[c.Returned] = true, true
	}
}
