package pool

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Members are written as their release and what they do: r runs, d is down, g is being deleted. One without a release is not made yet, or
// nobody knows what it was made from.
func TestWhoMayBeReplaced(t *testing.T) {
	for what, c := range map[string]struct {
		most     intstr.IntOrString
		replicas int
		members  string
		change   func(*view)
		want     string // of each turn the numbers of its members, and of how many there is room for
	}{
		"one at a time":                          {intstr.FromInt32(1), 3, "1r 1r 2r", nil, "0,1: 1"},
		"two at a time":                          {intstr.FromInt32(2), 3, "1r 1r 1r", nil, "0,1,2: 2"},
		"half of five, rounded":                  {intstr.FromString("50%"), 5, "1r 1r 1r 1r 1r", nil, "0,1,2,3,4: 3"},
		"a later release, after a roll-back":     {intstr.FromInt32(1), 1, "3r", nil, "0: 1"},
		"all of them are of that release":        {intstr.FromInt32(1), 2, "2r 2r", nil, ""},
		"one is missing":                         {intstr.FromInt32(1), 3, "1r 1r", nil, ""},
		"one is missing, of two":                 {intstr.FromInt32(2), 3, "1r 1r", nil, "0,1: 1"},
		"one is being deleted":                   {intstr.FromInt32(1), 2, "1r 1g", nil, ""},
		"one that is new does not run yet":       {intstr.FromInt32(1), 2, "1r 2d", nil, ""},
		"one that is not made yet":               {intstr.FromInt32(1), 2, "1r d", nil, ""},
		"one of which nothing is known":          {intstr.FromInt32(1), 1, "r", nil, ""},
		"one that is down goes first":            {intstr.FromInt32(1), 2, "1r 1d", nil, "1: 1"},
		"of those that are down no more":         {intstr.FromInt32(1), 3, "1d 1d 1d", nil, "0,1,2: 1"},
		"nor beside one that is missing":         {intstr.FromInt32(1), 2, "1d", nil, ""},
		"those that are down, and one that runs": {intstr.FromInt32(3), 3, "1r 1d 1d", nil, "1,2: 3; 0: 1"},
		"those that were chosen before":          {intstr.FromInt32(1), 3, "1r 1r 1r", func(v *view) { v.before.Removing = []v1alpha1.ScaleDownTarget{v.members[2].asTarget()} }, "2,0,1: 1"},
		"there are too many":                     {intstr.FromInt32(1), 1, "1r 1r", nil, ""},
		"people want to be asked":                {intstr.FromInt32(1), 1, "1r", func(v *view) { v.pool.Spec.VirtualMachineTemplate.Spec.RestartApprovalMode = "Manual" }, ""},
		"no release is ready":                    {intstr.FromInt32(1), 1, "1r", func(v *view) { v.release = "" }, ""},
		"one of another template":                {intstr.FromInt32(1), 1, "1r", func(v *view) { v.members[0].Status.Template.Name = "debian" }, ""},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			v := &view{pool: &v1alpha1.VirtualMachinePool{}, before: &v1alpha1.VirtualMachinePoolStatus{}, release: "2"}
			following(&v.pool.Spec)
			v.pool.Spec.Replicas, v.pool.Spec.Rollout.MaxUnavailable = new(int32(c.replicas)), &c.most
			for slot, text := range strings.Fields(c.members) {
				v.members = append(v.members, memberOf(slot, text))
			}
			if c.change != nil {
				c.change(v)
			}
			var got []string
			for _, turn := range v.batches() {
				var slots []string
				for _, m := range turn.members {
					slots = append(slots, fmt.Sprint(m.slot))
				}
				got = append(got, fmt.Sprintf("%s: %d", strings.Join(slots, ","), turn.room))
			}
			if diff := cmp.Diff(c.want, strings.Join(got, "; ")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// memberOf is a member as a test writes it.
func memberOf(slot int, text string) member {
	vm := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: memberName(name, slot)}}
	release, does := text[:len(text)-1], text[len(text)-1]
	if release != "" {
		vm.Status.Template = &v1alpha1.VSphereTemplateRelease{Name: templateKey.Name, Release: release}
	}
	switch does {
	case 'r':
		vm.Status.Phase = v1alpha1.VirtualMachineRunning
	case 'g':
		vm.DeletionTimestamp = &metav1.Time{}
		vm.DeletionTimestamp.Time = time.Unix(1e9, 0)
	}
	return member{VirtualMachine: vm, slot: slot}
}

func TestWhichReleaseIsReady(t *testing.T) {
	second := func(t *v1alpha1.VSphereTemplate) {
		t.Spec.FailureDomains = append(t.Spec.FailureDomains, v1alpha1.VSphereFailureDomain{Name: "b"})
	}
	for what, c := range map[string]struct {
		change func(*v1alpha1.VSphereTemplate)
		pool   func(*v1alpha1.VirtualMachinePoolSpec)
		want   string
	}{
		"the one that is wanted":         {nil, nil, "2"},
		"of the failure domain":          {second, func(s *v1alpha1.VirtualMachinePoolSpec) { domainOf(s, "a") }, "2"},
		"not of another":                 {second, func(s *v1alpha1.VirtualMachinePoolSpec) { domainOf(s, "b") }, ""},
		"of none, if none is meant":      {second, nil, ""},
		"of none that is to go":          {nil, func(s *v1alpha1.VirtualMachinePoolSpec) { domainOf(s, "c") }, ""},
		"none, if another is wanted":     {func(t *v1alpha1.VSphereTemplate) { t.Spec.Release, t.Generation = "3", t.Generation+1 }, nil, ""},
		"none, since the spec changed":   {func(t *v1alpha1.VSphereTemplate) { t.Generation++ }, nil, ""},
		"none on another vCenter":        {func(t *v1alpha1.VSphereTemplate) { t.Spec.ServerRef.Name = "vc-2" }, nil, ""},
		"none of one that is deleted":    {func(t *v1alpha1.VSphereTemplate) { t.Finalizers = []string{"a/b"} }, nil, ""},
		"none, if the pool follows none": {nil, func(s *v1alpha1.VirtualMachinePoolSpec) { s.Rollout.FollowTemplate = false }, ""},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newServer()
			o := ubuntu("2")
			if c.change != nil {
				c.change(o)
			}
			generation := o.Generation
			if err := s.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			s.observed(o, "2", metav1.ConditionTrue)
			if generation > 0 {
				o.Generation++
				s.must(s.Update(t.Context(), o))
			}
			if len(o.Finalizers) > 0 {
				s.must(s.Delete(t.Context(), o))
			}
			v := &view{pool: &v1alpha1.VirtualMachinePool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}}
			following(&v.pool.Spec)
			if c.pool != nil {
				c.pool(&v.pool.Spec)
			}
			if err := v.readRelease(t.Context(), s, 0); err != nil || v.release != c.want {
				t.Errorf("release %q is ready, want %q; %v", v.release, c.want, err)
			}
		})
	}
}

