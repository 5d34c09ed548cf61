package vsphere_test

import (
	"testing"
	"time"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/disk"
)

// Power-ons by others are power-ons too. The machine was never powered on by us here, so that the time alone tells.
func TestPowerOnByOthers(t *testing.T) {
	w := newWorld(t)
	m := w.adopted("shared")
	if seen := w.observe(m); seen.Incarnation != "" {
		t.Errorf("a machine that was never on has the incarnation %s", seen.Incarnation)
	}
	w.SetPower(w.path(m), v1alpha1.PowerRunning)
	first := w.observe(m)
	w.SetPower(w.path(m), v1alpha1.PowerStopped)
	time.Sleep(time.Second) // What others do within a second cannot be told.
	w.SetPower(w.path(m), v1alpha1.PowerRunning)
	second := w.observe(m)
	if first.Incarnation == "" || second.Incarnation == first.Incarnation {
		t.Errorf("two power-ons are the incarnations %q and %q", first.Incarnation, second.Incarnation)
	}
}

// Somebody powers the machine on between our look and our power-on: whoever has seen it on sees the same incarnation.
func TestPowerOnRace(t *testing.T) {
	for _, request := range []string{"CurrentTime", "PowerOnVM_Task"} {
		w := newWorld(t)
		m := w.adopted("raced")
		other := disk.New(w.connect(w.config()))
		var was runtime.Observation
		w.faults.Before(func() {
			w.SetPower(w.path(m), v1alpha1.PowerRunning)
			seen, err := other.Observe(t.Context(), m)
			w.Must(err)
			was = seen
		}, request)
		w.Must(w.runtime.PowerOn(t.Context(), m))
		if seen := w.observe(m); seen.Incarnation != was.Incarnation || w.State(w.path(m)).PowerOns != 1 {
			t.Errorf("before %s: incarnation %s turned into %s", request, was.Incarnation, seen.Incarnation)
		}
	}
}

// Some versions of vCenter forget the time of the power-on when they move a machine.
func TestForgottenBootTime(t *testing.T) {
	w := newWorld(t)
	m := w.adopted("moved")
	was := w.on(m)
	w.Must(w.runtime.Migrate(t.Context(), m, runtime.Target{}))
	w.observe(m)
	w.ForgetBootTime(w.path(m))
	if seen := w.observe(m); seen.Incarnation != was.Incarnation {
		t.Errorf("incarnation %s turned into %s", was.Incarnation, seen.Incarnation)
	}
	w.Must(w.runtime.PowerOff(t.Context(), m, runtime.Forced))
	w.observe(m)
	if seen := w.on(m); seen.Incarnation == was.Incarnation {
		t.Errorf("incarnation %s came back", was.Incarnation)
	}
}
