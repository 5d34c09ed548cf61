package pool

import (
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/pool/busy"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// fixture is a pool whose members all run, and one process that knows everything.
type fixture struct {
	*testing.T
	server *server
	*process
	events *events.FakeRecorder
}

// newFixture makes a pool that was scaled up one by one, a minute after the other.
func newFixture(t *testing.T, replicas int, policy v1alpha1.ScaleDownPolicy, change ...func(*v1alpha1.VirtualMachinePoolSpec)) *fixture {
	t.Helper()
	f := &fixture{T: t, server: newServer(), events: events.NewFakeRecorder(1000)}
	f.process = newProcess(f.server)
	f.Events = f.events
	pool := &v1alpha1.VirtualMachinePool{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.VirtualMachinePoolSpec{
			ScaleDownPolicy:        policy,
			VirtualMachineTemplate: v1alpha1.VirtualMachineTemplate{Spec: v1alpha1.VirtualMachineSpec{Runtime: v1alpha1.VirtualMachineRuntime{Pod: &v1alpha1.PodRuntime{}}}},
		},
	}
	for _, c := range change {
		c(&pool.Spec)
	}
	f.must(f.server.Create(t.Context(), pool))
	for n := range replicas {
		f.scale(n + 1)
		f.settle()
		f.server.now = f.server.now.Add(time.Minute)
	}
	return f
}

// A read-only process makes and deletes no members, and the next one that is not does.
func TestReadOnlyPool(t *testing.T) {
	for _, replicas := range []int{1, 5} {
		f := newFixture(t, 3, v1alpha1.ScaleDownNewestFirst)
		f.Halt = runtime.ReadOnly
		f.scale(replicas)
		status := f.settle()
		if status.Replicas != 3 || len(status.Removing) > 0 {
			t.Errorf("scaled to %d: %+v", replicas, status)
		}
		f.is(status, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonReadOnly, "read-only")
		f.Halt = nil
		if status := f.settle(); int(status.Replicas) != replicas {
			t.Errorf("after read-only: %+v, want %d members", status, replicas)
		}
	}
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// edit changes the pool as somebody does who may.
func (f *fixture) edit(change func(*v1alpha1.VirtualMachinePoolSpec)) {
	f.Helper()
	pool := f.server.pool()
	change(&pool.Spec)
	pool.Generation++
	f.must(f.server.Update(f.Context(), pool))
}

func (f *fixture) scale(replicas int) {
	f.Helper()
	f.edit(func(s *v1alpha1.VirtualMachinePoolSpec) { s.Replicas = new(int32(replicas)) })
}

// change changes a member.
func (f *fixture) change(name string, change func(*v1alpha1.VirtualMachine)) *v1alpha1.VirtualMachine {
	f.Helper()
	vm := &v1alpha1.VirtualMachine{}
	f.must(f.server.Get(f.Context(), client.ObjectKey{Namespace: namespace, Name: name}, vm))
	change(vm)
	status := vm.Status
	f.must(f.server.Update(f.Context(), vm))
	vm.Status = status
	f.must(f.server.Status().Update(f.Context(), vm))
	return vm
}

// look has the process look once at everything as it is, and gives what it says of the pool.
func (f *fixture) look() (v1alpha1.VirtualMachinePoolStatus, time.Duration, error) {
	f.told("")
	result, err := f.pass()
	return f.server.pool().Status, result.RequeueAfter, err
}

// settle has members run and go, and the process look, until nothing changes any more.
func (f *fixture) settle() v1alpha1.VirtualMachinePoolStatus {
	f.Helper()
	for range 20 {
		before := f.server.pool().ResourceVersion
		for _, vm := range f.server.members() {
			if !vm.DeletionTimestamp.IsZero() {
				vm.Finalizers = nil
				f.must(f.server.Update(f.Context(), &vm))
			} else if vm.Status.Phase == "" {
				f.change(vm.Name, func(vm *v1alpha1.VirtualMachine) {
					vm.Status.Phase, vm.Status.ObservedGeneration = "Running", vm.Generation
				})
			}
		}
		status, _, err := f.look()
		f.must(err)
		if f.server.pool().ResourceVersion == before {
			return status
		}
	}
	f.Fatalf("it does not settle: %+v", f.server.pool().Status)
	return v1alpha1.VirtualMachinePoolStatus{}
}

// left names the members that are not being deleted.
func (f *fixture) left() string {
	var names []string
	for _, vm := range f.server.members() {
		if vm.DeletionTimestamp.IsZero() {
			names = append(names, strings.TrimPrefix(vm.Name, name+"-"))
		}
	}
	return strings.Join(names, " ")
}

func (f *fixture) is(status v1alpha1.VirtualMachinePoolStatus, t v1alpha1.ConditionType, want metav1.ConditionStatus, reason v1alpha1.ConditionReason, message string) {
	f.Helper()
	c := t.In(status.Conditions)
	if c == nil || c.Status != want || c.Reason != string(reason) || !strings.Contains(c.Message, message) {
		f.Errorf("condition %s is %+v, want %s %s with %q", t, c, want, reason, message)
	}
}

func protected(vm *v1alpha1.VirtualMachine) {
	metav1.SetMetaDataLabel(&vm.ObjectMeta, v1alpha1.LabelDeletionProtection, v1alpha1.DeletionProtectionEnabled)
}

func phase(p v1alpha1.VirtualMachinePhase) func(*v1alpha1.VirtualMachine) {
	return func(vm *v1alpha1.VirtualMachine) { vm.Status.Phase = p }
}

func TestWhoGoes(t *testing.T) {
	for what, c := range map[string]struct {
		policy v1alpha1.ScaleDownPolicy
		before func(*fixture)
		left   string
	}{
		"the newest":       {"NewestFirst", nil, "0 1"},
		"the oldest":       {"OldestFirst", nil, "2 3"},
		"nobody":           {"Explicit", nil, "0 1 2 3"},
		"who does not run": {"NewestFirst", func(f *fixture) { f.change("web-0", phase("Starting")) }, "1 2"},
		"who is Degraded":  {"OldestFirst", func(f *fixture) { f.change("web-3", phase("Degraded")) }, "1 2"},
		"who is lost, then paused": {"NewestFirst", func(f *fixture) {
			f.change("web-3", phase("Paused"))
			f.change("web-2", phase("Paused"))
			f.change("web-0", phase("Failed"))
		}, "1 2"},
		"one that moves runs":        {"NewestFirst", func(f *fixture) { f.change("web-0", phase("Migrating")) }, "0 1"},
		"who is protected does not":  {"NewestFirst", func(f *fixture) { f.change("web-3", protected) }, "0 3"},
		"who goes already counts":    {"NewestFirst", func(f *fixture) { f.must(f.server.Delete(f.Context(), f.change("web-0", protectedNot))) }, "1 2"},
		"one of the same second":     {"NewestFirst", sameSecond, "0 1"},
		"the oldest of that second":  {"OldestFirst", sameSecond, "2 3"},
		"who was chosen before":      {"NewestFirst", func(f *fixture) { f.chosen("web-0") }, "1 2"},
		"who was named, and another": {"NewestFirst", func(f *fixture) { f.named("web-0") }, "1 2"},
		"who was named, alone":       {"Explicit", func(f *fixture) { f.named("web-0") }, "1 2 3"},
	} {
		t.Run(what, func(t *testing.T) {
			f := newFixture(t, 4, c.policy)
			if c.before != nil {
				c.before(f)
			}
			f.scale(2)
			if _, _, err := f.look(); err != nil || f.left() != c.left {
				t.Fatalf("left are %s, want %s; %v", f.left(), c.left, err)
			}
			if _, _, err := f.look(); err != nil || f.left() != c.left {
				t.Errorf("left are %s in the end; %v", f.left(), err)
			}
		})
	}
}

func protectedNot(*v1alpha1.VirtualMachine) {}

func sameSecond(f *fixture) {
	for _, vm := range f.server.members() {
		f.change(vm.Name, func(vm *v1alpha1.VirtualMachine) { vm.CreationTimestamp = metav1.NewTime(time.Unix(1e9, 0)) })
	}
}

// chosen is what a process leaves that dies after it has chosen.
func (f *fixture) chosen(name string) {
	pool := f.server.pool()
	pool.Status.Removing = []v1alpha1.ScaleDownTarget{member{VirtualMachine: f.change(name, protectedNot)}.asTarget()}
	f.must(f.server.Status().Update(f.Context(), pool))
}

func (f *fixture) named(name string) {
	target := member{VirtualMachine: f.change(name, protectedNot)}.asTarget()
	f.edit(func(s *v1alpha1.VirtualMachinePoolSpec) { s.ScaleDownTargets = append(s.ScaleDownTargets, target) })
}

// mark marks a member as busy.
func (f *fixture) mark(name string, during time.Duration) {
	vm := f.change(name, protectedNot)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: busy.LeaseName(name)}}
	busy.Mark(lease, vm, "https://ci/7", f.server.now, during)
	f.must(f.server.Create(f.Context(), lease))
}