func domainOf(s *v1alpha1.VirtualMachinePoolSpec, name string) {
	s.VirtualMachineTemplate.Spec.Runtime.VSphere.Clone.Template.TemplateRef.FailureDomain = name
}

// follows is a pool that follows a template, with members of release 1 while release 2 is ready.
func follows(t *testing.T, replicas int, change ...func(*v1alpha1.VirtualMachinePoolSpec)) *fixture {
	t.Helper()
	f := newFixture(t, replicas, v1alpha1.ScaleDownExplicit, append([]func(*v1alpha1.VirtualMachinePoolSpec){following}, change...)...)
	f.must(f.server.Create(t.Context(), ubuntu("1")))
	f.release("1")
	f.come()
	f.settle()
	f.release("2")
	return f
}

// release has the template come to another release.
func (f *fixture) release(release string) {
	f.Helper()
	t := f.server.template()
	t.Spec.Release = release
	t.Generation++
	f.must(f.server.Update(f.Context(), t))
	f.server.observed(t, release, metav1.ConditionTrue)
}

// come has members that are new run, made from the release that is ready, and those that are deleted go.
func (f *fixture) come() {
	f.Helper()
	for _, vm := range f.server.members() {
		switch {
		case !vm.DeletionTimestamp.IsZero():
			vm.Finalizers = nil
			f.must(f.server.Update(f.Context(), &vm))
		case vm.Status.Template == nil:
			f.change(vm.Name, func(vm *v1alpha1.VirtualMachine) {
				vm.Status.Phase, vm.Status.ObservedGeneration = "Running", vm.Generation
				vm.Status.Template = &v1alpha1.VSphereTemplateRelease{Name: "ubuntu", Release: f.server.template().Spec.Release}
			})
		}
	}
}

