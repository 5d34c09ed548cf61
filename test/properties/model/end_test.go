package model

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/double/fake"
)

// end has nothing more go wrong, lets the leader do what is on its queue, and sees that all comes to rest as it should.
func (m *model) end(restart bool) {
	m.trace("--- nothing goes wrong any more")
	m.fair()
	m.stopOld()
	if restart {
		m.leader.kill()
		m.leader = m.newProcess(0)
	}
	m.sleep(max(0, time.Until(m.leader.until)))
	for parked := m.leader.parked(); len(parked) > 0 && !m.broken(); parked = m.leader.parked() {
		m.step(parked[0], goOn)
	}
	q := m.newQueue()
	why, quiet := "", 0
	for round := 0; round < 90 && quiet < 2 && !m.broken(); round++ {
		writes, effects := len(m.store.log), m.effects
		q.work()
		m.guests()
		m.people()
		m.world.AdvanceAll()
		m.settle()
		q.sleep(round)
		why = m.unrest()
		if why == "" && writes == len(m.store.log) && effects == m.effects {
			quiet++
		} else {
			quiet = 0
		}
	}
	if m.broken() {
		return
	}
	if quiet < 2 {
		m.violated("it does not come to rest: %s", why)
		return
	}
	m.steady()
	m.checkOrder()
	m.checkInstances()
}

// fair undoes all that stands in the way.
func (m *model) fair() {
	m.world.ClearScripts()
	for _, release := range m.releases {
		release()
	}
	m.releases = nil
	for uid := range m.machines {
		m.world.SetGuest(uid, fake.Guest{Steps: 1})
		m.world.SetCancels(uid, fake.Cancels{})
		m.world.SetHibernations(uid, fake.Hibernations{})
	}
	m.fairToMoves()
}

// guests has the guests heed what they were asked for before.
func (m *model) guests() {
	for _, in := range m.world.Instances() {
		m.world.GuestActs(in.Owner)
	}
	m.settle()
}

// queue is the leader's: what it works on, and when. In the end only events and what reconcilers ask for themselves bring
// anything there, so that a wake-up that is missing shows.
type queue struct {
	*model
	seen int // of the store's writes
	due  map[task]time.Time
}

func (m *model) newQueue() *queue {
	q := &queue{model: m, seen: len(m.store.log), due: map[task]time.Time{}}
	for _, of := range m.store.names { // the first list of a watch, or what has not been worked on yet
		q.event(of, nil, m.store.current[of])
		if of.kind == machines && m.store.current[of] != nil {
			q.due[task{ofOperations, of.NamespacedName}] = time.Now()
		}
	}
	return q
}

// event puts on the queue what the watches of the reconcilers would.
func (q *queue) event(of id, before, now any) {
	add := func(r role, key types.NamespacedName) {
		if slices.Contains(q.roles(), r) {
			q.due[task{r, key}] = time.Now()
		}
	}
	if of.kind == operations {
		for _, o := range []any{before, now} {
			if o, is := o.(*v1alpha1.VirtualMachineOperation); is {
				add(ofOperations, types.NamespacedName{Namespace: of.Namespace, Name: o.Spec.VirtualMachineName})
			}
		}
		return
	}
	add(ofMachines, of.NamespacedName)
	concerns := func(o any) bool {
		vm, is := o.(*v1alpha1.VirtualMachine)
		return is && (vm.Busy() || !vm.DeletionTimestamp.IsZero())
	}
	was, waited := before.(*v1alpha1.VirtualMachine)
	is, there := now.(*v1alpha1.VirtualMachine)
	if concerns(before) || concerns(now) || !there || (waited && was.UID != is.UID) {
		add(ofOperations, of.NamespacedName)
	}
}

// work does all that is due.
func (q *queue) work() {
	for turns := 0; !q.broken(); turns++ {
		for ; q.seen < len(q.store.log); q.seen++ {
			v := q.store.log[q.seen]
			q.event(v.id, asAny(q.store.at(v.id, q.seen)), asAny(v.object))
		}
		next, is := q.next()
		if !is || q.due[next].After(time.Now()) {
			return
		}
		if turns > 500 {
			q.violated("the queue never runs empty: %v is always due", next)
			return
		}
		delete(q.due, next)
		w := q.leader.start(next)
		q.drive(w)
		if w.process != q.leader { // it was interrupted: the new leader begins anew
			q.due = q.newQueue().due
			continue
		}
		if !w.done && !q.broken() {
			q.violated("%s waits for ever", w)
		}
		switch {
		case w.err != nil:
			q.due[next] = time.Now().Add(time.Second)
		case w.result.RequeueAfter > 0:
			q.due[next] = time.Now().Add(w.result.RequeueAfter)
		}
	}
}

