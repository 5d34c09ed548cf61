//go:build !race

package sweep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/machine"
	"sallyport.dev/sallyport/test/support/step"
)

// name is what every VirtualMachine is called, each in a namespace of its own.
const name = "web"

// maxPasses is how often the reconcilers may look until they have to be done. A clean run takes five times at most.
const maxPasses = 40

// trial is one operation on a machine of its own.
type trial struct {
	*row
	path     string // of the machine
	template string // what it is cloned from, if it is
	key      types.NamespacedName
	uid      types.UID
	disk     types.UID // of its VirtualDisk, if it has one
	held     []func()  // what ends the tasks that are in flight
	log      []string  // what went wrong on the way
}

// newTrial makes a machine of that name for an operation of the row.
func (r *row) newTrial(ctx context.Context, machine string) (t *trial, err error) {
	t = &trial{row: r}
	if r.clones {
		t.template, err = r.vcenter.AddTemplate(machine)
	} else {
		t.path, err = r.vcenter.AddMachine(machine)
	}
	if err != nil {
		return nil, err
	}
	if !r.clones {
		r.vcenter.SetPower(t.path, r.found)
	}
	r.vcenter.IgnoreShutdown(cmp.Or(t.template, t.path))
	t.hold()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "sweep-"}}
	if err := r.api.Create(ctx, namespace); err != nil {
		return nil, err
	}
	t.key = types.NamespacedName{Namespace: namespace.Name, Name: name}
	return t, nil
}

// declare makes the VirtualMachine, as the webhook would default it. A real API server sets UIDs and times itself.
func (t *trial) declare(ctx context.Context) error {
	vm := &v1alpha1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: t.key.Namespace, Name: name, UID: uuid.NewUUID(), Finalizers: []string{v1alpha1.VirtualMachineFinalizer},
		},
		Spec: v1alpha1.VirtualMachineSpec{
			RunPolicy:       v1alpha1.RunPolicyAlwaysOnUnlessStoppedManually,
			BlockDeviceRefs: t.blockDevices(),
			Runtime: v1alpha1.VirtualMachineRuntime{VSphere: &v1alpha1.VSphereRuntime{
				ServerRef: v1alpha1.VSphereServerReference{Name: "lab"}, InventoryPath: t.path, Clone: t.clone(),
			}},
		},
	}
	if t.tagged {
		vm.Spec.NodeSelector = map[string]v1alpha1.LabelValue{"zone": "b"}
	}
	err := t.api.Create(ctx, vm)
	t.uid = vm.UID
	if t.clones {
		t.path = "/DC0/vm/" + t.key.Namespace + "-" + name + "-" + string(vm.UID[len(vm.UID)-12:])
	}
	return err
}

// clone is how the machine is made, and nil if it is there.
func (t *trial) clone() *v1alpha1.VSphereClone {
	if !t.clones {
		return nil
	}
	return &v1alpha1.VSphereClone{
		Template: v1alpha1.VSphereCloneSource{InventoryPath: v1alpha1.InventoryPath(t.template)},
		Folder:   "/DC0/vm", ResourcePool: "/DC0/host/DC0_C0/Resources", Datastore: "/DC0/datastore/LocalDS_0",
		Networks: []v1alpha1.InventoryPath{"/DC0/network/VM Network"},
		Disks:    []v1alpha1.VSphereCloneDisk{{Size: resource.MustParse("2Gi")}},
	}
}

// change changes the spec of the VirtualMachine.
func (t *trial) change(ctx context.Context, how func(*v1alpha1.VirtualMachineSpec)) error {
	vm, _, err := t.look(ctx)
	if err != nil {
		return err
	}
	how(&vm.Spec)
	return t.api.Update(ctx, vm)
}

// instances counts the machines that carry the marker, wherever they are.
func (t *trial) instances() (n int) {
	for _, path := range t.vcenter.Machines() {
		if t.vcenter.State(path).ExtraConfig[machine.OwnerKey] == string(t.uid) {
			n++
		}
	}
	return n
}

