//go:build kubevirt

package kubevirt

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/reconcilers/drive"
	"sallyport.dev/sallyport/reconcilers/operation"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/kubevirt"
	"sallyport.dev/sallyport/reconcilers/virtualmachine"
	"sallyport.dev/sallyport/test/support/mortal"
	"sallyport.dev/sallyport/test/support/step"
)

// life is a part of the life of a machine: what it is before, and what is requested.
type life struct {
	name   string
	adopts bool
	// begins is the phase of the machine before, empty if there is no VirtualMachine yet.
	begins  v1alpha1.VirtualMachinePhase
	ignores bool // the guest ignores that it is asked to shut down
	begin   func(*trial)
}

var lives = []life{
	{name: "creation", begin: (*trial).declare},
	{name: "adoption", adopts: true, begin: (*trial).declare},
	{name: "Start", begins: v1alpha1.VirtualMachineStopped, begin: ask(v1alpha1.OperationStart, false)},
	{name: "Stop", begins: v1alpha1.VirtualMachineRunning, begin: ask(v1alpha1.OperationStop, false)},
	{name: "Stop force", begins: v1alpha1.VirtualMachineRunning, ignores: true, begin: ask(v1alpha1.OperationStop, true)},
	{name: "Restart", begins: v1alpha1.VirtualMachineRunning, begin: ask(v1alpha1.OperationRestart, false)},
	{name: "Restart force", begins: v1alpha1.VirtualMachineRunning, ignores: true, begin: ask(v1alpha1.OperationRestart, true)},
	{name: "Migrate", begins: v1alpha1.VirtualMachineRunning, begin: ask(v1alpha1.OperationMigrate, false)},
	{name: "Evict", begins: v1alpha1.VirtualMachineRunning, begin: ask(v1alpha1.OperationEvict, false)},
	{name: "deletion", begins: v1alpha1.VirtualMachineStopped, begin: (*trial).remove},
	{name: "release", adopts: true, begins: v1alpha1.VirtualMachineRunning, begin: (*trial).remove},
}

// sweepRow is a life, and what becomes of it.
type sweepRow struct {
	site     *site
	life     life
	judge    operation.Arbiter
	requests int
	end      []string

	mu               sync.Mutex
	tried, converged int
}

func (r *sweepRow) count(converged bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tried++; converged {
		r.converged++
	}
}

// manager is the reconcilers of a process, which are driven by hand.
type manager struct {
	ops *operation.Reconciler
	vms *virtualmachine.Reconciler
}

func (r *sweepRow) manager(t *trial, process *mortal.Process) *manager {
	config := rest.CopyConfig(t.Plane.Config)
	config.QPS = -1
	api, err := client.NewWithWatch(config, client.Options{Scheme: t.Scheme})
	t.Must(err)
	c := process.Client(api)
	limited := runtime.NewClient(&kubevirt.Runtime{Client: c, Live: c}, runtime.Limits{Call: step.Patience}.Keep)
	driver := &drive.Driver{
		Client: c, Live: c, Locks: &claim.Locks{}, Now: time.Now,
		Runtimes: func(context.Context, *v1alpha1.VirtualMachine) (*runtime.Client, error) { return limited, nil },
	}
	return &manager{
		ops: &operation.Reconciler{Driver: driver, Arbiter: r.judge, Events: &events.FakeRecorder{}},
		vms: &virtualmachine.Reconciler{Driver: driver, Events: &events.FakeRecorder{}},
	}
}

// pass has the reconcilers look at the machine.
func (m *manager) pass(ctx context.Context, key types.NamespacedName) error {
	_, first := m.ops.Reconcile(ctx, ctrl.Request{NamespacedName: key})
	_, second := m.vms.Reconcile(ctx, ctrl.Request{NamespacedName: key})
	return errors.Join(first, second)
}

// outcome is what a life comes to.
type outcome struct {
	requests int
	end, log []string
}

// trial is one life of one machine.
type trial struct {
	*site
	row *sweepRow
	key types.NamespacedName
	uid types.UID
}