// next gives what is due first.
func (q *queue) next() (first task, is bool) {
	for t, at := range q.due {
		if !is || at.Before(q.due[first]) || (at.Equal(q.due[first]) && fmt.Sprint(t) < fmt.Sprint(first)) {
			first, is = t, true
		}
	}
	return first, is
}

// sleep lets time pass until something is due, and the more beyond that the longer it takes already: a queue may be late.
func (q *queue) sleep(round int) {
	until := time.Now().Add(time.Second)
	if next, is := q.next(); is {
		until = q.due[next]
	}
	more := time.Duration(0)
	if round > 12 {
		more = time.Second << min(round-12, q.latest())
	}
	q.model.sleep(max(0, time.Until(until)) + more)
}

func asAny(o any) any { return o }

// unrest says why the model is not at rest, or nothing.
func (m *model) unrest() string {
	for _, of := range m.store.names {
		switch o := m.store.current[of].(type) {
		case *v1alpha1.VirtualMachineOperation:
			if !o.Finished() || len(o.Finalizers) > 0 || !o.DeletionTimestamp.IsZero() {
				return fmt.Sprintf("%s %s is %s/%s, deleted %v, with finalizers %v", o.Spec.Type, o.Name, o.Status.Phase, reasonOf(o), o.DeletionTimestamp, o.Finalizers)
			}
		case *v1alpha1.VirtualMachine:
			if why := m.unrestOf(o); why != "" {
				return fmt.Sprintf("machine %s %s", o.Name, why)
			}
		}
	}
	return ""
}

// unrestOf says why a machine is not at rest.
func (m *model) unrestOf(vm *v1alpha1.VirtualMachine) string {
	in, there := m.world.Instance(vm.UID)
	switch {
	case vm.Busy():
		return "has something in its claim: " + claimOf(vm)
	case m.withoutMachines && !vm.DeletionTimestamp.IsZero():
		return "" // nobody takes its finalizer off
	case !vm.DeletionTimestamp.IsZero():
		return "is being deleted"
	case m.hibernates && m.unrestOfMove(vm) != "":
		return m.unrestOfMove(vm)
	case !there:
		return m.unrestWithout(vm)
	case vm.Status.Phase != phaseOf(in.Power) && !m.phaseMayLag(vm.UID):
		return fmt.Sprintf("is %s and its phase is %s", in.Power, vm.Status.Phase)
	case m.withoutMachines:
		return m.unlikeLast(vm, in)
	}
	return cmp.Or(m.unlikeWanted(vm, in), unlikePlacement(vm, in), unlikeSize(vm, in))
}

// unrestWithout says what is wrong with a machine of which there is no instance.
func (m *model) unrestWithout(vm *v1alpha1.VirtualMachine) string {
	ready := meta.FindStatusCondition(vm.Status.Conditions, string(v1alpha1.ConditionReady))
	switch {
	case m.withoutMachines:
		return ""
	case ready == nil || ready.Status == metav1.ConditionTrue:
		return "has no instance, and does not say so"
	case vm.Status.InstanceID == "" && ready.Reason != string(v1alpha1.ReasonInstanceNotFound) && ready.Reason != string(v1alpha1.ReasonOwnedByAnother):
		return "was not made: " + ready.Reason
	}
	return ""
}

func phaseOf(p v1alpha1.PowerState) v1alpha1.VirtualMachinePhase {
	switch p {
	case v1alpha1.PowerRunning:
		return v1alpha1.VirtualMachineRunning
	case v1alpha1.PowerPaused:
		return v1alpha1.VirtualMachinePaused
	}
	return v1alpha1.VirtualMachineStopped
}

