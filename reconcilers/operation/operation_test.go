package operation

import (
	"testing"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
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

func TestAlreadyAsWanted(t *testing.T) {
	f := newFixture(t, v1alpha1.PowerRunning)
	f.ask("start", "Start")
	f.until("start", "Completed/Succeeded")
	f.idle(v1alpha1.PowerRunning)
	if n := f.count(runtime.VerbPowerOn); n != 0 {
		t.Errorf("a machine that is on was told to power on %d times", n)
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
