package pool

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/pool/busy"
)

// model is a pool with all that may happen to it: two processes that take themselves for the leader, with caches that lag behind and
// crashes at any call, people who scale, name, delete and mark as busy, between any two calls, and machines that take their time.
type model struct {
	*rapid.T
	ctx       context.Context
	server    *server
	processes [2]*process

	busy        map[types.UID]time.Time // what somebody was told is busy, until then
	named       map[types.UID]bool      // what somebody named
	byHand      bool                    // somebody deletes, and no pool
	lost        int                     // members that a person has deleted since the pass began
	least, most int                     // the numbers of replicas that there were since the pass began
	disturbed   bool                    // something happened since the pass began
	wrong       string                  // the first deletion that should not have been

	under    string             // the release that machines are made from at the moment, empty if the pool follows no template
	stale    map[types.UID]bool // who was of another release than the one that was ready, at some time since the pass began
	replaced map[string]int64   // for which generation of the template the member of that name was replaced
}

func newModel(t *rapid.T) *model {
	m := &model{T: t, ctx: context.Background(), server: newServer(),
		busy: map[types.UID]time.Time{}, named: map[types.UID]bool{}, stale: map[types.UID]bool{}, replaced: map[string]int64{}}
	m.server.deleted, m.server.patched, m.server.diskDeleted = m.judge, m.judgeChange, m.judgeDisk
	replicas := int32(rapid.IntRange(0, 5).Draw(t, "replicas"))
	unavailable := rapid.SampledFrom([]intstr.IntOrString{intstr.FromInt32(1), intstr.FromInt32(2), intstr.FromString("50%")}).Draw(t, "unavailable")
	disks, named := m.drawDisks()
	m.server.must(m.server.Create(m.ctx, &v1alpha1.VirtualMachinePool{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.VirtualMachinePoolSpec{
			Replicas:             &replicas,
			ScaleDownPolicy:      rapid.SampledFrom([]v1alpha1.ScaleDownPolicy{"NewestFirst", "OldestFirst", "Explicit"}).Draw(t, "policy"),
			VirtualDiskTemplates: disks,
			VirtualMachineTemplate: v1alpha1.VirtualMachineTemplate{Spec: v1alpha1.VirtualMachineSpec{
				BlockDeviceRefs: named, Runtime: v1alpha1.VirtualMachineRuntime{Pod: &v1alpha1.PodRuntime{}},
			}},
			Rollout: v1alpha1.PoolRollout{MaxUnavailable: &unavailable},
		},
	}))
	for i := range m.processes {
		m.processes[i] = newProcess(m.server)
	}
	return m
}

// judge is told of each deletion of a member by a pool, and says whether it may be.
func (m *model) judge(vm *v1alpha1.VirtualMachine) {
	if m.byHand {
		return
	}
	if !slices.Contains(m.server.pool().Status.Removing, member{VirtualMachine: vm}.asTarget()) {
		m.fail("%s was deleted before that was written down", vm.Name)
	}
	if m.named[vm.UID] {
		return
	}
	if until, is := m.busy[vm.UID]; is && until.After(m.server.now) {
		m.fail("%s was deleted and is busy until %s", vm.Name, until)
	}
	staying, policy := len(m.staying()), m.server.pool().Spec.ScaleDownPolicy
	switch {
	case staying+m.lost > m.least && policy != v1alpha1.ScaleDownExplicit:
	case m.judgeReplaced(vm):
	case policy == v1alpha1.ScaleDownExplicit:
		m.fail("%s was deleted and nobody named it", vm.Name)
	default:
		m.fail("%s was deleted, of %d members, and there are to be %d", vm.Name, staying, m.least)
	}
}

// fail has the pass fail in which a deletion was wrong: it is made in another goroutine, where a test cannot be ended.
func (m *model) fail(format string, args ...any) {
	if m.wrong == "" {
		m.wrong = fmt.Sprintf(format, args...)
	}
}

