package operation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/reconcilers/drive"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/double/fake"
	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/test/support/env/install"
	"sallyport.dev/sallyport/test/support/step"
)

func TestMain(m *testing.M) { install.Main(m) }

// table is who yields to whom, as the policy has it: holder first.
var table = map[string][]string{
	"Start": {"Stop", "Stop force"}, "Stop": {"Stop force", "Restart force"}, "Restart": {"Stop force", "Restart force"},
	"Migrate": {"Stop", "Stop force", "Restart", "Restart force"}, "Evict": {"Stop", "Stop force", "Restart", "Restart force"},
}

// policies is an Arbiter that knows the table.
type policies struct{ err error }

func key(t v1alpha1.OperationType, force bool) string {
	if force {
		return string(t) + " force"
	}
	return string(t)
}

func (p *policies) Arbitrate(
	_ context.Context, o *v1alpha1.VirtualMachineOperation, vm *v1alpha1.VirtualMachine, unfinished []v1alpha1.VirtualMachineOperation,
) (Admission, error) {
	if p.err != nil {
		return Admission{}, p.err
	}
	var admission Admission
	asked := key(o.Spec.Type, o.Spec.Force)
	for _, other := range unfinished {
		if !slices.Contains(table[key(other.Spec.Type, other.Spec.Force)], asked) {
			return Admission{Denied: true, Reason: "OperationInProgress", Message: other.Name + " does not yield"}, nil
		}
		admission.Supersedes = append(admission.Supersedes, other.Name)
	}
	if a := vm.Status.ActiveOperation; a != nil && a.Origin != v1alpha1.OriginOperation {
		if !slices.Contains(table[string(a.Type)], asked) {
			return Admission{Denied: true, Reason: "OperationInProgress", Message: "held"}, nil
		}
		admission.SupersedesOrigins = []string{string(a.Origin)}
	}
	return admission, nil
}

// writes counts the writes of a client.
type writes struct {
	count  int
	before func(client.Object) // a write of a status
	log    []string
}

func (w *writes) do(what string, write func() error) error {
	w.count++
	w.log = append(w.log, what)
	return write()
}