// A member that is named with the UID of another one of that name, or with another name, is not meant.
func TestTargetsAreMeantBeyondDoubt(t *testing.T) {
	f := newFixture(t, 2, v1alpha1.ScaleDownExplicit)
	uid := f.change("web-0", protectedNot).UID
	f.edit(func(s *v1alpha1.VirtualMachinePoolSpec) {
		s.Replicas = new(int32(1))
		s.ScaleDownTargets = []v1alpha1.ScaleDownTarget{{Name: "web-0", UID: "another"}, {Name: "web-1", UID: uid}}
	})
	f.is(f.settle(), v1alpha1.ConditionScaleDownBlocked, metav1.ConditionTrue, v1alpha1.ReasonNobodyNamed,
		"surplus members: 1; scaleDownPolicy Explicit removes only named members (kubectl sallyport scale-down web -n team-a --vm NAME)")
	if f.left() != "0 1" {
		t.Errorf("left are %s", f.left())
	}
}

func TestBusyMembersStay(t *testing.T) {
	f := newFixture(t, 3, v1alpha1.ScaleDownNewestFirst)
	f.mark("web-2", 10*time.Minute)
	f.mark("web-1", 5*time.Minute)
	f.scale(2)
	if status := f.settle(); f.left() != "1 2" {
		t.Fatalf("left are %s: %+v", f.left(), status)
	}
	f.scale(1)
	status, again, err := f.look()
	f.must(err)
	f.is(status, v1alpha1.ConditionScaleDownBlocked, metav1.ConditionTrue, v1alpha1.ReasonMembersBusy,
		"web-2 is busy with https://ci/7 until 2026-11-23T12:13:00Z; web-1 is busy with https://ci/7 until 2026-11-23T12:08:00Z")
	if f.left() != "1 2" || again != blockedRetry {
		t.Errorf("left are %s, and are looked at in %s", f.left(), again)
	}
	f.server.now = f.server.now.Add(5*time.Minute - 10*time.Second)
	if _, again, _ := f.look(); again != 10*time.Second || f.left() != "1 2" {
		t.Errorf("left are %s, and are looked at in %s", f.left(), again)
	}
	f.server.now = f.server.now.Add(10 * time.Second)
	f.is(f.settle(), v1alpha1.ConditionScaleDownBlocked, metav1.ConditionFalse, v1alpha1.ReasonNotBlocked, "")
	if f.left() != "2" {
		t.Errorf("left are %s", f.left())
	}
	// Who is named goes, busy or not.
	f.named("web-2")
	f.scale(0)
	if f.settle(); f.left() != "" {
		t.Errorf("left are %s", f.left())
	}
}

