package virtualmachine

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/double/fake"
)

// What the run policy makes of a machine that is new, and of one that it adopts.
func TestRunPolicies(t *testing.T) {
	const (
		on     = "Running True/AsWanted"
		off    = "Stopped True/AsWanted"
		always = v1alpha1.RunPolicyAlwaysOn
		unless = v1alpha1.RunPolicyAlwaysOnUnlessStoppedManually
		manual = v1alpha1.RunPolicyManual
		never  = v1alpha1.RunPolicyAlwaysOff
	)
	for _, tc := range []struct {
		policy       v1alpha1.RunPolicy
		found        v1alpha1.PowerState // empty: made
		want, intent string
		meantOn      bool
	}{
		{always, "", on, "Running by RunPolicy", false},
		{unless, "", on, "Running by RunPolicy", false},
		{manual, "", off, "", false},
		{never, "", off, "", false},
		{always, "Running", on, "Running by Adoption", false},
		{unless, "Running", on, "Running by Adoption", false},
		{manual, "Running", on, "Running by Adoption", false},
		{never, "Running", off, "Stopped by RunPolicy", false},
		{always, "Stopped", on, "Running by RunPolicy", false},
		{unless, "Stopped", off, "Stopped by Adoption", false},
		{manual, "Stopped", off, "Stopped by Adoption", false},
		{never, "Stopped", off, "Stopped by Adoption", false},
		{always, "Stopped", on, "Running by RunPolicy", true},
		{unless, "Stopped", on, "Running by RunPolicy", true},
		{manual, "Stopped", "Stopped False/PowerStateDiffers", "Running by Adoption", true},
		{never, "Stopped", off, "Running by Adoption", true},
	} {
		t.Run(fmt.Sprint(tc.policy, tc.found, tc.meantOn), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			if tc.found == "" {
				f.machine(tc.policy)
			} else {
				f.machine(tc.policy, f.adoptedAs(fake.Instance{Power: tc.found, MeantOn: tc.meantOn}))
			}
			f.settle()
			f.is(tc.want)
			if got := f.intent(); got != tc.intent {
				t.Errorf("the intent is %q and not %q", got, tc.intent)
			}
			vm, in := f.vm(), f.world.Instances()[0]
			if len(f.world.Instances()) != 1 || vm.Status.InstanceID != in.ID || vm.Status.NodeName != in.NodeName ||
				vm.Status.Incarnation != in.Incarnation || vm.Busy() || vm.Status.ObservedGeneration != vm.Generation {
				t.Errorf("the status is %+v, the instances are %+v", vm.Status, f.world.Instances())
			}
			writes := f.writes.Load()
			if err := f.pass(); err != nil || f.writes.Load() != writes {
				t.Errorf("a steady state is written to %d times, error %v", f.writes.Load()-writes, err)
			}
		})
	}
}

// A Stop asked for yesterday is respected today, whoever else powers the machine on; what the run policy itself did is not.
func TestStoppedManually(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	uid := f.machine(v1alpha1.RunPolicyAlwaysOnUnlessStoppedManually)
	f.settle()
	f.ask("stop", "Stop")
	f.settle()
	f.is("Stopped True/AsWanted")
	f.Must(f.world.Client("an administrator").PowerOn(t.Context(), runtime.MachineOf(f.vm())))
	f.world.Advance(uid)
	f.settle()
	f.is("Running False/PowerStateDiffers")
	if m := f.message(); !strings.Contains(m, "the machine is Running although it was last requested to be Stopped (by stop)") {
		t.Errorf("people read: %s", m)
	}
	f.change(func(s *v1alpha1.VirtualMachineSpec) { s.RunPolicy = v1alpha1.RunPolicyAlwaysOff })
	f.settle()
	f.is("Stopped True/AsWanted")
	f.change(func(s *v1alpha1.VirtualMachineSpec) { s.RunPolicy = v1alpha1.RunPolicyAlwaysOnUnlessStoppedManually })
	f.settle()
	f.is("Running True/AsWanted")
}

func TestGuestThatGoesOffIsStartedAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	uid := f.machine(v1alpha1.RunPolicyAlwaysOn)
	f.settle()
	f.world.GuestPowersOff(uid)
	f.settle()
	f.is("Stopped False/StartPaused") // it went off right after its start
	f.offset += time.Minute
	f.settle()
	f.is("Running True/AsWanted")
	if got := f.effects(); got != "Created PoweredOn PoweredOff PoweredOn" {
		t.Errorf("what happened: %s", got)
	}
}

// A start that fails is tried again, after a pause, and says why it failed.
func TestStartThatFails(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.world.Script(fake.At{Verb: runtime.VerbPowerOn}, fake.FailTask("no host has memory for it"))
	f.machine(v1alpha1.RunPolicyAlwaysOn)
	f.settle()
	f.is("Starting False/StartPaused")
	if m := f.message(); !strings.Contains(m, "no host has memory for it") {
		t.Errorf("people read: %s", m)
	}
	f.offset += time.Minute
	f.settle()
	f.is("Running True/AsWanted")
}

func TestStopWhileTheRunPolicyIsStarting(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	uid := f.machine(v1alpha1.RunPolicyAlwaysOnUnlessStoppedManually)
	f.world.Hold(uid, runtime.TaskPowerOn)
	f.settle()
	f.is("Starting False/OperationInProgress")
	f.ask("stop", "Stop")
	f.settle()
	f.is("Stopped True/AsWanted")
	if got := f.state("stop"); got != "Completed/Succeeded" {
		t.Errorf("the Stop is %s", got)
	}
	if got := f.effects(); got != "Created TaskCancelled" || f.intent() != "Stopped by stop" {
		t.Errorf("what happened: %s; intent %s", got, f.intent())
	}
}

// Whoever cannot be superseded waits for the run policy, and goes on by itself.
func TestOperationWaitsForTheRunPolicy(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	uid := f.machine(v1alpha1.RunPolicyAlwaysOn)
	release := f.world.Hold(uid, runtime.TaskPowerOn)
	f.settle()
	f.ask("restart", "Restart")
	f.settle()
	if got := f.state("restart"); got != "Pending/Waiting" {
		t.Errorf("the Restart is %s", got)
	}
	release()
	f.settle()
	f.is("Running True/AsWanted")
	if got := f.state("restart"); got != "Completed/Succeeded" {
		t.Errorf("the Restart is %s", got)
	}
}

// The run policy changes its mind while it is at it.
func TestRunPolicyChangesWhileStarting(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	uid := f.machine(v1alpha1.RunPolicyAlwaysOn)
	f.world.Hold(uid, runtime.TaskPowerOn)
	f.settle()
	f.change(func(s *v1alpha1.VirtualMachineSpec) { s.RunPolicy = v1alpha1.RunPolicyAlwaysOff })
	f.settle()
	f.is("Stopped True/AsWanted")
	if f.vm().Busy() {
		t.Errorf("the claim is %+v", f.vm().Status)
	}
}

// A power-on that never ends is given up on after the deadline of an operation, withdrawn and tried again.
func TestStartByTheRunPolicyHasADeadline(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	uid := f.machine(v1alpha1.RunPolicyAlwaysOn)
	release := f.world.Hold(uid, runtime.TaskPowerOn)
	f.settle()
	first := f.vm().Status.ActiveOperation.ID
	f.offset += v1alpha1.DefaultActiveDeadline + time.Second
	f.settle()
	if a := f.vm().Status.ActiveOperation; a != nil && a.ID == first {
		t.Fatalf("the first claim still stands: %+v", a)
	}
	release()
	f.offset += time.Minute
	f.settle()
	f.is("Running True/AsWanted")
}

// AlwaysOff gives the guest its time, and takes the power away when that is over: nobody could force it by an operation.
func TestAlwaysOffDoesNotWaitForever(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	uid := f.machine(v1alpha1.RunPolicyAlwaysOn, grace(60))
	f.world.SetGuest(uid, fake.Guest{Ignores: true})
	f.settle()
	f.change(func(s *v1alpha1.VirtualMachineSpec) { s.RunPolicy = v1alpha1.RunPolicyAlwaysOff })
	f.settle()
	f.is("Stopping False/OperationInProgress")
	if m := f.message(); !strings.Contains(m, "waiting for the guest to shut down (until ") {
		t.Errorf("people read: %s", m)
	}
	f.offset += time.Minute
	f.settle()
	f.is("Stopped True/AsWanted")
	if got := f.effects(); got != "Created PoweredOn ShutdownAsked PoweredOff" {
		t.Errorf("what happened: %s", got)
	}
}