// of gives the releases of the members, by number, with a minus for one that is missing or being deleted.
func (f *fixture) of() string {
	all := []string{}
	for _, vm := range f.server.members() {
		switch {
		case !vm.DeletionTimestamp.IsZero():
			all = append(all, "-")
		case vm.Status.Template == nil:
			all = append(all, "new")
		default:
			all = append(all, vm.Status.Template.Release)
		}
	}
	return strings.Join(all, " ")
}

// steps has the pool look once for each of what it is to make of its members. They come and go in between.
func (f *fixture) steps(want ...string) v1alpha1.VirtualMachinePoolStatus {
	f.Helper()
	var status v1alpha1.VirtualMachinePoolStatus
	var err error
	for i, w := range want {
		status, _, err = f.look()
		f.must(err)
		if diff := cmp.Diff(w, f.of()); diff != "" {
			f.Fatalf("step %d (-want +got):\n%s", i, diff)
		}
		f.come()
	}
	return status
}

// One member after the other is replaced, and one that is busy when it is idle.
func TestMembersFollowTheirTemplate(t *testing.T) {
	f := follows(t, 3)
	f.mark("web-0", 10*time.Minute)
	f.is(f.steps("1 - 1"), v1alpha1.ConditionSynced, metav1.ConditionFalse, v1alpha1.ReasonRolloutInProgress, "3 of 3 members are not at release 2")
	status := f.steps("1 new 1")
	f.is(status, v1alpha1.ConditionSynced, metav1.ConditionFalse, v1alpha1.ReasonRolloutInProgress, "2 of 2 members are not at release 2 of VSphereTemplate ubuntu")
	status = f.steps("1 2 -", "1 2 new", "1 2 2")
	f.is(status, v1alpha1.ConditionSynced, metav1.ConditionFalse, v1alpha1.ReasonMembersBusy,
		"1 of 3 members are not at release 2 of VSphereTemplate ubuntu: web-0 is busy with https://ci/7 until 2026-11-23T12:13:00Z")
	if status.UpdatedReplicas != 2 {
		t.Errorf("%d members are said to be as the pool wants them", status.UpdatedReplicas)
	}
	f.is(status, v1alpha1.ConditionScaleDownBlocked, metav1.ConditionFalse, v1alpha1.ReasonNotBlocked, "")
	f.is(status, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonMembersBusy, "")
	f.server.now = f.server.now.Add(10 * time.Minute)
	f.steps("- 2 2", "new 2 2")
	f.is(f.settle(), v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAsWanted, "")
	f.event("deleted VirtualMachine web-0, created from release 1, to replace it with release 2 of VSphereTemplate ubuntu")
	// Back again, with what came with a new template meanwhile.
	f.edit(func(s *v1alpha1.VirtualMachinePoolSpec) { s.Rollout.MaxUnavailable = new(intstr.FromString("100%")) })
	f.release("1")
	f.steps("- - -", "new new new", "1 1 1")
}

// event fails the test unless there is an event of that text.
func (f *fixture) event(want string) {
	f.Helper()
	for {
		select {
		case e := <-f.events.Events:
			if strings.Contains(e, want) {
				return
			}
		default:
			f.Errorf("nobody is told %q", want)
			return
		}
	}
}

// A member that a policy keeps stays, and the next one is replaced.
func TestProtectedMembersDoNotFollow(t *testing.T) {
	f := follows(t, 2)
	f.change("web-0", protected)
	f.steps("1 -", "1 new")
	status, again, err := f.look()
	f.must(err)
	f.is(status, v1alpha1.ConditionSynced, metav1.ConditionFalse, v1alpha1.ReasonDeletionRefused, "1 of 2 members are not at release 2 of VSphereTemplate ubuntu: web-0: ")
	if again != blockedRetry || len(status.Removing) > 0 {
		t.Errorf("it is looked at in %s, and %+v go", again, status.Removing)
	}
}