// judgeChange is told of each change of a member to the present template.
func (m *model) judgeChange(vm *v1alpha1.VirtualMachine) {
	v := &view{pool: m.server.pool()}
	for _, vm := range m.staying() {
		v.members = append(v.members, member{VirtualMachine: &vm})
	}
	if (member{VirtualMachine: vm}).available() && v.unavailable() >= v.maxUnavailable() && !m.disturbed {
		m.Fatalf("%s was changed while %d were unavailable", vm.Name, v.unavailable())
	}
}

func (m *model) staying() (all []v1alpha1.VirtualMachine) {
	for _, vm := range m.server.members() {
		if vm.DeletionTimestamp.IsZero() {
			all = append(all, vm)
		}
	}
	return all
}

// any draws one of the members that are not going.
func (m *model) any() *v1alpha1.VirtualMachine {
	all := m.staying()
	if len(all) == 0 {
		return nil
	}
	return &all[rapid.IntRange(0, len(all)-1).Draw(m.T, "member")]
}

// pass has one of the processes look, with whatever happens meanwhile.
func (m *model) pass() {
	p := m.processes[rapid.IntRange(0, 1).Draw(m.T, "process")]
	if rapid.Bool().Draw(m.T, "crash") {
		p.Die(rapid.IntRange(1, 12).Draw(m.T, "at"), rapid.Bool().Draw(m.T, "after"))
	}
	if rapid.Bool().Draw(m.T, "meanwhile") {
		when := rapid.IntRange(1, 12).Draw(m.T, "when")
		happens := rapid.SampledFrom([]func(){
			m.scale, m.mark, m.deleteByHand, m.gone, m.runs, m.template, m.other, m.takes, m.disksGoOn, m.release,
		}).Draw(m.T, "what")
		p.Before(when, func() { m.disturbed = true; happens() })
	}
	m.disturbed, m.lost = false, 0
	clear(m.stale)
	m.noteStale()
	replicas, before := int(*m.server.pool().Spec.Replicas), len(m.server.members())
	m.least, m.most = replicas, replicas
	if _, err := p.pass(); err != nil {
		m.Log(err)
	}
	if m.wrong != "" {
		m.Fatal(m.wrong)
	}
	if count := len(m.server.members()); count > max(m.most, before) {
		m.Fatalf("%d members became %d, and there are to be %d", before, count, m.most)
	}
}

// other has the other process look in the middle of everything.
func (m *model) other() {
	m.noteStale()
	for _, p := range m.processes {
		if p.Rests() {
			_, _ = p.pass()
			return
		}
	}
}

// learn brings one object or all of a cache up to date.
func (m *model) learn() {
	p := m.processes[rapid.IntRange(0, 1).Draw(m.T, "process")]
	if rapid.Bool().Draw(m.T, "all") {
		p.told("")
		return
	}
	p.told(rapid.SampledFrom([]string{
		name, name + "-0", name + "-1", name + "-2", name + "-3", templateKey.Name, name + "-data-0", name + "-data-1", name + "-data-2",
	}).Draw(m.T, "object"))
}

// scale sets another number of replicas, as the policy pools-scale-down lets it be, unless that is off: under Explicit somebody is named
// for each one fewer.
func (m *model) scale() {
	pool := m.server.pool()
	before, after := int(*pool.Spec.Replicas), rapid.IntRange(0, 6).Draw(m.T, "replicas")
	off := rapid.IntRange(0, 9).Draw(m.T, "policy") == 0
	explicit := pool.Spec.ScaleDownPolicy == v1alpha1.ScaleDownExplicit
	if after < before && !off && (explicit || rapid.Bool().Draw(m.T, "named")) {
		victims := slices.DeleteFunc(m.staying(), func(vm v1alpha1.VirtualMachine) bool {
			return slices.Contains(pool.Spec.ScaleDownTargets, member{VirtualMachine: &vm}.asTarget())
		})
		after = max(after, before-len(victims))
		for range before - after {
			i := rapid.IntRange(0, len(victims)-1).Draw(m.T, "victim")
			pool.Spec.ScaleDownTargets = append(pool.Spec.ScaleDownTargets, member{VirtualMachine: &victims[i]}.asTarget())
			m.named[victims[i].UID] = true
			victims = slices.Delete(victims, i, i+1)
		}
	}
	replicas := int32(after)
	pool.Spec.Replicas = &replicas
	pool.Generation++
	m.server.must(m.server.Update(m.ctx, pool))
	m.least, m.most = min(m.least, after), max(m.most, after)
}

