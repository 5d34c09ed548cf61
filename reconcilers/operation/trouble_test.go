package operation

import (
	"context"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/double/fake"
)

func nowMicro() metav1.MicroTime { return metav1.NewMicroTime(time.Now()) }

func TestOperationDeletedWhileHolder(t *testing.T) {
	t.Parallel()
	f := stuckStart(t)
	f.delete(f.operation("start"))
	f.pass()
	f.want("start", "gone")
	f.idle(v1alpha1.PowerStopped)
	if intent := f.vm().Status.PowerIntent; intent != nil {
		t.Errorf("the power intent is %+v", intent)
	}
	f.world.Advance(f.uid)
	f.idle(v1alpha1.PowerStopped)
}

// The runtime is away: the operation ends at its deadline all the same, and its finalizer goes; the machine stays busy
// until the runtime shows that nothing is in flight.
func TestDeadlineWhileRuntimeIsAway(t *testing.T) {
	t.Parallel()
	f := stuckStart(t)
	away := fake.Fail(runtime.NewUnavailable(nil, "the agent does not answer"))
	f.world.Script(fake.At{}, away.Always())
	if _, err := f.reconcile(); err == nil {
		t.Error("no backoff while the runtime is away")
	}
	f.want("start", "InProgress/RuntimeUnavailable")
	before := f.writes.count
	_, _ = f.reconcile()
	if f.writes.count != before {
		t.Errorf("the same trouble is written again: %v", f.writes.log[before:])
	}
	f.offset = 11 * time.Minute
	if _, err := f.reconcile(); err == nil {
		t.Error("no backoff while the runtime is away")
	}
	f.want("start", "Failed/DeadlineExceeded")
	if o, vm := f.operation("start"), f.vm(); len(o.Finalizers) > 0 || vm.Status.ActiveOperation != nil || len(vm.Status.Undoing) != 1 {
		t.Errorf("finalizers %v, claim %+v", o.Finalizers, vm.Status)
	}
	f.world.ClearScripts()
	f.idle(v1alpha1.PowerStopped)
	f.want("start", "Failed/DeadlineExceeded")
}

func TestOperationInUndoingEndsAtItsDeadline(t *testing.T) {
	t.Parallel()
	f := stuckStart(t)
	f.world.SetCancels(f.uid, fake.Cancels{Ignored: true})
	f.ask("stop", "Stop", func(o *v1alpha1.VirtualMachineOperation) { o.Spec.ActiveDeadlineSeconds = new(int32(86400)) })
	f.pass()
	f.want("start", "InProgress/InProgress", "stop", "InProgress/InProgress")
	f.offset = 11 * time.Minute
	f.pass()
	f.want("start", "Failed/DeadlineExceeded", "stop", "InProgress/InProgress")
	if vm := f.vm(); len(vm.Status.Undoing) != 1 {
		t.Errorf("the entry went before the runtime is quiet: %+v", vm.Status)
	}
	f.world.SetCancels(f.uid, fake.Cancels{})
	f.until("stop", "Completed/Succeeded")
	f.idle(v1alpha1.PowerStopped)
}

// forget removes the VirtualMachine, finalizer and all.
func (f *fixture) forget() {
	f.Helper()
	vm := f.vm()
	vm.Finalizers = nil
	f.Must(f.api.Update(f.Context(), vm))
	f.delete(vm)
}

func TestMachineGone(t *testing.T) {
	t.Parallel()
	f := stuckStart(t)
	f.forget()
	f.pass()
	f.want("start", "Failed/VirtualMachineDeleted")
	if o := f.operation("start"); len(o.Finalizers) > 0 {
		t.Errorf("finalizers stay: %v", o.Finalizers)
	}
	f.quiet()
}

func TestMachineRecreatedUnderQueuedOperation(t *testing.T) {
	t.Parallel()
	f := newFixture(t, v1alpha1.PowerStopped)
	f.ask("start", "Start")
	f.ask("unstamped", "Start", func(o *v1alpha1.VirtualMachineOperation) { o.Spec.VirtualMachineUID = "" })
	f.forget()
	f.machine(v1alpha1.PowerStopped)
	f.pass()
	f.want("start", "Failed/VirtualMachineReplaced", "unstamped", "Failed/VirtualMachineReplaced")
	f.quiet()
	if n := f.count(runtime.VerbPowerOn); n != 0 {
		t.Error("the new machine was powered on")
	}
}

func TestRuntimeErrsHangsAndRecovers(t *testing.T) {
	t.Parallel()
	f := newFixture(t, v1alpha1.PowerStopped)
	at := fake.At{Verb: runtime.VerbPowerOn}
	f.world.Script(at, fake.Fail(runtime.NewPermission(nil, "the right VirtualMachine.Interact.PowerOn is missing")))
	f.world.Script(at, fake.Fail(runtime.NewInvalidState(nil, "a snapshot is taken")))
	f.world.Script(at, fake.NewStall(fake.ActAfter).Fault()) // ends with the timeout of the call
	f.ask("start", "Start")
	for _, want := range []string{"PermissionDenied", "AttemptFailed", "RuntimeUnavailable"} {
		if _, err := f.reconcile(); err == nil {
			t.Error("no backoff")
		}
		f.want("start", "InProgress/"+want)
	}
	f.until("start", "Completed/Succeeded")
	f.idle(v1alpha1.PowerRunning)
}

func TestTaskFailsAndIsTriedAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t, v1alpha1.PowerStopped)
	f.world.Script(fake.At{Verb: runtime.VerbPowerOn}, fake.FailTask("no memory"), fake.FailTask("no memory"))
	f.ask("start", "Start")
	f.pass()
	f.world.Advance(f.uid)
	f.pass()
	f.want("start", "InProgress/AttemptFailed")
	f.quiet()
	f.until("start", "Completed/Succeeded")
	f.idle(v1alpha1.PowerRunning)
}

