package fake

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

const uid types.UID = "uid-vm"

// vm is the machine of these tests.
var vm = runtime.Machine{
	NamespacedName: types.NamespacedName{Namespace: "ns", Name: "vm"}, UID: uid,
	Spec: &v1alpha1.VirtualMachineSpec{Runtime: v1alpha1.VirtualMachineRuntime{Pod: &v1alpha1.PodRuntime{}}},
}

// world is a world in which the machine exists and is off, and a client of it. Nothing has been logged yet.
func world(t *testing.T) (*World, *Runtime) {
	t.Helper()
	w := New()
	w.AddInstance(Instance{ID: "i", Place: Place(vm), Owner: uid})
	return w, w.Client("a")
}

// running is world with the machine on.
func running(t *testing.T) (*World, *Runtime) {
	t.Helper()
	w := New()
	w.AddInstance(Instance{ID: "i", Place: Place(vm), Owner: uid, Power: v1alpha1.PowerRunning, Incarnation: "i/0"})
	return w, w.Client("a")
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func observe(t *testing.T, r *Runtime) runtime.Observation {
	t.Helper()
	seen, err := r.Observe(t.Context(), vm)
	must(t, err)
	return seen
}

// sees fails the test unless that is what is in flight, and the power.
func sees(t *testing.T, r *Runtime, power v1alpha1.PowerState, inFlight ...runtime.TaskKind) {
	t.Helper()
	seen := observe(t, r)
	var kinds []runtime.TaskKind
	for _, task := range seen.InFlight {
		kinds = append(kinds, task.Kind)
	}
	if diff := cmp.Diff(inFlight, kinds); diff != "" || seen.Power != power {
		t.Fatalf("got %s, want %s; in flight (-want +got):\n%s", seen.Power, power, diff)
	}
}

// happened gives the kinds of all effects.
func happened(w *World) []EffectKind {
	var kinds []EffectKind
	for _, e := range w.Effects() {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

func wantHappened(t *testing.T, w *World, want ...EffectKind) {
	t.Helper()
	if diff := cmp.Diff(want, happened(w)); diff != "" {
		t.Errorf("effects (-want +got):\n%s", diff)
	}
}

const (
	on  = v1alpha1.PowerRunning
	off = v1alpha1.PowerStopped
)

func TestFailDoesNothingOnce(t *testing.T) {
	w, r := world(t)
	w.SetSteps(runtime.TaskPowerOn, 0)
	boom := errors.New("boom")
	w.Script(At{Verb: runtime.VerbPowerOn}, Fail(boom))
	if err := r.PowerOn(t.Context(), vm); !errors.Is(err, boom) {
		t.Errorf("got error %v, want the scripted one", err)
	}
	sees(t, r, off)
	must(t, r.PowerOn(t.Context(), vm))
	sees(t, r, on)
}

func TestLoseReplyActs(t *testing.T) {
	w, r := world(t)
	w.Script(At{Verb: runtime.VerbPowerOn}, LoseReply())
	if err := r.PowerOn(t.Context(), vm); !errors.Is(err, ErrReplyLost) || !runtime.IsUnavailable(err) {
		t.Errorf("got error %v, want that the reply was lost", err)
	}
	sees(t, r, off, runtime.TaskPowerOn)
	w.Advance(uid)
	sees(t, r, on)

	// The reply that is lost may be a refusal.
	w.Script(At{Verb: runtime.VerbDelete}, LoseReply())
	if err := r.Delete(t.Context(), vm); !runtime.IsUnavailable(err) {
		t.Errorf("got error %v, want Unavailable", err)
	}
	wantHappened(t, w, PoweredOn)
}

func TestActLateIsInFlightAndCanBeCancelled(t *testing.T) {
	w, r := world(t)
	w.Script(At{Verb: runtime.VerbPowerOn}, ActLate(2), ActLate(2))
	must(t, r.PowerOn(t.Context(), vm))
	cancel(t, r)
	sees(t, r, off)
	must(t, r.PowerOn(t.Context(), vm))
	for range 3 {
		sees(t, r, off, runtime.TaskPowerOn)
		w.Advance(uid)
	}
	sees(t, r, on)
	wantHappened(t, w, TaskCancelled, PoweredOn)
}

func TestActLateWhereThereIsNoTask(t *testing.T) {
	w, r := running(t)
	w.Script(At{Verb: runtime.VerbPowerOff}, ActLate(1))
	must(t, r.PowerOff(t.Context(), vm, runtime.Graceful))
	sees(t, r, on)
	wantHappened(t, w)
	w.Advance(uid) // The guest is asked.
	w.Advance(uid) // It goes off.
	sees(t, r, off)
	wantHappened(t, w, ShutdownAsked, PoweredOff)
}

func TestLateCancelDoesNotReachAhead(t *testing.T) {
	w, r := world(t)
	w.SetSteps(runtime.TaskPowerOn, 5)
	w.Script(At{Verb: runtime.VerbCancel}, ActLate(1))
	cancel(t, r)
	must(t, r.PowerOn(t.Context(), vm))
	w.Advance(uid)
	sees(t, r, off, runtime.TaskPowerOn)
}

func TestFailTask(t *testing.T) {
	w, r := world(t)
	w.Script(At{Verb: runtime.VerbPowerOn}, FailTask("no host has enough memory"))
	must(t, r.PowerOn(t.Context(), vm))
	sees(t, r, off, runtime.TaskPowerOn)
	w.Advance(uid)
	sees(t, r, off)
	if got := observe(t, r).LastFailure; got != "no host has enough memory" {
		t.Errorf("got last failure %q", got)
	}
	must(t, r.PowerOn(t.Context(), vm))
	w.Advance(uid)
	sees(t, r, on)
	if got := observe(t, r).LastFailure; got != "" {
		t.Errorf("the last failure is %q after a success", got)
	}
	wantHappened(t, w, TaskFailed, PoweredOn)
}

func TestScripts(t *testing.T) {
	w, r := world(t)
	first, second := errors.New("first"), errors.New("second")
	other := w.Client("b")
	w.Script(At{Client: "b"}, Fail(first))
	w.Script(At{Verb: runtime.VerbCancel, Machine: uid}, Fail(first), Fail(second).Always())
	w.Script(At{Machine: "another"}, Fail(first))
	for i, want := range []error{first, second, second} {
		if err := r.Cancel(t.Context(), vm, ""); !errors.Is(err, want) {
			t.Errorf("call %d: got error %v, want %v", i, err, want)
		}
	}
	if _, err := other.Observe(t.Context(), vm); !errors.Is(err, first) {
		t.Errorf("client b: got error %v, want %v", err, first)
	}
	sees(t, r, off)
	w.ClearScripts()
	must(t, r.Cancel(t.Context(), vm, ""))
}

// stalling makes a call that stalls and gives its end.
func stalling(ctx context.Context, r *Runtime, s *Stall) (ended <-chan error) {
	end := make(chan error, 1)
	go func() { end <- r.PowerOn(ctx, vm) }()
	<-s.Reached()
	return end
}

func TestStall(t *testing.T) {
	for name, tc := range map[string]struct {
		timing              Timing
		during              v1alpha1.PowerState
		released, ended     v1alpha1.PowerState // The power after the call.
		releasedAfterwardOf v1alpha1.PowerState // And after a release of what has ended by its context.
	}{
		"acts before":     {ActBefore, on, on, on, on},
		"acts after":      {ActAfter, off, on, off, off},
		"acts regardless": {ActRegardless, off, on, off, on},
	} {
		t.Run(name+", released", func(t *testing.T) {
			w, r := world(t)
			w.SetSteps(runtime.TaskPowerOn, 0)
			s := NewStall(tc.timing)
			w.Script(At{Verb: runtime.VerbPowerOn}, s.Fault())
			end := stalling(t.Context(), r, s)
			sees(t, r, tc.during) // Others are not held up.
			if call := w.Calls()[0]; call.Returned != 0 || call.Verb != runtime.VerbPowerOn {
				t.Errorf("the stalled call is logged as %+v", call)
			}
			s.Release()
			must(t, <-end)
			sees(t, r, tc.released)
		})
		t.Run(name+", its context ends", func(t *testing.T) {
			w, r := world(t)
			w.SetSteps(runtime.TaskPowerOn, 0)
			s := NewStall(tc.timing)
			w.Script(At{Verb: runtime.VerbPowerOn}, s.Fault())
			ctx, cancel := context.WithCancel(t.Context())
			end := stalling(ctx, r, s)
			cancel()
			if err := <-end; !runtime.IsUnavailable(err) || !errors.Is(err, context.Canceled) {
				t.Errorf("got error %v, want Unavailable because of the context", err)
			}
			sees(t, r, tc.ended)
			s.Release()
			s.Release()
			sees(t, r, tc.releasedAfterwardOf)
		})
	}
}

// A look that stalls after it was taken is out of date when it arrives.
func TestStalledLookIsStale(t *testing.T) {
	w, r := world(t)
	w.SetSteps(runtime.TaskPowerOn, 0)
	s := NewStall(ActBefore)
	w.Script(At{Verb: runtime.VerbObserve}, s.Fault())
	looked := make(chan runtime.Observation)
	go func() {
		seen, _ := r.Observe(t.Context(), vm)
		looked <- seen
	}()
	<-s.Reached()
	must(t, r.PowerOn(t.Context(), vm))
	s.Release()
	if seen := <-looked; seen.Power != off {
		t.Errorf("got %s, want the power before", seen.Power)
	}
}

func TestCancels(t *testing.T) {
	for name, tc := range map[string]struct {
		cancels Cancels
		quiet   int // After how many Advances nothing is in flight.
		power   v1alpha1.PowerState
		effect  EffectKind
	}{
		"honoured":          {Cancels{}, 0, off, TaskCancelled},
		"honoured late":     {Cancels{Steps: 2}, 2, off, TaskCancelled},
		"honoured too late": {Cancels{Steps: 9}, 3, on, PoweredOn},
		"ignored":           {Cancels{Ignored: true}, 3, on, PoweredOn},
	} {
		t.Run(name, func(t *testing.T) {
			w, r := world(t)
			w.SetSteps(runtime.TaskPowerOn, 3)
			w.SetCancels(uid, tc.cancels)
			must(t, r.PowerOn(t.Context(), vm))
			cancel(t, r)
			for range tc.quiet {
				sees(t, r, off, runtime.TaskPowerOn)
				cancel(t, r) // A repeated cancel does not begin anew.
				w.Advance(uid)
			}
			sees(t, r, tc.power)
			wantHappened(t, w, tc.effect)
			if e := w.Effects()[0]; e.Cause != w.Calls()[0].Seq {
				t.Errorf("the effect goes back to call %d, want the power-on %d", e.Cause, w.Calls()[0].Seq)
			}
		})
	}
}

func TestGuests(t *testing.T) {
	for name, tc := range map[string]struct {
		guest Guest
		after []v1alpha1.PowerState // The power right after the call and after each Advance.
	}{
		"at once":          {Guest{}, []v1alpha1.PowerState{off}},
		"in two steps":     {Guest{Steps: 2}, []v1alpha1.PowerState{on, on, off}},
		"ignores it":       {Guest{Ignores: true}, []v1alpha1.PowerState{on, on, on, on}},
		"ignores for long": {Guest{Ignores: true, Steps: 1}, []v1alpha1.PowerState{on, on, on, on}},
	} {
		t.Run(name, func(t *testing.T) {
			w, r := running(t)
			w.SetGuest(uid, tc.guest)
			must(t, r.PowerOff(t.Context(), vm, runtime.Graceful))
			for i, want := range tc.after {
				if i > 0 {
					w.Advance(uid)
				}
				sees(t, r, want)
			}
			if want := tc.guest.Ignores; w.GuestActs(uid) != want {
				t.Errorf("the guest still has a request: want %t", want)
			}
			sees(t, r, off)
			effects := w.Effects()
			if last := effects[len(effects)-1]; last.Kind != PoweredOff || !last.ByGuest || last.Cause != w.Calls()[0].Seq {
				t.Errorf("the guest's power-off is recorded as %+v", last)
			}
		})
	}
}

// A guest that ignored one request and heeds the next goes off because of the next.
func TestGuestChangesItsMind(t *testing.T) {
	w, r := running(t)
	w.SetGuest(uid, Guest{Ignores: true})
	must(t, r.PowerOff(t.Context(), vm, runtime.Graceful))
	w.SetGuest(uid, Guest{Steps: 1})
	must(t, r.PowerOff(t.Context(), vm, runtime.Graceful))
	w.Advance(uid)
	sees(t, r, off)
	effects := w.Effects()
	if last := effects[len(effects)-1]; last.Cause != w.Calls()[1].Seq {
		t.Errorf("the power-off goes back to %d, want the second call", last.Cause)
	}
}

func TestOutsiders(t *testing.T) {
	w, r := running(t)
	w.Pause(uid)
	sees(t, r, v1alpha1.PowerPaused)
	w.GuestPowersOff(uid)
	w.Pause(uid) // which is only for what is on
	sees(t, r, off)
	must(t, r.PowerOn(t.Context(), vm))
	w.Lose(uid)
	w.Advance(uid)
	if seen := observe(t, r); seen.Exists || !seen.Quiet() {
		t.Errorf("got %+v after the machine was lost", seen)
	}
	wantHappened(t, w, Paused, PoweredOff, Deleted)
	for _, e := range w.Effects() {
		if e.Cause != 0 || e.Client != "" {
			t.Errorf("nobody caused %+v", e)
		}
	}
}

func TestHosts(t *testing.T) {
	w, r := running(t)
	w.SetSteps(runtime.TaskRelocate, 0)
	w.SetHost(Host{Name: "node-2", Disconnected: true})
	if err := r.Migrate(t.Context(), vm, runtime.Target{}); !runtime.IsInvalidState(err) {
		t.Errorf("got error %v for a move with no other connected host, want InvalidState", err)
	}
	w.SetHost(Host{Name: "node-3", Labels: map[string]string{"zone": "b"}})
	for _, step := range []struct {
		target runtime.Target
		want   string
	}{
		{runtime.Target{NodeSelector: map[string]v1alpha1.LabelValue{"zone": "b"}}, "node-3"},
		{runtime.Target{Leave: "node-1"}, "node-3"},
		{runtime.Target{NodeSelector: map[string]v1alpha1.LabelValue{"zone": "b"}, Leave: "node-1"}, "node-3"},
		{runtime.Target{}, "node-1"},
	} {
		must(t, r.Migrate(t.Context(), vm, step.target))
		if got := observe(t, r).NodeName; got != step.want {
			t.Errorf("moved to %s by %+v, want %s", got, step.target, step.want)
		}
	}
}

func TestCopiedMarker(t *testing.T) {
	w, r := world(t)
	w.AddInstance(Instance{ID: "copy", Place: "elsewhere", Owner: uid})
	if _, err := r.Observe(t.Context(), vm); !runtime.IsInvalidState(err) {
		t.Errorf("got error %v for two instances with the marker, want InvalidState", err)
	}
	known := vm
	known.InstanceID = "i"
	if seen, err := r.Observe(t.Context(), known); err != nil || seen.InstanceID != "i" {
		t.Errorf("got %+v, error %v; the id tells the instance from its copy", seen, err)
	}
	nobody := vm
	nobody.UID = ""
	if _, err := r.Observe(t.Context(), nobody); !runtime.IsInvalidState(err) {
		t.Errorf("got error %v for a machine without UID, want InvalidState", err)
	}
}

func TestAutoAdvancesWithEveryLook(t *testing.T) {
	w, r := world(t)
	w.SetAuto(true)
	w.SetSteps(runtime.TaskPowerOn, 2)
	must(t, r.PowerOn(t.Context(), vm))
	sees(t, r, off, runtime.TaskPowerOn)
	sees(t, r, on)
}

func TestAdvanceAll(t *testing.T) {
	w, r := world(t)
	second := vm
	second.Name, second.UID = "second", "uid-second"
	if id, err := r.Ensure(t.Context(), second); err != nil || id != "" {
		t.Fatalf("got id %q, error %v while the instance is being made", id, err)
	}
	must(t, r.PowerOn(t.Context(), vm))
	w.AdvanceAll()
	sees(t, r, on)
	if in, ok := w.Instance(second.UID); !ok || in.Adopted {
		t.Errorf("got %+v, %t", in, ok)
	}
}

// cancel cancels what is in flight.
func cancel(t *testing.T, r *Runtime) {
	t.Helper()
	task := "none"
	if seen := observe(t, r); !seen.Quiet() {
		task = seen.InFlight[0].ID
	}
	must(t, r.Cancel(t.Context(), vm, task))
}