// prune takes entries out that are of members that are gone.
func (m *model) prune() {
	pool, all := m.server.pool(), m.server.members()
	pool.Spec.ScaleDownTargets = slices.DeleteFunc(pool.Spec.ScaleDownTargets, func(t v1alpha1.ScaleDownTarget) bool {
		return !slices.ContainsFunc(all, func(vm v1alpha1.VirtualMachine) bool { return vm.UID == t.UID })
	})
	m.server.must(m.server.Update(m.ctx, pool))
}

// mark marks a member as busy as kubectl sallyport busy does: the Lease, the stamp, and then a look at whether it goes.
func (m *model) mark() {
	vm := m.any()
	if vm == nil {
		return
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: busy.LeaseName(vm.Name)}}
	exists := m.server.Get(m.ctx, client.ObjectKeyFromObject(lease), lease) == nil
	busy.Mark(lease, vm, "job", m.server.now, time.Minute)
	if exists {
		m.server.must(m.server.Update(m.ctx, lease))
	} else {
		m.server.must(m.server.Create(m.ctx, lease))
	}
	if rapid.Bool().Draw(m.T, "and then") {
		m.other()
	}
	now := &v1alpha1.VirtualMachine{}
	if m.server.Get(m.ctx, client.ObjectKeyFromObject(vm), now) != nil || now.UID != vm.UID || !now.DeletionTimestamp.IsZero() {
		return // not told that it is
	}
	metav1.SetMetaDataAnnotation(&now.ObjectMeta, v1alpha1.AnnotationBusyStamp, fmt.Sprint(m.server.now.UnixNano(), m.server.uids))
	m.server.uids++
	m.server.must(m.server.Update(m.ctx, now))
	m.busy[vm.UID] = busy.Until(lease, m.server.now)
}

// deleteByHand deletes a member past the pool.
func (m *model) deleteByHand() {
	if vm := m.any(); vm != nil {
		m.byHand = true
		err := m.server.Delete(m.ctx, vm)
		m.byHand = false
		if err == nil {
			m.lost++
		} else if vm.Labels[v1alpha1.LabelDeletionProtection] == "" {
			m.Fatal(err)
		}
	}
}

// protect puts the label that keeps from deletion on a member, or takes it off.
func (m *model) protect() {
	vm := m.any()
	if vm == nil {
		return
	}
	if vm.Labels[v1alpha1.LabelDeletionProtection] == "" {
		vm.Labels[v1alpha1.LabelDeletionProtection] = v1alpha1.DeletionProtectionEnabled
	} else {
		delete(vm.Labels, v1alpha1.LabelDeletionProtection)
	}
	m.server.must(m.server.Update(m.ctx, vm))
}

// gone has a member that is being deleted come to its end.
func (m *model) gone() {
	for _, vm := range m.server.members() {
		if !vm.DeletionTimestamp.IsZero() {
			vm.Finalizers = nil
			m.server.must(m.server.Update(m.ctx, &vm))
			return
		}
	}
}

// runs has a member take its spec, and run or not.
func (m *model) runs() {
	if vm := m.any(); vm != nil {
		m.run(vm, rapid.SampledFrom([]v1alpha1.VirtualMachinePhase{"Running", "Stopped", "Starting", "Migrating"}).Draw(m.T, "phase"))
	}
}

func (m *model) run(vm *v1alpha1.VirtualMachine, phase v1alpha1.VirtualMachinePhase) {
	vm.Status.Phase, vm.Status.ObservedGeneration = phase, vm.Generation
	if vm.Status.Template == nil && m.under != "" {
		vm.Status.Template = &v1alpha1.VSphereTemplateRelease{Name: templateKey.Name, Release: m.under, MoRef: "vm-" + m.under}
	}
	m.server.must(m.server.Status().Update(m.ctx, vm))
	m.noteStale()
}