// play plays the life, with a fault at a request if there is one.
func (r *sweepRow) play(on *testing.T, f *befalling, at int) (out outcome) {
	on.Helper()
	t := &trial{site: r.site.in(on), row: r}
	t.key = types.NamespacedName{Namespace: t.namespace(), Name: "web"}
	if r.life.adopts {
		t.foreign()
	}
	if r.life.begins != "" {
		t.declare()
		t.drive(&mortal.Process{}, &outcome{})
		if r.life.begins == v1alpha1.VirtualMachineStopped {
			t.ask(v1alpha1.OperationStop, false)
			t.drive(&mortal.Process{}, &outcome{})
			t.forget()
		}
	}
	t.Agent.Ignore(t.key, r.life.ignores)
	r.life.begin(t)
	process, kept := &mortal.Process{}, func() error { return nil }
	if f != nil {
		f.befall(process, at, func(request func() error) { kept = request })
	}
	t.drive(process, &out)
	if err := kept(); err != nil {
		out.log = append(out.log, "the late request: "+err.Error())
	}
	t.drive(&mortal.Process{}, &outcome{})
	out.end = t.end()
	t.clear()
	return out
}

// clear deletes the machine, so that KubeVirt and the agent have no more of them to look after than are tried at a time.
func (t *trial) clear() {
	t.Agent.Ignore(t.key, false)
	t.Must(t.DeleteAllOf(t.Context(), &virtv1.VirtualMachine{}, client.InNamespace(t.key.Namespace)))
}

// foreign creates the machine to adopt, which is on.
func (t *trial) foreign() {
	theirs := foreignVM(t.key.Namespace, t.key.Name)
	theirs.Spec.RunStrategy = new(virtv1.RunStrategyAlways)
	t.Must(t.Create(t.Context(), theirs))
	t.Eventually("the machine to adopt is on", func() bool { return t.instance(t.key).Status.Phase == virtv1.Running })
}

// declare creates the VirtualMachine, as the webhook would default it.
func (t *trial) declare() {
	vm := &v1alpha1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.key.Namespace, Name: t.key.Name, Finalizers: []string{v1alpha1.VirtualMachineFinalizer}},
		Spec:       *machine(t.key.Namespace, t.key.Name, !t.row.life.adopts).Spec,
	}
	vm.Spec.RunPolicy = v1alpha1.RunPolicyAlwaysOnUnlessStoppedManually
	t.Must(t.Create(t.Context(), vm))
	t.uid = vm.UID
}

func (t *trial) remove() {
	vm, _ := t.look()
	t.Must(t.Delete(t.Context(), vm))
}

func ask(kind v1alpha1.OperationType, force bool) func(*trial) {
	return func(t *trial) { t.ask(kind, force) }
}

// ask creates an operation, as the webhook would stamp it.
func (t *trial) ask(kind v1alpha1.OperationType, force bool) {
	o := &v1alpha1.VirtualMachineOperation{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.key.Namespace, GenerateName: "op-"},
		Spec: v1alpha1.VirtualMachineOperationSpec{
			Type: kind, Force: force, VirtualMachineName: t.key.Name, VirtualMachineUID: t.uid,
			RequestedBy: &v1alpha1.Requester{Username: "ann"}, RequestedAt: time.Now().UTC().Format("2006-01-02T15:04:05.000000000Z"),
		},
	}
	if kind == v1alpha1.OperationMigrate {
		other := map[string]string{"node-1": "node-2", "node-2": "node-1"}[t.instance(t.key).Status.NodeName]
		o.Spec.Migrate = &v1alpha1.MigrateTarget{NodeName: other}
	}
	t.Must(t.Create(t.Context(), o))
}

// forget deletes the operations.
func (t *trial) forget() {
	t.Must(t.DeleteAllOf(t.Context(), &v1alpha1.VirtualMachineOperation{}, client.InNamespace(t.key.Namespace)))
}

// look reads the VirtualMachine, nil if it is gone, and its operations.
func (t *trial) look() (*v1alpha1.VirtualMachine, []v1alpha1.VirtualMachineOperation) {
	t.Helper()
	vm, list := &v1alpha1.VirtualMachine{}, v1alpha1.VirtualMachineOperationList{}
	err := t.Get(t.Context(), t.key, vm)
	if t.Must(client.IgnoreNotFound(err)); apierrors.IsNotFound(err) {
		vm = nil
	}
	t.Must(t.List(t.Context(), &list, client.InNamespace(t.key.Namespace)))
	return vm, list.Items
}