// A Start whose machine is not there yet: it holds the claim, and the machine is made all the same.
func TestStartOfAMachineThatIsNotThereYet(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.machine(v1alpha1.RunPolicyManual)
	f.ask("start", "Restart force") // a Start is refused in phase Pending
	_, err := f.ops.Reconcile(t.Context(), reconcileRequest(f))
	f.Must(err)
	if a := f.vm().Status.ActiveOperation; a == nil || a.Name != "start" {
		t.Fatalf("the claim is %+v", f.vm().Status)
	}
	f.settle()
	f.is("Running True/AsWanted")
	if got := f.state("start"); got != "Completed/Succeeded" {
		t.Errorf("the operation is %s", got)
	}
}

func TestInstanceThatIsLost(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	uid := f.machine(v1alpha1.RunPolicyAlwaysOn)
	f.settle()
	f.world.Lose(uid)
	f.settle()
	f.is("Failed False/InstanceLost")
	if len(f.world.Instances()) != 0 || f.vm().Busy() {
		t.Errorf("an instance was made in the place of one that is lost: %+v", f.world.Instances())
	}
	if !f.events.has("InstanceLost: the runtime no longer has instance") {
		t.Errorf("people were told %v", f.events.all)
	}
}

// What is lost is off: a Stop is done at once, and a Start that it would wait for is refused with what helps. A deletion has nothing to
// remove.
func TestOperationsOnAnInstanceThatIsLost(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	uid := f.machine(v1alpha1.RunPolicyManual)
	f.ask("on", "Restart force")
	f.settle()
	f.world.Lose(uid)
	f.settle()
	f.is("Failed False/InstanceLost")
	f.ask("start", "Start")
	f.ask("stop", "Stop")
	f.settle()
	if start, stop := f.state("start"), f.state("stop"); start != "Failed/InstanceLost" || stop != "Completed/Succeeded" {
		t.Errorf("Start is %s, Stop is %s", start, stop)
	}
	f.is("Failed False/InstanceLost")
	f.delete()
	f.settle()
	f.isGone(uid)
}

// An adopted machine that was gone for a while is taken up again as it is.
func TestAdoptedInstanceThatReappears(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	uid := f.machine(v1alpha1.RunPolicyManual, f.adopted(v1alpha1.PowerStopped))
	f.settle()
	was := f.world.Instances()[0]
	f.world.Lose(uid)
	f.settle()
	f.is("Failed False/InstanceLost")
	f.world.AddInstance(was)
	f.settle()
	f.is("Stopped True/AsWanted")
}

// A machine that was adopted and whose marker somebody has taken off is adopted again: there is nothing to lose by it.
func TestMarkerThatIsLost(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.machine(v1alpha1.RunPolicyManual, f.adopted(v1alpha1.PowerRunning))
	f.settle()
	f.Must(f.world.Client("an administrator").Delete(t.Context(), runtime.MachineOf(f.vm())))
	f.settle()
	f.is("Running True/AsWanted")
	if got := f.effects(); got != "Adopted Released Adopted" {
		t.Errorf("what happened: %s", got)
	}
}