func TestProtectedMembersStay(t *testing.T) {
	f := newFixture(t, 2, v1alpha1.ScaleDownNewestFirst)
	f.change("web-0", protected)
	f.change("web-1", protected)
	f.named("web-0")
	f.scale(0)
	status, again, err := f.look()
	f.must(err)
	f.is(status, v1alpha1.ConditionScaleDownBlocked, metav1.ConditionTrue, v1alpha1.ReasonDeletionRefused, "web-0: ")
	f.is(status, v1alpha1.ConditionScaleDownBlocked, metav1.ConditionTrue, v1alpha1.ReasonDeletionRefused, "; web-1: ")
	f.is(status, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonDeletionRefused, "web-0: ")
	if f.left() != "0 1" || len(status.Removing) > 0 || again != blockedRetry {
		t.Errorf("left are %s of %+v, and are looked at in %s", f.left(), status.Removing, again)
	}
	f.noEvent("FailedDelete")
}

func (f *fixture) noEvent(reason string) {
	f.Helper()
	for {
		select {
		case e := <-f.events.Events:
			if strings.Contains(e, reason) {
				f.Error(e)
			}
		default:
			return
		}
	}
}

// What others have under the names of members stays theirs, and the next number is taken.
func TestNamesOfOthers(t *testing.T) {
	f := newFixture(t, 0, v1alpha1.ScaleDownExplicit)
	theirs := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web-1"}}
	f.must(f.server.Create(f.Context(), theirs))
	labelled := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "web-2", Labels: map[string]string{v1alpha1.LabelPoolUID: string(f.server.pool().UID)},
	}}
	f.must(f.server.Create(f.Context(), labelled))
	f.scale(2)
	if status := f.settle(); f.left() != "0 1 2 3" || status.Replicas != 2 {
		t.Errorf("there are %s: %+v", f.left(), status)
	}
	// One that has lost its label is no member any more, and keeps its name.
	f.change("web-0", func(vm *v1alpha1.VirtualMachine) { delete(vm.Labels, v1alpha1.LabelPoolUID) })
	if status := f.settle(); f.left() != "0 1 2 3 4" || status.Replicas != 2 {
		t.Errorf("there are %s: %+v", f.left(), status)
	}
}