// With restartApprovalMode Manual, or if the pool is not to follow, nobody is replaced.
func TestMembersThatDoNotFollow(t *testing.T) {
	f := follows(t, 2, func(s *v1alpha1.VirtualMachinePoolSpec) {
		s.VirtualMachineTemplate.Spec.RestartApprovalMode = v1alpha1.RestartManual
	})
	status := f.steps("1 1", "1 1")
	f.is(status, v1alpha1.ConditionSynced, metav1.ConditionFalse, v1alpha1.ReasonRestartPendingApproval,
		"2 of 2 members are not at release 2 of VSphereTemplate ubuntu; restartApprovalMode is Manual: delete a member to replace it (kubectl delete svm NAME)")
	if status.UpdatedReplicas != 0 {
		t.Errorf("%d members are said to be as the pool wants them", status.UpdatedReplicas)
	}
	f.edit(func(s *v1alpha1.VirtualMachinePoolSpec) { s.Rollout.FollowTemplate = false })
	f.is(f.steps("1 1"), v1alpha1.ConditionSynced, metav1.ConditionTrue, v1alpha1.ReasonPoolSynced, "")
	f.edit(func(s *v1alpha1.VirtualMachinePoolSpec) {
		s.Rollout.FollowTemplate, s.VirtualMachineTemplate.Spec.RestartApprovalMode = true, v1alpha1.RestartAutomatic
	})
	f.steps("- 1")
}

// While the template cannot be read nothing is done, and it is tried again.
func TestTemplateCannotBeRead(t *testing.T) {
	f := follows(t, 1)
	f.told("")
	delete(f.cache, templateKey) // not in the cache yet: nothing is ready
	if _, err := f.pass(); err != nil || f.of() != "1" {
		t.Errorf("there are %s: %v", f.of(), err)
	}
	f.server.unreadable = true
	if _, _, err := f.look(); err == nil || f.of() != "1" {
		t.Errorf("there are %s: %v", f.of(), err)
	}
	f.server.unreadable = false
	f.steps("-")
}

// A pool is looked at when another release is ready of the template that it follows, and at no step on the way there.
func TestWhoFollows(t *testing.T) {
	t.Parallel()
	s := newServer()
	r := &Reconciler{Client: s}
	for _, c := range []struct {
		name   string
		change func(*v1alpha1.VirtualMachinePoolSpec)
	}{
		{"follows", following},
		{"keeps", func(s *v1alpha1.VirtualMachinePoolSpec) { following(s); s.Rollout.FollowTemplate = false }},
		{"another", func(s *v1alpha1.VirtualMachinePoolSpec) {
			following(s)
			s.VirtualMachineTemplate.Spec.TemplateRef().Name = "debian"
		}},
	} {
		pool := &v1alpha1.VirtualMachinePool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: c.name}}
		c.change(&pool.Spec)
		s.must(s.Create(t.Context(), pool))
	}
	want := []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: namespace, Name: "follows"}}}
	if diff := cmp.Diff(want, r.poolsFollowing(t.Context(), ubuntu("1"))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	begun, done := ubuntu("2"), ubuntu("2")
	s.must(s.Create(t.Context(), begun))
	done.Generation = 1
	done.Status = *begun.Status.DeepCopy()
	done.Status.FailureDomains = []v1alpha1.VSphereFailureDomainStatus{{Name: "a", Release: "2", Conditions: []metav1.Condition{
		v1alpha1.ConditionReady.Condition(metav1.ConditionTrue, v1alpha1.ReasonTemplateReady, 1, ""),
	}}}
	further := done.DeepCopy()
	further.Status.FailureDomains[0].Step = v1alpha1.VSphereTemplateDone
	if !readyChanged.Update(event.UpdateEvent{ObjectOld: begun, ObjectNew: done}) || readyChanged.Update(event.UpdateEvent{ObjectOld: done, ObjectNew: further}) {
		t.Error("a release that is ready is not told, or what changes nothing is")
	}
}

// What is ready is read after the members: one that is made meanwhile, from a release that was rolled back to, is not taken for one of
// another release.
func TestTemplateIsReadLast(t *testing.T) {
	f := follows(t, 1)
	f.change("web-0", func(vm *v1alpha1.VirtualMachine) { vm.Status.Template = nil })
	f.edit(func(s *v1alpha1.VirtualMachinePoolSpec) { s.VirtualMachineTemplate.Spec.CPU = new(int32(8)) }) // so that it looks
	f.told("")
	f.Before(3, func() { f.release("1"); f.come() })
	if _, err := f.pass(); err != nil || f.of() != "1" {
		t.Errorf("there are %s: %v", f.of(), err)
	}
}
