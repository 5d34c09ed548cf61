package model

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/double/fake"
)

// dice is a run at random.
type dice struct {
	*model
	*rapid.T
	names []string // of machines
}

// action is something that may happen, so often.
type action struct {
	weight int
	do     func(*dice)
}

var actions = []action{
	{1, func(*dice) {}}, // what a failure is shrunk to
	{30, (*dice).goSome}, {18, (*dice).reconcile}, {20, (*dice).operate}, {14, (*dice).advance}, {8, (*dice).fault},
	{5, (*dice).passTime}, {3, (*dice).deleteOperation}, {3, (*dice).changeSpec}, {1, (*dice).deleteMachine}, {2, (*dice).remakeMachine},
	{3, (*dice).crash}, {3, (*dice).failover}, {2, (*dice).stop}, {2, (*dice).guest}, {1, (*dice).lose}, {2, (*dice).caches},
	{1, (*dice).touchSomething}, {2, (*dice).place}, {2, (*dice).rollOut},
}

func (d *dice) roll(label string, n int) int { return rapid.IntRange(0, n-1).Draw(d.T, label) }

func (d *dice) chance(label string, percent int) bool {
	return rapid.IntRange(0, 99).Draw(d.T, label) >= 100-percent // small numbers are what a failure is shrunk to: nothing
}

func pick[T any](d *dice, label string, of ...T) T { return of[d.roll(label, len(of))] }

// run makes a world and has things happen in it.
func (d *dice) run(steps int) {
	d.leader = d.newProcess(0)
	for _, name := range []string{"vm-0", "vm-1"}[:1+d.roll("machines", 4)/3] {
		d.names = append(d.names, name)
		d.make(name)
	}
	total, actions := 0, actions
	if d.hibernates {
		actions = slices.Concat(actions, actionsOfMoves)
	}
	for _, a := range actions {
		total += a.weight
	}
	for range steps {
		n := d.roll("action", total)
		for _, a := range actions {
			if n -= a.weight; n < 0 {
				a.do(d)
				break
			}
		}
		if d.broken() {
			return
		}
	}
	d.end(d.chance("restart", 50))
}

func (d *dice) make(name string) {
	kind := known
	switch {
	case d.hibernates:
		kind = pick(d, "kind", known, known, fresh)
	case !d.withoutMachines:
		kind = pick(d, "kind", known, known, fresh, adopted)
	}
	d.addMachine(name, d.policy(), kind, pick(d, "power", v1alpha1.PowerStopped, v1alpha1.PowerRunning))
	d.settle()
}

// policy is mostly one that leaves something to operations.
func (d *dice) policy() v1alpha1.RunPolicy {
	return pick(d, "policy", v1alpha1.RunPolicyManual, v1alpha1.RunPolicyManual, v1alpha1.RunPolicyAlwaysOnUnlessStoppedManually,
		v1alpha1.RunPolicyAlwaysOnUnlessStoppedManually, v1alpha1.RunPolicyAlwaysOn, v1alpha1.RunPolicyAlwaysOff)
}

func (d *dice) name() string { return d.names[d.roll("machine", len(d.names))] }

// uid gives the UID of a machine that may be gone.
func (d *dice) uid() types.UID {
	if vm := d.machine(d.name()); vm != nil {
		return vm.UID
	}
	return "gone"
}

// processes are those that run.
func (d *dice) process() *process {
	if d.old != nil && d.chance("old one", 50) {
		return d.old
	}
	return d.leader
}

// goSome lets a worker make some calls, the first perhaps with a fault.
func (d *dice) goSome() {
	parked := d.process().parked()
	if len(parked) == 0 {
		d.reconcile()
		return
	}
	w := parked[d.roll("worker", len(parked))]
	v := goOn
	if d.chance("fault", 15) {
		v = pick(d, "which", fail, lose, touch)
	}
	d.goes(w, v)
}

func (d *dice) goes(w *worker, v verdict) {
	for range pick(d, "calls", 100, 1, 2, 3, 5, 8) {
		if w.at == nil || d.broken() {
			return
		}
		d.step(w, v)
		v = goOn
	}
}

// reconcile has a process take a task off its queue.
func (d *dice) reconcile() {
	p, roles := d.process(), d.roles()
	of := task{roles[d.roll("role", len(roles))], types.NamespacedName{Namespace: namespace, Name: d.name()}}
	if p.busy(of) {
		return
	}
	d.goes(p.start(of), goOn)
}

func (d *dice) operate() {
	judged := !d.chance("beside admission", 30)
	var all []*v1alpha1.VirtualMachineOperation
	name := d.name()
	for _, o := range everyOperation() {
		o.Name, o.UID, o.Spec.VirtualMachineName = "", "", name
		if !judged || d.admitted(&o) {
			all = append(all, &o)
		}
	}
	if len(all) == 0 {
		return
	}
	o := all[d.roll("operation", len(all))]
	switch d.roll("deadline", 8) {
	case 6:
		o.Spec.ActiveDeadlineSeconds = new(int32(5))
	case 7:
		o.Spec.ActiveDeadlineSeconds = new(int32(60))
	}
	o.Spec.TTLSecondsAfterFinished = new(int32(86400))
	if d.chance("short-lived", 15) {
		*o.Spec.TTLSecondsAfterFinished = pick(d, "ttl", int32(0), 10)
	}
	if o.Spec.Type == v1alpha1.OperationMigrate && d.chance("target", 50) {
		o.Spec.Migrate = &v1alpha1.MigrateTarget{NodeName: pick(d, "node", "node-1", "node-2", "node-3")}
	}
	d.ask(o)
}

func (d *dice) advance() {
	d.trace("the world goes on")
	d.world.Advance(d.uid())
	d.settle()
}

