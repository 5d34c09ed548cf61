package operation

import (
	"testing"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/double/fake"
)

func TestStart(t *testing.T) {
	f := newFixture(t, v1alpha1.PowerStopped)
	f.ask("start", "Start")
	f.until("start", "Completed/Succeeded")
	f.idle(v1alpha1.PowerRunning)
	vm, in := f.vm(), f.world.Instances()[0]
	if vm.Status.InstanceID != in.ID || vm.Status.Incarnation != in.Incarnation || vm.Status.NodeName != in.NodeName {
		t.Errorf("the VirtualMachine shows %+v, not the instance %+v", vm.Status, in)
	}
	if vm.Status.PowerIntent == nil || vm.Status.PowerIntent.State != v1alpha1.PowerRunning {
		t.Errorf("the power intent is %+v", vm.Status.PowerIntent)
	}
	if o := f.operation("start"); len(o.Finalizers) > 0 || o.Status.StartTime == nil || o.Status.CompletionTime == nil {
		t.Errorf("the operation is %+v", o)
	}
	t.Log(f.writes.log)
}

// A machine is told no more than it needs: nothing of what it is already, and nothing twice if a reply was lost.
func TestAlreadyAsWanted(t *testing.T) {
	for name, tc := range map[string]struct {
		is    v1alpha1.PowerState
		ask   string
		lost  bool
		verb  runtime.Verb
		calls int
	}{
		"a Start of what is on":        {v1alpha1.PowerRunning, "Start", false, runtime.VerbPowerOn, 0},
		"a Restart of what is off":     {v1alpha1.PowerStopped, "Restart", false, runtime.VerbPowerOff, 0},
		"a Start whose reply was lost": {v1alpha1.PowerStopped, "Start", true, runtime.VerbPowerOn, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, tc.is)
			if tc.lost {
				f.world.Script(fake.At{Verb: tc.verb}, fake.LoseReply())
			}
			f.ask("op", tc.ask)
			f.until("op", "Completed/Succeeded")
			f.idle(v1alpha1.PowerRunning)
			if n := f.count(tc.verb); n != tc.calls {
				t.Errorf("%s was called %d times", tc.verb, n)
			}
		})
	}
}

// stuckStart has a Start hold the machine whose power-on never ends.
func stuckStart(t *testing.T) *fixture {
	t.Helper()
	f := newFixture(t, v1alpha1.PowerStopped)
	f.world.Hold(f.uid, runtime.TaskPowerOn)
	f.ask("start", "Start")
	f.pass()
	f.want("start", "InProgress/InProgress")
	f.pass()
	f.quiet()
	return f
}

// checkStopOverStart checks the end of a Stop over a stuck Start.
func checkStopOverStart(f *fixture) {
	f.Helper()
	f.want("start", "Completed/Superseded", "stop", "Completed/Succeeded")
	f.idle(v1alpha1.PowerStopped)
	start, stop := f.operation("start"), f.operation("stop")
	if by := start.Status.SupersededBy; by == nil || by.UID != stop.UID || by.Name != "stop" {
		f.Errorf("the Start is superseded by %+v", by)
	}
	if s := stop.Status.Supersedes; len(s) != 1 || s[0].Name != "start" {
		f.Errorf("the Stop supersedes %+v", s)
	}
	if len(start.Finalizers)+len(stop.Finalizers) > 0 {
		f.Errorf("finalizers stay: %v %v", start.Finalizers, stop.Finalizers)
	}
	if intent := f.vm().Status.PowerIntent; intent == nil || intent.State != v1alpha1.PowerStopped || intent.By != "stop" {
		f.Errorf("the power intent is %+v", intent)
	}
}

func TestStopOverStuckStart(t *testing.T) {
	f := stuckStart(t)
	f.ask("stop", "Stop")
	f.until("stop", "Completed/Succeeded")
	checkStopOverStart(f)
}
