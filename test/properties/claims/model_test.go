package claims

import (
	"flag"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/agent"
	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime/volumes"
)

var (
	machineNames = []string{"m-0", "m-1"}
	diskNames    = []string{"data", "web"}
	// A process also looks at what the pool has made.
	lookedAt      = []string{"m-0", "m-1", poolName + "-0", poolName + "-1"}
	disksLookedAt = []string{"data", "web", poolName + "-data-0", poolName + "-data-1"}
)

const poolName = "p"

// model is two VirtualMachines, a pool and two VirtualDisks that come and go, beside machines that users make and copy, and a process that dies
// at any call, for another to take over.
type model struct {
	*world
	platform
	p *process
}

// pass has the process look at something, and die of it or not. In the middle of it, users change what they want.
func (m *model) pass() {
	if rapid.IntRange(0, 2).Draw(m.T, "dies") == 0 {
		m.p.Die(rapid.IntRange(1, 24).Draw(m.T, "at"), m.flip("after"))
	}
	if rapid.IntRange(0, 3).Draw(m.T, "meanwhile") == 0 {
		happens := []func(){m.respec, m.deleteObject, m.lose, m.decide, m.relabel, m.users()["strip"]}
		m.p.Before(rapid.IntRange(1, 24).Draw(m.T, "when"), rapid.SampledFrom(happens).Draw(m.T, "what"))
	}
	if m.flip("disk") {
		m.p.lookAtDisk(m.draw(disksLookedAt, "name"))
	} else {
		m.p.lookAtMachine(m.draw(lookedAt, "name"))
	}
}

// settle has everything go on until nothing changes any more.
func (m *model) settle() {
	before := ""
	for range 60 {
		before = m.everything()
		if m.p.round(); m.everything() == before {
			return
		}
	}
	m.Fatalf("it never comes to rest:\n%s\n%s", before, m.everything())
}

// everything is something that changes whenever an object does.
func (m *model) everything() (all string) {
	of := func(o client.Object) { all += o.GetName() + " " + o.GetResourceVersion() + " " }
	for _, o := range m.machines() {
		of(&o)
	}
	for _, o := range m.disks() { // not their versions: each attempt to attach one is a reservation
		all += fmt.Sprint(o.Name, o.Status.DiskID, o.Status.Phase, holder(&o), " ")
	}
	for _, o := range m.pools() {
		of(&o)
	}
	for _, o := range m.operations() {
		of(&o)
	}
	for _, o := range m.claims() {
		of(&o)
	}
	return all + m.versions()
}

// end has everything settle, and looks whether what is not as wanted says why.
func (m *model) end() {
	m.ends()
	m.settle()
	m.check()
	for _, vm := range m.machines() {
		if why := m.unwanted(&vm); why != "" && !tells(&vm) {
			m.Fatalf("%s %s, and does not tell: %+v", vm.Name, why, vm.Status)
		}
	}
	for _, op := range m.operations() {
		says := slices.ContainsFunc(op.Status.Conditions, func(c metav1.Condition) bool { return c.Message != "" })
		if !op.Finished() && !says {
			m.Fatalf("%s of %s waits, and does not tell why: %+v", op.Spec.Type, op.Spec.VirtualMachineName, op.Status)
		}
	}
}

func (m *model) unwanted(vm *v1alpha1.VirtualMachine) string {
	if !vm.DeletionTimestamp.IsZero() {
		return "is not gone"
	}
	return m.differs(vm)
}

// tells reports whether a machine says what is wrong with it.
func tells(vm *v1alpha1.VirtualMachine) bool {
	for _, t := range []v1alpha1.ConditionType{v1alpha1.ConditionReady, v1alpha1.ConditionDisksAttached} {
		if c := t.In(vm.Status.Conditions); c != nil && c.Status != "True" && c.Message != "" {
			return true
		}
	}
	return false
}

func (m *model) check() {
	for _, broken := range m.broken {
		m.Fatalf("%s", broken)
	}
}

// drawRefs are the disks that a machine is to have.
func (m *model) drawRefs() (all []v1alpha1.BlockDeviceRef) {
	for _, name := range diskNames {
		if m.flip("names " + name) {
			all = append(all, v1alpha1.BlockDeviceRef{Kind: v1alpha1.BlockDeviceVirtualDisk, Name: name})
		}
	}
	return all
}

func (m *model) drawPolicy() v1alpha1.RunPolicy {
	return rapid.SampledFrom([]v1alpha1.RunPolicy{
		v1alpha1.RunPolicyAlwaysOn, v1alpha1.RunPolicyAlwaysOnUnlessStoppedManually, v1alpha1.RunPolicyAlwaysOff,
	}).Draw(m.T, "policy")
}