// fault has the runtime err.
func (d *dice) fault() {
	if d.hibernates && d.chance("of moves", 70) {
		d.faultOfMove()
		return
	}
	uid := d.uid()
	verbs := []runtime.Verb{
		runtime.VerbObserve, runtime.VerbPowerOn, runtime.VerbPowerOff, runtime.VerbMigrate, runtime.VerbCancel, runtime.VerbEnsure, runtime.VerbDelete, "",
	}
	at := fake.At{Verb: verbs[d.roll("verb", len(verbs))]}
	d.stats.faults++
	switch d.roll("runtime fault", 9) {
	case 0:
		d.world.SetGuest(uid, fake.Guest{Steps: d.roll("steps", 3), Ignores: d.chance("ignores", 50), NoTools: d.chance("no tools", 30)})
	case 1:
		d.world.SetCancels(uid, fake.Cancels{Steps: d.roll("steps", 3), Ignored: d.chance("ignored", 50)})
	case 2:
		d.world.Script(at, fake.Fail(runtime.NewUnavailable(nil, "away")))
	case 3:
		d.world.Script(at, fake.Fail(runtime.NewUnavailable(nil, "away for long")).Always())
	case 4:
		d.world.ClearScripts()
	case 5:
		d.world.Script(at, fake.LoseReply())
	case 6:
		d.world.Script(fake.At{Verb: pick(d, "late", runtime.VerbPowerOn, runtime.VerbPowerOff, runtime.VerbMigrate)}, fake.ActLate(1+d.roll("steps", 3)))
	case 7:
		d.world.Script(fake.At{Verb: pick(d, "task", runtime.VerbPowerOn, runtime.VerbMigrate, runtime.VerbPowerOff)}, fake.FailTask("no memory"))
	case 8:
		d.releases = append(d.releases, d.world.Hold(uid, pick(d, "held", runtime.TaskPowerOn, runtime.TaskRelocate, runtime.TaskPowerOff)))
	}
}

func (d *dice) passTime() {
	d.sleep(pick(d, "time", time.Millisecond, 300*time.Millisecond, time.Second, 3*time.Second, 20*time.Second, 11*time.Minute))
}

func (d *dice) deleteOperation() {
	var there []*v1alpha1.VirtualMachineOperation
	for _, o := range d.store.operationsOf(namespace, "", len(d.store.log)) {
		if o.DeletionTimestamp.IsZero() {
			there = append(there, o)
		}
	}
	if len(there) > 0 {
		d.delete(there[d.roll("which", len(there))])
	}
}

func (d *dice) changeSpec() {
	d.change(func(vm *v1alpha1.VirtualMachine) {
		vm.Spec.RunPolicy = d.policy()
		d.trace("run policy of %s becomes %s", vm.Name, vm.Spec.RunPolicy)
	})
}

// change is what a user changes of a machine.
func (d *dice) change(how func(*v1alpha1.VirtualMachine)) {
	if vm := d.machine(d.name()); vm != nil {
		after := vm.DeepCopy()
		how(after)
		if err := d.store.update(after); err != nil {
			d.violated("changing %s: %v", vm.Name, err)
		}
	}
}

func (d *dice) deleteMachine() {
	vm := d.machine(d.name())
	if vm == nil {
		return
	}
	d.delete(vm)
}

func (d *dice) remakeMachine() {
	name := d.name()
	vm := d.machine(name)
	if d.withoutMachines && vm != nil && vm.DeletionTimestamp != nil && !vm.Busy() { // somebody has to let it go
		after := vm.DeepCopy()
		after.Finalizers = nil
		d.world.Lose(vm.UID)
		if err := d.store.update(after); err != nil {
			d.violated("letting %s go: %v", name, err)
		}
	}
	if d.machine(name) == nil {
		d.make(name)
	}
}

func (d *dice) crash() {
	if d.chance("waits", 50) {
		d.model.crash(leaseDuration)
		return
	}
	d.model.crash(0)
}

func (d *dice) failover() { d.model.failover() }

func (d *dice) stop() { d.stopOld() }

func (d *dice) guest() {
	uid := d.uid()
	switch d.roll("guest", 3) {
	case 0:
		d.world.GuestActs(uid)
	case 1:
		d.world.GuestPowersOff(uid)
	case 2:
		d.world.Pause(uid)
	}
	d.settle()
}

func (d *dice) lose() {
	if d.chance("lost", 50) {
		d.world.Lose(d.uid())
		d.settle()
	}
}

// caches has a process see some of what it has not seen yet.
func (d *dice) caches() {
	p := d.process()
	p.seen += d.roll("writes", len(d.store.log)-p.seen+1)
}

func (d *dice) touchSomething() {
	d.touch(d.store.names[d.roll("object", len(d.store.names))])
}

// check makes so many times -rapid.checks runs at random, a fifth of them with -short, and says what there was in them.
func check(t *testing.T, o options, times int) stats {
	t.Helper()
	var total stats
	for range times {
		rapid.Check(t, func(rt *rapid.T) {
			m := inBubble(t, o, func(m *model) {
				(&dice{model: m, T: rt}).run(50)
			})
			total.add(m.stats)
			if m.broken() {
				rt.Fatal(m.report())
			}
		})
	}
	t.Logf("%+v", total)
	return total
}

// Operations alone: the claim is theirs only.
func TestClaimProtocolOfOperations(t *testing.T) { check(t, options{withoutMachines: true}, 10) }

// All origins of claims: operations, the run policy, placement, rollouts and the deletion of machines.
func TestClaimProtocol(t *testing.T) {
	if total := check(t, options{}, 10); len(total.claims) != 5 {
		t.Errorf("not all origins took machines: %v", total.claims)
	}
}