// What keeps a machine from being observed or made is a condition, and passes.
func TestRuntimeTrouble(t *testing.T) {
	for name, tc := range map[string]struct {
		verb runtime.Verb
		err  error
		want string
	}{
		"away":           {runtime.VerbObserve, runtime.NewUnavailable(nil, "vc-1 does not answer"), "Pending Unknown/RuntimeUnavailable"},
		"no right":       {runtime.VerbEnsure, runtime.NewPermission(nil, "needs VirtualMachine.Config"), "Pending False/PermissionDenied"},
		"another owner":  {runtime.VerbEnsure, runtime.NewOwnedByAnother(nil, "belongs to another"), "Pending False/OwnedByAnother"},
		"no such path":   {runtime.VerbEnsure, runtime.NewNotFound(nil, "there is no machine at /x"), "Pending False/InstanceNotFound"},
		"no such thing":  {runtime.VerbObserve, runtime.NewNotSupported(nil, "no kubevirt"), "Pending False/RuntimeNotSupported"},
		"cannot be told": {runtime.VerbPowerOn, runtime.NewPermission(nil, "needs PowerOn"), "Starting False/PermissionDenied"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.world.Script(fake.At{Verb: tc.verb}, fake.Fail(tc.err).Always())
			f.machine(v1alpha1.RunPolicyAlwaysOn)
			f.settle()
			f.is(tc.want)
			if f.message() != runtime.Message(tc.err) || !f.events.has(runtime.Message(tc.err)) {
				t.Errorf("people read %q, and were told %v", f.message(), f.events.all)
			}
			f.world.ClearScripts()
			f.settle()
			f.is("Running True/AsWanted")
		})
	}
}

// An operation that has moved the machine is not overruled by what spec.nodeName was before, but by what it is changed to.
func TestPlacementByAnOperation(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.machine(v1alpha1.RunPolicyAlwaysOn, func(vm *v1alpha1.VirtualMachine) { vm.Spec.NodeName = "node-2" })
	f.settle()
	f.ask("away", "Evict")
	f.settle()
	placed := f.vm().Status.Placement
	if placed == nil || placed.NodeName == "node-2" || placed.By != "away" || placed.InPlaceOf != "node-2" {
		t.Fatalf("the placement is %+v", placed)
	}
	f.is("Running True/AsWanted")
	f.change(func(s *v1alpha1.VirtualMachineSpec) { s.TerminationGracePeriodSeconds = new(int32(7)) })
	f.settle()
	f.is("Running True/AsWanted")
	f.change(func(s *v1alpha1.VirtualMachineSpec) { s.NodeName = "" })
	f.settle()
	f.is("Running True/AsWanted")
	if p := f.vm().Status.Placement; p != nil {
		t.Errorf("the placement is still %+v", p)
	}
	f.offset += time.Minute
	f.change(func(s *v1alpha1.VirtualMachineSpec) { s.NodeName = "node-2" })
	f.settle()
	f.is("Running True/AsWanted")
	if node := f.vm().Status.NodeName; node != "node-2" {
		t.Errorf("it is on %s", node)
	}
}

// A write that comes after somebody else's is no error: the reconciler looks again at once.
func TestSomebodyElseIsFaster(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.machine(v1alpha1.RunPolicyManual)
	faster := sync.OnceFunc(func() {
		f.change(func(s *v1alpha1.VirtualMachineSpec) { s.TerminationGracePeriodSeconds = new(int32(7)) })
	})
	f.vms.Client = interceptor.NewClient(f.api, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			faster()
			return c.Patch(ctx, o, p, opts...)
		},
	})
	if _, err := f.vms.Reconcile(t.Context(), reconcileRequest(f)); err != nil || len(f.vm().Finalizers) == 0 {
		t.Errorf("got %v, the finalizers are %v", err, f.vm().Finalizers)
	}
}

// tells is a runtime that tells of changes.
type tells struct{ runtime.Runtime }

func (tells) Watch(context.Context, func(string)) error { return nil }

// A machine at rest is not looked at for hours, unless its runtime tells nothing.
func TestMachineAtRest(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.machine(v1alpha1.RunPolicyManual)
	f.settle()
	for name, tc := range map[string]struct {
		rt              runtime.Runtime
		soonest, latest time.Duration
	}{
		"the runtime tells of changes": {tells{f.world.Client("us")}, 10 * time.Hour, 12 * time.Hour},
		"it does not":                  {f.world.Client("us"), 30 * time.Second, 36 * time.Second},
	} {
		client := runtime.NewClient(tc.rt)
		f.vms.Runtimes = func(context.Context, *v1alpha1.VirtualMachine) (*runtime.Client, error) { return client, nil }
		result, err := f.vms.Reconcile(t.Context(), ctrl.Request{NamespacedName: f.key()})
		if again := result.RequeueAfter; err != nil || again < tc.soonest || again > tc.latest {
			t.Errorf("%s: it is looked at again after %s, error %v", name, again, err)
		}
	}
}