// newMachine makes a VirtualMachine, if there is none of that name.
func (m *model) newMachine() {
	vm := &v1alpha1.VirtualMachine{ObjectMeta: m.meta(m.draw(machineNames, "machine"))}
	if m.Get(m.ctx, client.ObjectKeyFromObject(vm), vm) == nil {
		return
	}
	vm.Spec = m.spec(m.machine(), m.drawRefs())
	m.must(m.Create(m.ctx, vm))
}

func (m *model) spec(of v1alpha1.VirtualMachineRuntime, refs []v1alpha1.BlockDeviceRef) v1alpha1.VirtualMachineSpec {
	spec := v1alpha1.VirtualMachineSpec{RunPolicy: m.drawPolicy(), Runtime: of, BlockDeviceRefs: refs}
	if of.Pod != nil || of.KubeVirt != nil && of.KubeVirt.Create != nil {
		spec.Memory = new(resource.MustParse("64Mi"))
	}
	return spec
}

// newDisk makes a VirtualDisk, if there is none of that name.
func (m *model) newDisk() {
	d := &v1alpha1.VirtualDisk{ObjectMeta: m.meta(m.draw(diskNames, "disk"))}
	if m.Get(m.ctx, client.ObjectKeyFromObject(d), d) == nil {
		return
	}
	d.Spec = v1alpha1.VirtualDiskSpec{Size: resource.MustParse("1Gi"), Runtime: m.disk()}
	m.must(m.Create(m.ctx, d))
}

// scale makes the pool, or changes how many members it is to have.
func (m *model) scale() {
	o := &v1alpha1.VirtualMachinePool{ObjectMeta: m.meta(poolName)}
	replicas := new(rapid.Int32Range(0, 2).Draw(m.T, "replicas"))
	if m.Get(m.ctx, client.ObjectKeyFromObject(o), o) == nil {
		o.Spec.Replicas = replicas
		m.must(m.Update(m.ctx, o))
		return
	}
	o.Spec = v1alpha1.VirtualMachinePoolSpec{Replicas: replicas, ScaleDownPolicy: v1alpha1.ScaleDownNewestFirst}
	o.Spec.VirtualMachineTemplate.Spec = m.spec(m.template(), []v1alpha1.BlockDeviceRef{{Kind: v1alpha1.BlockDeviceVirtualDisk, Name: "data"}})
	reclaim := rapid.SampledFrom([]v1alpha1.ReclaimPolicy{v1alpha1.ReclaimDelete, v1alpha1.ReclaimRetain}).Draw(m.T, "reclaim")
	o.Spec.VirtualDiskTemplates = []v1alpha1.VirtualDiskTemplate{{
		Name: "data", Reclaim: v1alpha1.DiskReclaim{OnScaleDown: reclaim},
		Spec: v1alpha1.VirtualDiskSpec{Size: resource.MustParse("1Gi"), Runtime: m.disk()},
	}}
	m.must(m.Create(m.ctx, o))
}

// operate asks for an operation of a machine that has none yet.
func (m *model) operate() {
	vm := one(m.world, m.machines(), "machine")
	if vm == nil {
		return
	}
	for _, op := range m.operations() {
		if op.Spec.VirtualMachineName == vm.Name && !op.Finished() {
			return
		}
	}
	kind := rapid.SampledFrom([]v1alpha1.OperationType{v1alpha1.OperationStart, v1alpha1.OperationStop, v1alpha1.OperationRestart}).Draw(m.T, "operation")
	m.must(m.Create(m.ctx, &v1alpha1.VirtualMachineOperation{ObjectMeta: m.meta(m.numbered("op")), Spec: v1alpha1.VirtualMachineOperationSpec{
		Type: kind, VirtualMachineName: vm.Name, Force: kind != v1alpha1.OperationStart,
	}}))
}

// anyObject returns a VirtualMachine, a pool or a VirtualDisk that is there, or nil.
func (m *model) anyObject() client.Object {
	var all []client.Object
	for _, o := range m.machines() {
		all = append(all, &o)
	}
	for _, o := range m.disks() {
		all = append(all, &o)
	}
	for _, o := range m.pools() {
		all = append(all, &o)
	}
	if o := one(m.world, all, "object"); o != nil {
		return *o
	}
	return nil
}

func (m *model) deleteObject() {
	if o := m.anyObject(); o != nil {
		m.must(m.Delete(m.ctx, o))
	}
}

