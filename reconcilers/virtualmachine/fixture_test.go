package virtualmachine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/reconcilers/drive"
	"sallyport.dev/sallyport/reconcilers/operation"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/double/fake"
	"sallyport.dev/sallyport/test/support/env/install"
	"sallyport.dev/sallyport/test/support/shipped"
	"sallyport.dev/sallyport/test/support/step"
)

func TestMain(m *testing.M) {
	step.Parallel(4)
	install.Main(m)
}

// events keeps what people are told, as "reason: note".
type eventLog struct {
	mu  sync.Mutex
	all []string
}

func (e *eventLog) Eventf(regarding, _ kruntime.Object, _, reason, _, note string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, ok := regarding.(*v1alpha1.VirtualMachine); ok {
		e.all = append(e.all, reason+": "+fmt.Sprintf(note, args...))
	}
}

func (e *eventLog) has(text string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.all, func(s string) bool { return strings.Contains(s, text) })
}

// fixture is a namespace, a world of machines, and both reconcilers of one process, which are driven by hand.
type fixture struct {
	step.T
	api       client.WithWatch
	namespace string
	world     *fake.World
	events    eventLog
	offset    time.Duration // of the clock
	arbiter   operation.Arbiter
	asked     int

	writes atomic.Int32 // of both reconcilers
	ops    *operation.Reconciler

	onStatus func(client.Object) // called before each write of a status
	vms      *Reconciler

	readOnly bool // the process to come
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	api, namespace := install.Shared(t, "machine-")
	f := &fixture{T: step.T{T: t}, api: api, namespace: namespace, world: fake.New(), arbiter: shipped.Arbiter(t)}
	f.restart()
	t.Cleanup(func() {
		foreign := slices.ContainsFunc(f.world.Effects(), func(e fake.Effect) bool { return e.Client != "us" })
		if f.events.has("PowerChanged") && !foreign {
			t.Errorf("what Sallyport did is told as a foreign change: %q", f.events.all)
		}
	})
	return f
}

// restart replaces the process by a new one.
func (f *fixture) restart() {
	f.writes.Store(0)
	c := interceptor.NewClient(f.api, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			f.writes.Add(1)
			return c.Patch(ctx, o, p, opts...)
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			if f.onStatus != nil {
				f.onStatus(o)
			}
			f.writes.Add(1)
			return c.SubResource(sub).Update(ctx, o, opts...)
		},
	})
	rt := runtime.NewClient(f.world.Client("us"), runtime.Limits{Call: 250 * time.Millisecond}.Keep)
	var halt runtime.Halt
	if f.readOnly {
		halt = runtime.ReadOnly
	}
	rt = rt.Halted(func(context.Context) error { return halt.Err() })
	runtimes := func(context.Context, *v1alpha1.VirtualMachine) (*runtime.Client, error) { return rt, nil }
	now := func() time.Time { return time.Now().Add(f.offset) }
	driver := &drive.Driver{Client: c, Live: f.api, Locks: &claim.Locks{}, Runtimes: runtimes, Now: now, Halt: halt}
	f.ops = &operation.Reconciler{Driver: driver, Arbiter: f.arbiter, Events: &f.events}
	f.vms = &Reconciler{Driver: driver, Events: &f.events}
}

const machine = "web-1"

func (f *fixture) key() types.NamespacedName {
	return types.NamespacedName{Namespace: f.namespace, Name: machine}
}

// machine makes the VirtualMachine, a pod unless it is changed.
func (f *fixture) machine(policy v1alpha1.RunPolicy, change ...func(*v1alpha1.VirtualMachine)) types.UID {
	f.Helper()
	vm := &v1alpha1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: machine},
		Spec:       v1alpha1.VirtualMachineSpec{RunPolicy: policy, Runtime: v1alpha1.VirtualMachineRuntime{Pod: &v1alpha1.PodRuntime{}}},
	}
	for _, c := range change {
		c(vm)
	}
	f.Must(f.api.Create(f.Context(), vm))
	return vm.UID
}

const path = "/dc/vm/web-1"

// adopted has the VirtualMachine name a machine that is there in that state.
func (f *fixture) adopted(power v1alpha1.PowerState) func(*v1alpha1.VirtualMachine) {
	return f.adoptedAs(fake.Instance{Power: power})
}

func (f *fixture) adoptedAs(in fake.Instance) func(*v1alpha1.VirtualMachine) {
	in.Place, in.Incarnation = path, "theirs"
	f.world.AddInstance(in)
	return func(vm *v1alpha1.VirtualMachine) {
		vm.Spec.Runtime = v1alpha1.VirtualMachineRuntime{VSphere: &v1alpha1.VSphereRuntime{
			ServerRef: v1alpha1.VSphereServerReference{Name: "vc"}, InventoryPath: path,
		}}
	}
}