// unlikeWanted says how a machine is on or off against what is wanted of it.
func (m *model) unlikeWanted(vm *v1alpha1.VirtualMachine, in fake.Instance) string {
	var want v1alpha1.PowerState
	intent := vm.Status.PowerIntent
	switch vm.Spec.RunPolicy {
	case v1alpha1.RunPolicyAlwaysOn:
		want = v1alpha1.PowerRunning
	case v1alpha1.RunPolicyAlwaysOff:
		want = v1alpha1.PowerStopped
	case v1alpha1.RunPolicyAlwaysOnUnlessStoppedManually:
		if intent == nil || intent.State != v1alpha1.PowerStopped || intent.By == string(v1alpha1.OriginRunPolicy) {
			want = v1alpha1.PowerRunning
		}
	}
	ready := meta.FindStatusCondition(vm.Status.Conditions, string(v1alpha1.ConditionReady))
	off := in.Power == v1alpha1.PowerStopped
	paused := in.Power == v1alpha1.PowerPaused
	asIs := want == "" && !paused && (intent == nil || intent.State == in.Power) || want == in.Power
	switch {
	case want != "" && off != (want == v1alpha1.PowerStopped), paused && vm.Spec.RunPolicy == v1alpha1.RunPolicyAlwaysOn:
		return fmt.Sprintf("is %s, and run policy %s wants it %s", in.Power, vm.Spec.RunPolicy, want)
	case ready == nil:
		return "does not say whether it is as wanted"
	case !asIs && ready.Reason != string(v1alpha1.ReasonPowerStateDiffers):
		return fmt.Sprintf("is %s, its intent is %+v, and it shows %s", in.Power, intent, ready.Reason)
	case asIs && ready.Reason == string(v1alpha1.ReasonPowerStateDiffers):
		return fmt.Sprintf("is %s as it should be, and shows %s", in.Power, ready.Message)
	}
	return ""
}

// unlikeLast holds a machine that no run policy keeps against the last operation that ended well, if nothing has come between.
func (m *model) unlikeLast(vm *v1alpha1.VirtualMachine, in fake.Instance) string {
	p := m.of(vm.UID)
	if len(p.claims) == 0 {
		return ""
	}
	last := p.claims[len(p.claims)-1]
	o := m.requests[types.UID(last.ID)]
	if o == nil || reasonOf(o) != string(v1alpha1.ReasonSucceeded) || m.disturbed(vm.UID, last) {
		return ""
	}
	want := v1alpha1.PowerRunning
	switch o.Spec.Type {
	case v1alpha1.OperationMigrate, v1alpha1.OperationEvict:
		return ""
	case v1alpha1.OperationStop:
		want = v1alpha1.PowerStopped
	}
	if in.Power != want {
		return fmt.Sprintf("is %s, and %s %s was the last and ended well", in.Power, last.Type, last.Name)
	}
	return ""
}

// phaseMayLag tells whether nobody is there to see what became of the machine after the last operation: it went off by itself,
// or two leaders wrote the phase in turns. With the reconciler of machines somebody is.
func (m *model) phaseMayLag(uid types.UID) bool {
	return m.withoutMachines && (m.disturbed(uid, &held{}) || m.stats.failovers > 0)
}

// disturbed tells whether a machine went on or off by its guest or by an administrator since somebody took it, beyond what
// that one has asked for.
func (m *model) disturbed(uid types.UID, since *held) bool {
	return slices.ContainsFunc(m.world.Effects()[since.effects:], func(e fake.Effect) bool {
		return e.Machine == uid && (e.ByGuest || e.Cause == 0) && (e.Tag == "" || e.Tag != since.ID)
	})
}

// steady sees that at rest a further pass writes nothing and sends nothing.
func (m *model) steady() {
	m.interrupt = nil
	writes, sent := len(m.store.log), m.stats.signals
	for _, of := range m.store.names {
		if of.kind != machines {
			continue
		}
		for _, r := range m.roles() {
			m.drive(m.leader.start(task{r, of.NamespacedName}))
		}
	}
	if writes != len(m.store.log) || sent != m.stats.signals {
		m.violated("a pass over what is at rest writes or sends")
	}
}

// checkInstances sees that each machine was made once, unless an administrator has removed it before anybody knew of it.
func (m *model) checkInstances() {
	made := map[types.UID]bool{}
	for _, e := range m.world.Effects() {
		switch {
		case e.Kind == fake.Deleted:
			made[e.Machine] = false
		case e.Kind == fake.Created && made[e.Machine]:
			m.violated("machine %s was made twice", e.Machine)
		case e.Kind == fake.Created:
			made[e.Machine] = true
		}
	}
	for _, in := range m.world.Instances() {
		if p := m.machines[in.Owner]; in.Owner != "" && p != nil && p.gone && !p.abandoned && !m.withoutMachines {
			m.violated("instance %s is left of a machine that is gone", in.ID)
		}
	}
}