func (w *writes) client(inner client.WithWatch) client.Client {
	return interceptor.NewClient(inner, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return w.do("patch "+o.GetName(), func() error { return c.Patch(ctx, o, p, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return w.do("update "+o.GetName(), func() error { return c.Update(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return w.do("delete "+o.GetName(), func() error { return c.Delete(ctx, o, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			if w.before != nil {
				w.before(o)
			}
			return w.do("update status of "+o.GetName(), func() error { return c.SubResource(sub).Update(ctx, o, opts...) })
		},
	})
}

// eventLog keeps what people are told, as "Kind name Reason: note".
type eventLog struct {
	mu  sync.Mutex
	all []string
}

func (e *eventLog) Eventf(regarding, _ kruntime.Object, _, reason, _, note string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	of := regarding.(client.Object)
	kind := "VirtualMachineOperation"
	if _, is := regarding.(*v1alpha1.VirtualMachine); is {
		kind = "VirtualMachine"
	}
	e.all = append(e.all, fmt.Sprintf("%s %s %s: %s", kind, of.GetName(), reason, fmt.Sprintf(note, args...)))
}

// fixture is one machine in a namespace of its own, its world, and the reconciler.
type fixture struct {
	step.T
	api       client.WithWatch
	namespace string
	world     *fake.World
	policies  *policies
	offset    time.Duration // of the clock
	asked     int           // how many operations were asked for
	locks     *claim.Locks
	events    eventLog
	r         *Reconciler
	writes    *writes
	uid       types.UID
}

const machine = "web-1"

func newFixture(t *testing.T, power v1alpha1.PowerState) *fixture {
	t.Helper()
	api, namespace := install.Shared(t, "operation-")
	f := &fixture{T: step.T{T: t}, api: api, namespace: namespace, world: fake.New(), policies: &policies{}, locks: &claim.Locks{}}
	f.machine(power)
	f.start()
	return f
}

// machine makes the VirtualMachine and its instance.
func (f *fixture) machine(power v1alpha1.PowerState) {
	f.Helper()
	vm := &v1alpha1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: machine, Finalizers: []string{v1alpha1.VirtualMachineFinalizer}},
		Spec:       v1alpha1.VirtualMachineSpec{Runtime: v1alpha1.VirtualMachineRuntime{Pod: &v1alpha1.PodRuntime{}}},
	}
	f.Must(f.api.Create(f.Context(), vm))
	f.uid = vm.UID
	incarnation := ""
	if power == v1alpha1.PowerRunning {
		incarnation = "first"
	}
	f.world.AddInstance(fake.Instance{Owner: vm.UID, Power: power, Incarnation: incarnation, NodeName: "node-1"})
}

// start makes the reconciler.
func (f *fixture) start() {
	f.writes = &writes{}
	client := f.writes.client(f.api)
	rt := runtime.NewClient(f.world.Client("us"), runtime.Limits{Call: 250 * time.Millisecond}.Keep)
	f.r = &Reconciler{Arbiter: f.policies, Events: &f.events, Driver: &drive.Driver{
		Client: client, Live: f.api, Locks: f.locks,
		Runtimes: func(context.Context, *v1alpha1.VirtualMachine) (*runtime.Client, error) { return rt, nil },
		Now:      func() time.Time { return time.Now().Add(f.offset) },
	}}
}

// ask makes an operation, as the webhook would stamp it.
func (f *fixture) ask(name, what string, change ...func(*v1alpha1.VirtualMachineOperation)) {
	f.Helper()
	f.asked++
	kind, force := strings.CutSuffix(what, " force")
	o := &v1alpha1.VirtualMachineOperation{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name},
		Spec: v1alpha1.VirtualMachineOperationSpec{
			Type: v1alpha1.OperationType(kind), Force: force, VirtualMachineName: machine, VirtualMachineUID: f.uid,
			RequestedAt: time.Now().UTC().Format("2006-01-02T15:04:05") + fmt.Sprintf(".%09dZ", f.asked),
		},
	}
	for _, c := range change {
		c(o)
	}
	f.Must(f.api.Create(f.Context(), o))
}

func (f *fixture) reconcile() (ctrl.Result, error) {
	return f.r.Reconcile(f.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: f.namespace, Name: machine}})
}

// pass reconciles, and fails if there is trouble.
func (f *fixture) pass() ctrl.Result {
	f.Helper()
	result, err := f.reconcile()
	f.Must(err)
	return result
}

func (f *fixture) vm() *v1alpha1.VirtualMachine {
	f.Helper()
	vm := &v1alpha1.VirtualMachine{}
	f.Must(f.api.Get(f.Context(), types.NamespacedName{Namespace: f.namespace, Name: machine}, vm))
	return vm
}

// operation gives an operation, nil if it is gone.
func (f *fixture) operation(name string) *v1alpha1.VirtualMachineOperation {
	f.Helper()
	o := &v1alpha1.VirtualMachineOperation{}
	err := f.api.Get(f.Context(), types.NamespacedName{Namespace: f.namespace, Name: name}, o)
	if apierrors.IsNotFound(err) {
		return nil
	}
	f.Must(err)
	return o
}

func (f *fixture) delete(o client.Object) {
	f.Helper()
	f.Must(client.IgnoreNotFound(f.api.Delete(f.Context(), o)))
}

// state gives an operation's phase and the reason of its condition Completed, such as Completed/Succeeded.
func (f *fixture) state(name string) string {
	f.Helper()
	o := f.operation(name)
	if o == nil {
		return "gone"
	}
	reason := ""
	if c := meta.FindStatusCondition(o.Status.Conditions, "Completed"); c != nil {
		reason = c.Reason
		if (c.Status == metav1.ConditionTrue) != (o.Status.Phase == v1alpha1.OperationCompleted) { // also if it was superseded
			f.Errorf("operation %s is %s with Completed=%s", name, o.Status.Phase, c.Status)
		}
	}
	return string(o.Status.Phase) + "/" + reason
}

// until reconciles and takes the world a step on, in turns, until the operation is in that state.
func (f *fixture) until(name, state string) {
	f.Helper()
	for range 20 {
		if f.state(name) == state {
			return
		}
		_, err := f.reconcile()
		if err != nil {
			f.Log(err)
		}
		if f.state(name) == state {
			return
		}
		f.world.Advance(f.uid)
	}
	f.Fatalf("operation %s is %s and not %s: %+v; claim %+v", name, f.state(name), state, f.operation(name), f.vm().Status)
}

// want checks the states of operations, in pairs of name and state.
func (f *fixture) want(pairs ...string) {
	f.Helper()
	for pair := range slices.Chunk(pairs, 2) {
		if got := f.state(pair[0]); got != pair[1] {
			f.Errorf("operation %s is %s and not %s", pair[0], got, pair[1])
		}
	}
}

// idle checks that nobody holds the machine, that it is in that state, and that nothing is written any more.
func (f *fixture) idle(power v1alpha1.PowerState) {
	f.Helper()
	f.pass()
	vm := f.vm()
	if vm.Status.ActiveOperation != nil || len(vm.Status.Undoing) > 0 {
		f.Errorf("the claim is not empty: %+v", vm.Status)
	}
	if in, _ := f.world.Instance(f.uid); in.Power != power {
		f.Errorf("the machine is %s and not %s", in.Power, power)
	}
	phase := map[v1alpha1.PowerState]v1alpha1.VirtualMachinePhase{"Running": "Running", "Stopped": "Stopped"}[power]
	if vm.DeletionTimestamp.IsZero() && vm.Status.Phase != phase {
		f.Errorf("the phase is %s and not %s", vm.Status.Phase, phase)
	}
	f.quiet()
}

// quiet checks that a pass writes nothing.
func (f *fixture) quiet() {
	f.Helper()
	before := f.writes.count
	f.pass()
	if f.writes.count != before {
		f.Errorf("a steady state is written to: %v", f.writes.log[before:])
	}
}

// count counts the calls of a verb.
func (f *fixture) count(verb runtime.Verb) int {
	n := 0
	for _, c := range f.world.Calls() {
		if c.Verb == verb {
			n++
		}
	}
	return n
}

// eventually waits until an operation is in that state.
func (f *fixture) eventually(name, state string) {
	f.Helper()
	err := step.Await(f.Context(), func(context.Context) (bool, error) {
		return f.state(name) == state, nil
	})
	if err != nil {
		f.Fatalf("operation %s is %s and not %s: %v", name, f.state(name), state, err)
	}
}

func config(t *testing.T) *rest.Config {
	t.Helper()
	return env.Shared(t).Config
}

func inNamespace(namespace string) cache.Options {
	return cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}}
}