// lose deletes an object that Sallyport learns nothing of, as before a restore of a backup.
func (m *model) lose() {
	if o := m.anyObject(); o != nil {
		o.SetFinalizers(nil)
		if m.must(m.Update(m.ctx, o)); o.GetDeletionTimestamp().IsZero() {
			m.must(client.IgnoreNotFound(m.Delete(m.ctx, o)))
		}
	}
}

// restoreBackup makes a machine that was lost again, with its status or without.
func (m *model) restoreBackup() {
	vm := one(m.world, m.machines(), "machine")
	if vm == nil || metav1.GetControllerOf(vm) != nil {
		return
	}
	again := &v1alpha1.VirtualMachine{ObjectMeta: m.meta(vm.Name), Spec: vm.Spec}
	vm.Finalizers = nil
	if m.must(m.Update(m.ctx, vm)); vm.DeletionTimestamp.IsZero() {
		m.must(client.IgnoreNotFound(m.Delete(m.ctx, vm)))
	}
	if m.must(m.Create(m.ctx, again)); m.flip("with its status") {
		again.Status = vm.Status
		m.must(m.Status().Update(m.ctx, again))
	}
}

// decide says what is to happen with what there is for an earlier object.
func (m *model) decide() {
	if o := m.anyObject(); o != nil {
		what := m.draw([]string{v1alpha1.AnnotationTakeOver, v1alpha1.AnnotationMakeAnew}, "decision")
		o.SetAnnotations(map[string]string{what: string(o.GetUID())})
		m.must(m.Update(m.ctx, o))
	}
}

// respec changes which disks a machine is to have, and when it is to be on.
func (m *model) respec() {
	vm := &v1alpha1.VirtualMachine{}
	if m.Get(m.ctx, m.key(m.draw(machineNames, "machine")), vm) == nil {
		vm.Spec.BlockDeviceRefs, vm.Spec.RunPolicy = m.drawRefs(), m.drawPolicy()
		m.must(m.Update(m.ctx, vm))
	}
}

// relabel has a claim look like that of some VirtualDisk or machine, or of none.
func (m *model) relabel() {
	c, disks, machines := &corev1.PersistentVolumeClaim{}, []types.UID{""}, []types.UID{""}
	for _, d := range m.disks() {
		disks = append(disks, d.UID)
	}
	for _, vm := range m.machines() {
		machines = append(machines, vm.UID)
	}
	d, vm := rapid.SampledFrom(disks).Draw(m.T, "disk label"), rapid.SampledFrom(machines).Draw(m.T, "machine label")
	if m.Get(m.ctx, m.key(m.anyClaim()), c) != nil {
		return
	}
	c.Labels = nil
	for label, uid := range map[string]types.UID{volumes.LabelDisk: d, agent.LabelMachine: vm} {
		if uid != "" {
			c.SetLabels(with(c.Labels, label, string(uid)))
		}
	}
	m.must(m.Update(m.ctx, c))
}

func with(labels map[string]string, key, value string) map[string]string {
	if labels == nil {
		labels = map[string]string{}
	}
	labels[key] = value
	return labels
}

// lives has users do what they like, for a while.
func lives(w *world, on platform) {
	m := &model{world: w, platform: on, p: newProcess(w, on)}
	users := on.users()
	for _, step := range []func(){m.newDisk, m.newDisk, users["foreign"], users["foreign"], m.newMachine, m.newMachine, m.settle} {
		step()
	}
	steps := map[string]func(){
		"pass": m.pass, "pass again": m.pass, "round": m.p.round, "another round": m.p.round, "settles": m.settle, "goes on": m.goesOn,
		"machine": m.newMachine, "disk": m.newDisk, "respec": m.respec, "scale": m.scale, "operate": m.operate,
		"delete": m.deleteObject, "delete another": m.deleteObject, "lose": m.lose, "restore backup": m.restoreBackup, "decide": m.decide, "relabel": m.relabel,
	}
	for name, step := range users {
		steps[name] = step
	}
	actions := map[string]func(*rapid.T){}
	for name, step := range steps {
		actions[name] = func(*rapid.T) {
			step()
			for range rapid.IntRange(0, 3).Draw(m.T, "rounds") {
				m.p.round()
			}
			m.check()
		}
	}
	m.Repeat(actions)
	m.end()
}

func TestKubeVirt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := inMemory(t, t.Context())
		lives(w, newKubeVirt(w, played{}))
	})
}

func TestPods(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := inMemory(t, t.Context())
		lives(w, newPods(w))
	})
}

// set sets a flag for a test, unless the command line does.
func set(t *testing.T, name, value string) {
	f := flag.Lookup(name)
	if before := f.Value.String(); before == f.DefValue {
		if err := flag.Set(name, value); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = flag.Set(name, before) })
	}
}