// A pool whose members are off because somebody wants it is as it should be, and does not say that enough of them run.
func TestStoppedOnPurpose(t *testing.T) {
	f := newFixture(t, 2, v1alpha1.ScaleDownExplicit)
	stop := func(status metav1.ConditionStatus, reason v1alpha1.ConditionReason) {
		f.change("web-1", func(vm *v1alpha1.VirtualMachine) {
			vm.Status.Phase = v1alpha1.VirtualMachineStopped
			vm.Status.Conditions = []metav1.Condition{v1alpha1.ConditionReady.Condition(status, reason, vm.Generation, "")}
		})
	}
	stop(metav1.ConditionTrue, v1alpha1.ReasonAsWanted)
	status := f.settle()
	f.is(status, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAsWanted, "")
	f.is(status, v1alpha1.ConditionAvailable, metav1.ConditionFalse, v1alpha1.ReasonMembersStopped, "1 of 2 members are off, as their run policy or the last request wants it")
	if status.ReadyReplicas != 1 || status.StoppedReplicas != 1 {
		t.Errorf("%+v", status)
	}
	stop(metav1.ConditionFalse, v1alpha1.ReasonPowerStateDiffers)
	f.is(f.settle(), v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonInsufficientReadyReplicas, "1 of 2 members are ready")
}

// A quota that is used up costs a few requests, and is told once for each.
func TestCreationIsRefused(t *testing.T) {
	f := newFixture(t, 1, v1alpha1.ScaleDownExplicit)
	f.server.asked, f.server.refuses = 0, apierrors.NewForbidden(machines, "web-1", fmt.Errorf("the quota is used up"))
	f.scale(100)
	status, _, err := f.look()
	if err == nil || f.server.asked != 1 {
		t.Errorf("%d were asked for; %v", f.server.asked, err)
	}
	f.is(status, v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonFailedCreate, "the quota is used up")
	f.is(status, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonInsufficientReadyReplicas, "1 of 100 members are ready")
	f.server.refuses = nil
	if status := f.settle(); status.ReadyReplicas != 100 {
		t.Errorf("%+v", status)
	}
}

func TestNamespaceThatGoes(t *testing.T) {
	f := newFixture(t, 0, v1alpha1.ScaleDownExplicit)
	refused := apierrors.NewForbidden(machines, "web-0", fmt.Errorf("the namespace is being terminated"))
	refused.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	f.server.refuses = refused
	f.scale(1)
	if _, _, err := f.look(); err != nil {
		t.Error(err)
	}
	f.noEvent("FailedCreate")
}