// ask makes an operation, as the webhook would stamp it.
func (t *trial) ask(ctx context.Context, what string) error {
	kind, force := strings.CutSuffix(what, " force")
	o := &v1alpha1.VirtualMachineOperation{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: t.key.Namespace, Name: strings.ToLower(kind), UID: uuid.NewUUID(), CreationTimestamp: metav1.Now(),
		},
		Spec: v1alpha1.VirtualMachineOperationSpec{
			Type: v1alpha1.OperationType(kind), Force: force, VirtualMachineName: name, VirtualMachineUID: t.uid,
			RequestedBy: &v1alpha1.Requester{Username: "ann"},
			RequestedAt: time.Now().UTC().Format("2006-01-02T15:04:05.000000000Z"),
		},
	}
	if o.Spec.Type == v1alpha1.OperationMigrate {
		o.Spec.Migrate = &v1alpha1.MigrateTarget{NodeName: t.vcenter.OtherHost(t.path)}
	}
	return t.api.Create(ctx, o)
}

// remove deletes the VirtualMachine.
func (t *trial) remove(ctx context.Context) error {
	return t.api.Delete(ctx, &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: t.key.Namespace, Name: name}})
}

// advance takes the machine as far as it comes without a wait, with the process of the preparations.
func (t *trial) advance(ctx context.Context) error {
	_, err := t.setup.pass(ctx, t.key)
	return err
}

// look reads what the API server has.
func (t *trial) look(ctx context.Context) (vm *v1alpha1.VirtualMachine, operations []v1alpha1.VirtualMachineOperation, err error) {
	vm = &v1alpha1.VirtualMachine{}
	var list v1alpha1.VirtualMachineOperationList
	if err = t.api.Get(ctx, t.key, vm); apierrors.IsNotFound(err) {
		vm, err = nil, nil
	}
	if err == nil {
		err = t.api.List(ctx, &list, client.InNamespace(t.key.Namespace))
	}
	return vm, list.Items, err
}

// over tells whether nothing is left to do.
func (t *trial) over(ctx context.Context) (bool, error) {
	vm, operations, err := t.look(ctx)
	for _, o := range operations {
		if !o.Finished() || len(o.Finalizers) > 0 {
			return false, err
		}
	}
	switch {
	case err != nil || t.vcenter.State(t.path).Busy:
		return false, err
	case vm == nil:
		return t.diskOver(ctx, nil), nil
	}
	return vm.DeletionTimestamp.IsZero() && vm.Status.InstanceID != "" && !vm.Busy() && t.diskOver(ctx, vm), nil
}

// hold keeps in flight what begins from now on: nothing comes to its end while a process looks, so that every run makes the
// same requests.
func (t *trial) hold() {
	if t.clones {
		t.held = append(t.held, t.vcenter.Hold(t.template, runtime.TaskCreate))
	}
	if t.vcenter.State(t.path).InstanceUUID == "" {
		return
	}
	for _, task := range []runtime.TaskKind{runtime.TaskPowerOn, runtime.TaskPowerOff, runtime.TaskRelocate, runtime.TaskDelete} {
		if release := t.vcenter.Hold(t.path, task); task != t.stuck {
			t.held = append(t.held, release)
		}
	}
}

// goOn has the tasks in flight come to their end, and a guest that was asked to shut down do so.
func (t *trial) goOn(ctx context.Context) error {
	if t.vcenter.State(t.path).InstanceUUID != "" {
		t.vcenter.HeedShutdown(t.path)
	}
	for _, release := range t.held {
		release()
	}
	t.held = nil
	patience := step.Patience
	if t.stuck != "" {
		patience = 20 * time.Millisecond // it ends if it was cancelled
	}
	err := wait.PollUntilContextTimeout(ctx, time.Millisecond, patience, true, func(context.Context) (bool, error) {
		return !t.vcenter.State(t.path).Busy && !t.vcenter.Making(t.path), nil
	})
	t.hold()
	if t.stuck != "" && ctx.Err() == nil {
		return nil
	}
	return err
}