// The writes that a large pool takes for each member: its machine is about to be made, is taken, with the note that the runtime is about
// to be told, and is on. Where everything takes its time, it is shown that the runtime was told, and what it does.
func TestWritesOfAStart(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		atOnce bool
		want   int32
	}{{true, 3}, {false, 5}} {
		f := newFixture(t)
		f.world.SetAuto(tc.atOnce)
		f.machine(v1alpha1.RunPolicyAlwaysOn, func(vm *v1alpha1.VirtualMachine) {
			vm.Finalizers = []string{v1alpha1.VirtualMachineFinalizer} // as policy `defaults` has it
		})
		f.settle()
		f.is("Running True/AsWanted")
		if writes := f.writes.Load(); writes != tc.want {
			t.Errorf("a start that is done at once (%t) took %d writes, want %d", tc.atOnce, writes, tc.want)
		}
		if got := f.effects(); got != "Created PoweredOn" {
			t.Errorf("what happened: %s", got)
		}
	}
}

// What is spared is no reason to start a machine again and again: a start that was done at once counts as an attempt.
func TestGuestThatGoesOffAfterAStartAtOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.world.SetAuto(true)
	uid := f.machine(v1alpha1.RunPolicyAlwaysOn)
	f.settle()
	f.world.GuestPowersOff(uid)
	f.settle()
	f.is("Stopped False/StartPaused")
}

// A change of power by the guest or another client is told once, also by the next leader.
func TestForeignChangeIsTold(t *testing.T) {
	t.Parallel()
	off := func(f *fixture, uid types.UID) { f.world.GuestPowersOff(uid) }
	on := func(f *fixture, _ types.UID) {
		f.Must(f.world.Client("an administrator").PowerOn(t.Context(), runtime.MachineOf(f.vm())))
	}
	for name, tc := range map[string]struct {
		policy   v1alpha1.RunPolicy
		ask      string
		does     func(*fixture, types.UID)
		is, told string
	}{
		"stopped, and started again": {v1alpha1.RunPolicyAlwaysOn, "", off, "Running True/AsWanted", "PowerChanged: the machine was Running and is Stopped without"},
		"stopped, and left so": {v1alpha1.RunPolicyManual, "Start", off, "Stopped False/PowerStateDiffers",
			"PowerStateDiffers: the machine is Stopped although"},
		"started": {v1alpha1.RunPolicyManual, "", on, "Running True/AsWanted", "PowerChanged: the machine was Stopped and is Running without"},
		"stopped and started between two looks": {v1alpha1.RunPolicyAlwaysOn, "",
			func(f *fixture, uid types.UID) { off(f, uid); on(f, uid) }, "Running True/AsWanted", "PowerChanged: the machine was restarted without"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			uid := f.machine(tc.policy)
			f.settle()
			if tc.ask != "" {
				f.ask("op", tc.ask)
				f.settle()
			}
			if f.events.has("PowerChanged") {
				t.Errorf("before the change, people were told %q", f.events.all)
			}
			f.offset += longestPause
			before := len(f.events.all)
			tc.does(f, uid)
			f.world.Advance(uid)
			f.settle()
			f.restart() // the next leader
			f.settle()
			f.is(tc.is)
			told := 0
			for _, text := range f.events.all[before:] {
				if strings.HasPrefix(text, "Power") {
					told++
				}
			}
			if told != 1 || !f.events.has(tc.told) {
				t.Errorf("people were told %q", f.events.all[before:])
			}
		})
	}
}

// What Sallyport does itself is no foreign change, also if the reply was lost.
func TestOwnChangeIsNotForeign(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, verb := range []runtime.Verb{runtime.VerbPowerOn, runtime.VerbPowerOff} {
		f.world.Script(fake.At{Verb: verb}, fake.LoseReply())
	}
	f.machine(v1alpha1.RunPolicyAlwaysOnUnlessStoppedManually)
	f.settle()
	for i, what := range []string{"Restart force", "Stop", "Start", "Stop force"} {
		f.ask(fmt.Sprintf("op-%d", i), what)
		f.settle()
	}
	f.is("Stopped True/AsWanted")
	if f.events.has("PowerChanged") {
		t.Errorf("people were told %q", f.events.all)
	}
}