func TestRollout(t *testing.T) {
	unavailable := func(most intstr.IntOrString) func(*v1alpha1.VirtualMachinePoolSpec) {
		return func(s *v1alpha1.VirtualMachinePoolSpec) { s.Rollout.MaxUnavailable = &most }
	}
	for what, c := range map[string]struct {
		most   intstr.IntOrString
		before func(*fixture)
		want   string // who has the new template after one look
	}{
		"one at a time":            {intstr.FromInt32(1), nil, "0"},
		"two at a time":            {intstr.FromInt32(2), nil, "0 1"},
		"a third of five, rounded": {intstr.FromString("30%"), nil, "0 1"},
		"one does not run":         {intstr.FromInt32(1), func(f *fixture) { f.change("web-3", phase("Failed")) }, "3"},
		"one is stopped on purpose": {intstr.FromInt32(1), func(f *fixture) {
			f.change("web-3", func(vm *v1alpha1.VirtualMachine) {
				vm.Spec.RunPolicy = v1alpha1.RunPolicyManual
				vm.Status.Phase, vm.Status.PowerIntent = "Stopped", &v1alpha1.PowerIntent{State: v1alpha1.PowerStopped}
			})
		}, "0"},
		"one is always off": {intstr.FromInt32(1), func(f *fixture) {
			f.change("web-3", func(vm *v1alpha1.VirtualMachine) {
				vm.Spec.RunPolicy, vm.Status.Phase = v1alpha1.RunPolicyAlwaysOff, "Stopped"
			})
		}, "0"},
		"one is being restarted for it": {intstr.FromInt32(1), func(f *fixture) {
			f.change("web-3", func(vm *v1alpha1.VirtualMachine) {
				vm.Spec.RestartApprovalMode = v1alpha1.RestartAutomatic
				vm.Status.Conditions = []metav1.Condition{v1alpha1.ConditionRestartRequired.Condition(metav1.ConditionTrue, v1alpha1.ReasonSpecDiffers, 1, "")}
			})
		}, "3"},
		"one has not taken its spec": {intstr.FromInt32(1), func(f *fixture) {
			f.change("web-3", func(vm *v1alpha1.VirtualMachine) { vm.Generation++ })
		}, "3"},
		"one is missing": {intstr.FromInt32(1), func(f *fixture) { f.must(f.server.Delete(f.Context(), f.change("web-3", protectedNot))) }, ""},
	} {
		t.Run(what, func(t *testing.T) {
			f := newFixture(t, 5, v1alpha1.ScaleDownExplicit, unavailable(c.most))
			if c.before != nil {
				c.before(f)
			}
			f.edit(func(s *v1alpha1.VirtualMachinePoolSpec) { s.VirtualMachineTemplate.Spec.CPU = new(int32(8)) })
			var got []string
			status, _, err := f.look()
			f.must(err)
			for _, vm := range f.server.members() {
				if vm.Labels[v1alpha1.LabelTemplateHash] == status.DesiredTemplateHash {
					got = append(got, strings.TrimPrefix(vm.Name, "web-"))
				}
			}
			if got := strings.Join(got, " "); got != c.want {
				t.Errorf("%s have the new template, want %s", got, c.want)
			}
			f.is(status, v1alpha1.ConditionSynced, metav1.ConditionFalse, v1alpha1.ReasonRolloutInProgress, "have an earlier template")
		})
	}
}

// Whoever is named goes, and is replaced where as many are wanted as before.
func TestNamedIsReplaced(t *testing.T) {
	f := newFixture(t, 2, v1alpha1.ScaleDownExplicit)
	before := f.change("web-0", protectedNot).UID
	f.named("web-0")
	status, _, err := f.look()
	f.must(err)
	if f.left() != "1" || status.Replicas != 2 {
		t.Errorf("left are %s: %+v", f.left(), status)
	}
	if status, _, _ = f.look(); status.ReadyReplicas != 1 || status.UpdatedReplicas != 1 || status.Replicas != 2 {
		t.Errorf("one that goes counts as %+v", status)
	}
	if status = f.settle(); status.ReadyReplicas != 2 || f.change("web-0", protectedNot).UID == before {
		t.Errorf("%+v", status)
	}
}

// What is written rests on what was read: where that has changed everything is looked at again, and no error is made of it.
func TestSomebodyIsFaster(t *testing.T) {
	for what, c := range map[string]struct {
		before func(*fixture)
		call   int // the one before which somebody is faster
		does   func(*fixture)
		check  func(*fixture)
	}{
		"the pool is scaled up before it is written down who goes": {
			func(f *fixture) { f.scale(1) }, 5, func(f *fixture) { f.scale(3) },
			func(f *fixture) {
				if f.left() != "0 1 2" {
					f.Errorf("left are %s", f.left())
				}
			},
		},
		"another machine has the name when the template is written": {
			func(f *fixture) {
				f.edit(func(s *v1alpha1.VirtualMachinePoolSpec) { s.VirtualMachineTemplate.Spec.CPU = new(int32(8)) })
			}, 3, func(f *fixture) {
				f.must(f.server.Delete(f.Context(), f.change("web-0", func(vm *v1alpha1.VirtualMachine) { vm.Finalizers = nil })))
				theirs := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web-0"}}
				f.must(f.server.Create(f.Context(), theirs))
			},
			func(f *fixture) {
				if vm := f.change("web-0", protectedNot); vm.Spec.CPU != nil || len(vm.Labels) > 0 {
					f.Errorf("the template was written over what somebody else made: %+v", vm)
				}
				if c := v1alpha1.ConditionSynced.In(f.server.pool().Status.Conditions); c.Reason == string(v1alpha1.ReasonRolloutFailed) {
					f.Errorf("people are told %+v", c)
				}
			},
		},
	} {
		t.Run(what, func(t *testing.T) {
			f := newFixture(t, 3, v1alpha1.ScaleDownNewestFirst)
			c.before(f)
			f.told("")
			f.Before(c.call, func() { c.does(f) })
			result, err := f.pass()
			if err != nil || result.RequeueAfter != soon {
				t.Errorf("got %+v, %v", result, err)
			}
			c.check(f)
		})
	}
}