// over reports whether nothing is left to do for the reconcilers.
func (t *trial) over() bool {
	vm, operations := t.look()
	for i := range operations {
		if o := &operations[i]; !o.Finished() || len(o.Finalizers) > 0 {
			return false
		}
	}
	return vm == nil || vm.DeletionTimestamp.IsZero() && vm.Status.InstanceID != "" && !vm.Busy() && vm.Status.Phase != v1alpha1.VirtualMachinePending
}

// drive has the reconcilers and KubeVirt go on in turns until a look changes nothing. A manager that was killed is followed by another.
func (t *trial) drive(process *mortal.Process, out *outcome) {
	t.Helper()
	m := t.row.manager(t, process)
	for range 60 {
		before := t.versions()
		err := m.pass(t.Context(), t.key)
		out.requests = process.Calls()
		if err != nil {
			out.log = append(out.log, err.Error())
		}
		if errors.Is(err, mortal.ErrDied) {
			process = &mortal.Process{}
			m = t.row.manager(t, process)
		}
		t.settle()
		if err == nil && t.over() && before == t.versions() {
			return
		}
	}
	t.Fatalf("it does not come to rest: %v", out.log)
}

// versions is what changes whenever something is written.
func (t *trial) versions() string {
	vm, operations := t.look()
	text := ""
	if vm != nil {
		text = vm.ResourceVersion
	}
	for i := range operations {
		text += " " + operations[i].ResourceVersion
	}
	return text
}

// settle waits until KubeVirt has carried out what was requested, unless the guest ignores that.
func (t *trial) settle() {
	t.Helper()
	t.Until("KubeVirt has settled", func() (string, bool) {
		vm := &virtv1.VirtualMachine{}
		if apierrors.IsNotFound(t.Get(t.Context(), t.key, vm)) {
			return "", true
		}
		var moves virtv1.VirtualMachineInstanceMigrationList
		t.Must(t.List(t.Context(), &moves, client.InNamespace(t.key.Namespace)))
		for i := range moves.Items {
			if !moves.Items[i].IsFinal() {
				return "a migration is " + string(moves.Items[i].Status.Phase), false
			}
		}
		vmi := t.instance(t.key)
		asked := t.row.life.ignores && vmi.DeletionTimestamp != nil && vmi.Status.Phase == virtv1.Running
		quiet := vmi.Name == "" || vmi.DeletionTimestamp == nil && vmi.Status.Phase == virtv1.Running
		quiet = quiet && len(vm.Status.StateChangeRequests) == 0 && vm.Status.Created == (vmi.Name != "")
		return fmt.Sprintf("%+v, instance %s %v", vm.Status, vmi.Status.Phase, vmi.DeletionTimestamp), vm.DeletionTimestamp == nil && (quiet || asked)
	})
}

// end says how it ended, in words that are the same for every machine.
func (t *trial) end() (lines []string) {
	t.Helper()
	vm, operations := t.look()
	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for i := range operations {
		o := &operations[i]
		completed := v1alpha1.ConditionCompleted.In(o.Status.Conditions)
		say("%s is %s, %s, finalizers %v", o.Spec.Type, o.Status.Phase, completed.Reason, o.Finalizers)
	}
	var machines virtv1.VirtualMachineList
	t.Must(t.List(t.Context(), &machines, client.InNamespace(t.key.Namespace)))
	for i := range machines.Items {
		theirs := &machines.Items[i]
		strategy, _ := theirs.RunStrategy()
		say("a VirtualMachine of KubeVirt, ours: %t, %s", theirs.Labels[kubevirt.LabelMachine] == string(t.uid), strategy)
	}
	vmi := t.instance(t.key)
	say("the instance is %q on %q", vmi.Status.Phase, vmi.Status.NodeName)
	say("%d instances have booted", t.Agent.Boots(t.key))
	if vm == nil {
		say("the VirtualMachine is gone")
		return lines
	}
	ready := v1alpha1.ConditionReady.In(vm.Status.Conditions)
	say("the VirtualMachine is %s, Ready %s %s, on %q", vm.Status.Phase, ready.Status, ready.Reason, vm.Status.NodeName)
	say("the incarnation is the instance: %t, claim free: %t, undoing: %d", vm.Status.Incarnation == string(vmi.UID), !vm.Busy(), len(vm.Status.Undoing))
	if intent := vm.Status.PowerIntent; intent != nil {
		say("the power intent is %s", intent.State)
	}
	return lines
}