// template changes what members are made from.
func (m *model) template() {
	pool := m.server.pool()
	cpu := int32(rapid.IntRange(1, 4).Draw(m.T, "cpu"))
	pool.Spec.VirtualMachineTemplate.Spec.CPU = &cpu
	pool.Generation++
	m.server.must(m.server.Update(m.ctx, pool))
}

// settle has everything that was begun come to its end, and the pool be as it is wanted.
func (m *model) settle() {
	p := m.processes[0]
	m.swap()
	m.observe(metav1.ConditionTrue)
	for range 200 {
		m.takes()
		m.disksGoOn()
		for _, vm := range m.server.members() {
			switch {
			case !vm.DeletionTimestamp.IsZero():
				m.gone()
			case vm.Status.Phase != v1alpha1.VirtualMachineRunning || vm.Status.ObservedGeneration != vm.Generation:
				m.run(&vm, v1alpha1.VirtualMachineRunning)
			}
			if vm.Labels[v1alpha1.LabelDeletionProtection] != "" && vm.DeletionTimestamp.IsZero() {
				m.server.must(m.server.Get(m.ctx, client.ObjectKeyFromObject(&vm), &vm))
				delete(vm.Labels, v1alpha1.LabelDeletionProtection)
				m.server.must(m.server.Update(m.ctx, &vm))
			}
		}
		p.told("")
		m.least = int(*m.server.pool().Spec.Replicas)
		before := m.server.pool().ResourceVersion
		m.disturbed, m.lost = false, 0
		m.noteStale()
		result, err := p.pass()
		m.server.must(err)
		if m.wrong != "" {
			m.Fatal(m.wrong)
		}
		m.server.now = m.server.now.Add(max(result.RequeueAfter, time.Second))
		if m.settled() && m.server.pool().ResourceVersion == before {
			return
		}
	}
	m.Fatalf("it does not settle: %+v", m.server.pool().Status)
}

func (m *model) settled() bool {
	pool, all := m.server.pool(), m.server.members()
	surplus := len(all) - int(*pool.Spec.Replicas)
	if surplus > 0 && pool.Spec.ScaleDownPolicy != v1alpha1.ScaleDownExplicit || surplus < 0 {
		return false
	}
	for _, vm := range all {
		if !vm.DeletionTimestamp.IsZero() || vm.Labels[v1alpha1.LabelTemplateHash] != pool.Status.DesiredTemplateHash {
			return false
		}
	}
	others := m.others()
	if !m.disksSettled() || others > 0 && surplus <= 0 && (&view{pool: pool}).restartsAutomatically() {
		return false
	}
	s := pool.Status
	return int(s.Replicas) == len(all) && int(s.ReadyReplicas) == len(all) && int(s.UpdatedReplicas) == len(all)-others && len(s.Removing) == 0
}

func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		t.Repeat(map[string]func(*rapid.T){
			"pass": func(t *rapid.T) { m.pass() }, "pass again": func(t *rapid.T) { m.pass() }, "learn": func(t *rapid.T) { m.learn() },
			"scale": func(t *rapid.T) { m.scale() }, "prune": func(t *rapid.T) { m.prune() }, "mark": func(t *rapid.T) { m.mark() },
			"delete": func(t *rapid.T) { m.deleteByHand() }, "protect": func(t *rapid.T) { m.protect() }, "gone": func(t *rapid.T) { m.gone() },
			"runs": func(t *rapid.T) { m.runs() }, "takes": func(t *rapid.T) { m.takes() }, "disks": func(t *rapid.T) { m.disksGoOn() },
			"template": func(t *rapid.T) { m.template() },
			"time":     func(t *rapid.T) { m.server.now = m.server.now.Add(20 * time.Second) },
		})
		m.settle()
	})
}