func TestGuestWithoutToolsWaitsForItsDeadline(t *testing.T) {
	t.Parallel()
	f := newFixture(t, v1alpha1.PowerRunning)
	f.world.SetGuest(f.uid, fake.Guest{NoTools: true})
	f.ask("stop", "Stop")
	for range 3 {
		_, _ = f.reconcile()
	}
	f.want("stop", "InProgress/AttemptFailed")
	f.offset = time.Hour
	f.pass()
	f.want("stop", "Failed/DeadlineExceeded")
	f.idle(v1alpha1.PowerRunning)
}

func TestFinishedOperationsAreDeletedInTime(t *testing.T) {
	t.Parallel()
	f := newFixture(t, v1alpha1.PowerStopped)
	f.ask("start", "Start", func(o *v1alpha1.VirtualMachineOperation) { o.Spec.TTLSecondsAfterFinished = new(int32(60)) })
	f.until("start", "Completed/Succeeded")
	if again := f.pass().RequeueAfter; again <= 0 || again > time.Minute+time.Second {
		t.Errorf("looked at again after %s", again)
	}
	f.offset = 59 * time.Second
	f.want("start", "Completed/Succeeded")
	f.offset = 62 * time.Second
	f.pass()
	f.want("start", "gone")
	f.quiet()
}

// Another process takes the machine away after the look and before the call: the live look just before the call sees it.
func TestMachineLostBeforeTheCall(t *testing.T) {
	t.Parallel()
	f := newFixture(t, v1alpha1.PowerStopped)
	f.writes.before = func(written client.Object) {
		o, is := written.(*v1alpha1.VirtualMachineOperation)
		if !is || !meta.IsStatusConditionPresentAndEqual(o.Status.Conditions, "SignalSent", metav1.ConditionUnknown) {
			return
		}
		vm := f.vm()
		by := claim.Holder{ID: "x", Origin: v1alpha1.OriginDeletion, Type: v1alpha1.OperationDelete}
		f.Must(claim.Take(&vm.Status, by, []claim.Holder{claim.OfOperation(o)}, nowMicro()))
		f.Must(f.api.Status().Update(t.Context(), vm))
	}
	f.ask("start", "Start")
	f.until("start", "Completed/Superseded")
	f.quiet()
	if n := f.count(runtime.VerbPowerOn); n != 0 {
		t.Error("a machine was powered on that another held")
	}
	if o := f.operation("start"); o.Status.SupersededBy == nil || o.Status.SupersededBy.UID != "x" {
		t.Errorf("it is superseded by %+v", o.Status.SupersededBy)
	}
}

// With the manager: watches and the queue bring the operations to their machine.
func TestWithManager(t *testing.T) {
	t.Parallel()
	f := newFixture(t, v1alpha1.PowerStopped)
	mgr, err := ctrl.NewManager(config(t), ctrl.Options{
		Scheme: f.api.Scheme(), Metrics: server.Options{BindAddress: "0"}, Cache: inNamespace(f.namespace),
	})
	f.Must(err)
	f.Must(mgr.GetFieldIndexer().IndexField(t.Context(), &v1alpha1.VirtualDisk{}, v1alpha1.FieldDiskHolder, func(client.Object) []string { return nil }))
	f.world.SetAuto(true)
	f.r.Client, f.r.Live, f.r.Poll = mgr.GetClient(), mgr.GetAPIReader(), 20*time.Millisecond
	f.Must(f.r.SetupWithManager(mgr))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- mgr.Start(ctx) }()
	f.ask("start", "Start")
	f.eventually("start", "Completed/Succeeded")
	f.ask("stop", "Stop")
	f.eventually("stop", "Completed/Succeeded")
	f.delete(f.operation("stop"))
	f.eventually("stop", "gone")
	cancel()
	f.Must(<-done)
}

// Two processes that both believe to lead get in each other's way and do no harm: each write carries what it rests on.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	f := newFixture(t, v1alpha1.PowerRunning)
	f.world.SetAuto(true)
	other := *f.r
	other.Client, other.Locks = f.api, &claim.Locks{}
	f.ask("move", "Migrate")
	f.ask("stop", "Stop")
	f.ask("forced", "Restart force")
	f.ask("late", "Start")
	var both sync.WaitGroup
	for _, r := range []*Reconciler{f.r, &other} {
		both.Go(func() {
			for range 12 {
				_, _ = r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: f.namespace, Name: machine}})
			}
		})
	}
	both.Wait()
	f.want("move", "Completed/Superseded", "stop", "Completed/Superseded", "forced", "Completed/Succeeded")
	if late := f.state("late"); late != "Failed/OperationInProgress" && late != "Completed/Succeeded" {
		t.Errorf("late is %s", late)
	}
	f.idle(v1alpha1.PowerRunning)
}

// The machine is off, and somebody else is powering it on: a Stop has not got there yet.
func TestStopWaitsForWhatOthersBegan(t *testing.T) {
	t.Parallel()
	f := newFixture(t, v1alpha1.PowerStopped)
	release := f.world.Hold(f.uid, runtime.TaskPowerOn)
	f.Must(f.world.Client("administrator").PowerOn(t.Context(), runtime.MachineOf(f.vm())))
	f.ask("stop", "Stop")
	f.pass()
	f.want("stop", "InProgress/InProgress")
	f.quiet()
	release()
	f.world.Advance(f.uid)
	f.until("stop", "Completed/Succeeded")
	f.idle(v1alpha1.PowerStopped)
}