func grace(seconds int32) func(*v1alpha1.VirtualMachine) {
	return func(vm *v1alpha1.VirtualMachine) { vm.Spec.TerminationGracePeriodSeconds = &seconds }
}

// ask makes an operation, as the webhook would stamp it.
func (f *fixture) ask(name, what string) {
	f.Helper()
	f.asked++
	kind, force := strings.CutSuffix(what, " force")
	f.Must(f.api.Create(f.Context(), &v1alpha1.VirtualMachineOperation{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name},
		Spec: v1alpha1.VirtualMachineOperationSpec{
			Type: v1alpha1.OperationType(kind), Force: force, VirtualMachineName: machine, VirtualMachineUID: f.vm().UID,
			RequestedBy: &v1alpha1.Requester{Username: "ann"},
			RequestedAt: time.Now().UTC().Format("2006-01-02T15:04:05") + fmt.Sprintf(".%09dZ", f.asked),
		},
	}))
}

// pass has both reconcilers look, and tells what was wrong.
func (f *fixture) pass() error {
	_, first := f.ops.Reconcile(f.Context(), ctrl.Request{NamespacedName: f.key()})
	_, second := f.vms.Reconcile(f.Context(), ctrl.Request{NamespacedName: f.key()})
	return errors.Join(first, second)
}

// settle has the reconcilers and the world go on in turns until nothing changes any more.
func (f *fixture) settle() {
	f.Helper()
	for range 30 {
		before, effects := f.writes.Load(), len(f.world.Effects())
		if err := f.pass(); err != nil {
			f.Log(err)
		}
		if vm := f.lookup(); vm != nil {
			f.world.Advance(vm.UID)
		}
		if f.writes.Load() == before && len(f.world.Effects()) == effects {
			return
		}
	}
	f.Fatalf("it never comes to rest: %+v %v", f.lookup(), f.world.Effects())
}

// lookup gives the VirtualMachine, nil if it is gone.
func (f *fixture) lookup() *v1alpha1.VirtualMachine {
	f.Helper()
	vm := &v1alpha1.VirtualMachine{}
	err := f.api.Get(f.Context(), f.key(), vm)
	if apierrors.IsNotFound(err) {
		return nil
	}
	f.Must(err)
	return vm
}

func (f *fixture) vm() *v1alpha1.VirtualMachine {
	f.Helper()
	vm := f.lookup()
	if vm == nil {
		f.Fatal("the VirtualMachine is gone")
	}
	return vm
}

// change changes the spec.
func (f *fixture) change(how func(*v1alpha1.VirtualMachineSpec)) {
	f.Helper()
	vm := f.vm()
	how(&vm.Spec)
	f.Must(f.api.Update(f.Context(), vm))
}

// is checks phase, and status and reason of Ready, such as "Running True/AsWanted".
func (f *fixture) is(want string) {
	f.Helper()
	vm := f.vm()
	got := string(vm.Status.Phase)
	if c := meta.FindStatusCondition(vm.Status.Conditions, "Ready"); c != nil {
		got += fmt.Sprintf(" %s/%s", c.Status, c.Reason)
	}
	if got != want {
		f.Errorf("the VirtualMachine is %s and not %s: %+v", got, want, vm.Status)
	}
}

// message gives the message of Ready.
func (f *fixture) message() string {
	f.Helper()
	if c := meta.FindStatusCondition(f.vm().Status.Conditions, "Ready"); c != nil {
		return c.Message
	}
	return ""
}

// intent gives the power intent and who has set it, such as "Stopped by stop-1".
func (f *fixture) intent() string {
	f.Helper()
	i := f.vm().Status.PowerIntent
	if i == nil {
		return ""
	}
	return fmt.Sprintf("%s by %s", i.State, i.By)
}

// state gives an operation's phase and the reason of its condition Completed.
func (f *fixture) state(name string) string {
	f.Helper()
	o := &v1alpha1.VirtualMachineOperation{}
	f.Must(f.api.Get(f.Context(), types.NamespacedName{Namespace: f.namespace, Name: name}, o))
	if c := meta.FindStatusCondition(o.Status.Conditions, "Completed"); c != nil {
		return fmt.Sprintf("%s/%s", o.Status.Phase, c.Reason)
	}
	return string(o.Status.Phase)
}

// completed gives the message of an operation's condition Completed.
func (f *fixture) completed(name string) string {
	f.Helper()
	o := &v1alpha1.VirtualMachineOperation{}
	f.Must(f.api.Get(f.Context(), types.NamespacedName{Namespace: f.namespace, Name: name}, o))
	if c := meta.FindStatusCondition(o.Status.Conditions, "Completed"); c != nil {
		return c.Message
	}
	return ""
}

// effects gives what happened in the world, in short.
func (f *fixture) effects() string {
	var all []string
	for _, e := range f.world.Effects() {
		all = append(all, string(e.Kind))
	}
	return strings.Join(all, " ")
}