// drive has processes and the vCenter go on in turns until all is over and a look finds nothing to do any more,
// in the API server or in the vCenter. It gives
// what the processes asked of the vCenter before that look.
func (t *trial) drive(ctx context.Context, p *process, next func() *process) (called []string, err error) {
	for range maxPasses {
		wrote, err := p.pass(ctx, t.key)
		if err != nil {
			t.log = append(t.log, err.Error())
		}
		asked := p.faults.Called()
		if p.dead.Load() {
			p = next()
		} else if !wrote && err == nil && !slices.ContainsFunc(asked, begins) {
			if over, err := t.over(ctx); over || err != nil {
				return called, err
			}
		}
		called = append(called, asked...)
		if err := t.goOn(ctx); err != nil {
			return called, err
		}
	}
	return called, errors.New("it does not come to rest")
}

// begins tells the requests that begin a task in the vCenter, but for a look at files.
func begins(method string) bool {
	return strings.HasSuffix(method, "_Task") && method != "SearchDatastore_Task"
}

// end says how it ended, in words that are the same for every machine.
func (t *trial) end(ctx context.Context) (lines []string, err error) {
	vm, operations, err := t.look(ctx)
	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for _, o := range operations {
		completed := meta.FindStatusCondition(o.Status.Conditions, string(v1alpha1.ConditionCompleted))
		say("operation %s is %s, %s", o.Name, o.Status.Phase, reason(completed))
		say("operation %s has the finalizers %v", o.Name, o.Finalizers)
	}
	state := t.vcenter.State(t.path)
	say("the machine is %s after %d power-ons, busy: %t", state.Power, state.PowerOns, state.Busy)
	switch {
	case state.Host == "":
		say("the machine is nowhere")
	case state.Host == t.vcenter.Hosts()[0]:
		say("the machine is on the host that it was on")
	case t.anyHost:
		say("the machine is on another host")
	default:
		say("the machine is on %s", state.Host)
	}
	if t.clones && state.InstanceUUID != "" {
		say("it has %d processors", t.vcenter.Hardware(t.path).CPUs)
	}
	say("there are %d machines that are marked as its own", t.instances())
	lines = append(lines, t.diskEnd(ctx)...)
	owner, marked := state.ExtraConfig[machine.OwnerKey]
	say("the machine is marked: %t, as ours: %t", marked && owner != "", owner == string(t.uid))
	if vm == nil {
		say("the VirtualMachine is gone")
		return lines, err
	}
	say("the VirtualMachine is %s, %s, and shows its host: %t", vm.Status.Phase,
		reason(meta.FindStatusCondition(vm.Status.Conditions, string(v1alpha1.ConditionReady))), vm.Status.NodeName == state.Host)
	say("the claim is free: %t, being undone: %d", vm.Status.ActiveOperation == nil, len(vm.Status.Undoing))
	if intent := vm.Status.PowerIntent; intent != nil {
		say("the power intent is %s by %s", intent.State, intent.By)
	}
	return lines, err
}

func reason(c *metav1.Condition) string {
	if c == nil {
		return "without a condition"
	}
	return fmt.Sprintf("%s %s/%s", c.Type, c.Status, c.Reason)
}

// otherwise is the error for a run that does not end as it should. If it came to rest, an effect was lost, or had twice.
func otherwise(rests bool, want, got []string) error {
	different := differences(want, got)
	switch text := strings.Join(different, "\n"); {
	case len(different) == 0:
		return nil
	case rests:
		return fmt.Errorf("it ends otherwise:\n%s", text)
	default:
		return fmt.Errorf("it ends otherwise:\n%s", text)
	}
}

// differences gives the lines that only one of the two has.
func differences(want, got []string) (lines []string) {
	for _, line := range want {
		if !slices.Contains(got, line) {
			lines = append(lines, "- "+line)
		}
	}
	for _, line := range got {
		if !slices.Contains(want, line) {
			lines = append(lines, "+ "+line)
		}
	}
	return lines
}
