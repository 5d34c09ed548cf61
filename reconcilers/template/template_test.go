package template

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/templates"
	"sallyport.dev/sallyport/test/support/mortal"
)

// folder is that of failure domain a, b has another.
const folder, otherFolder = "/DC0/vm/a", "/DC0/vm/b"

// create makes the VSphereTemplate with release 1, in failure domain a.
func (w *world) create(t testing.TB, changes ...func(*v1alpha1.VSphereTemplateSpec)) {
	t.Helper()
	o := &v1alpha1.VSphereTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: svst},
		Spec: v1alpha1.VSphereTemplateSpec{
			Name: name, Release: "1", Source: v1alpha1.VSphereTemplateSource{SHA256: "of 1"},
			FailureDomains: []v1alpha1.VSphereFailureDomain{{Name: "a", Folder: folder}},
		},
	}
	for _, change := range changes {
		change(&o.Spec)
	}
	must(t, w.Create(w.ctx, o))
}

func (w *world) change(t testing.TB, change func(*v1alpha1.VSphereTemplateSpec)) {
	t.Helper()
	o := w.template()
	change(&o.Spec)
	must(t, w.Update(w.ctx, o))
}

func release(r string) func(*v1alpha1.VSphereTemplateSpec) {
	return func(s *v1alpha1.VSphereTemplateSpec) { s.Release, s.Source.SHA256 = r, "of "+r }
}

func keep(n int32) func(*v1alpha1.VSphereTemplateSpec) {
	return func(s *v1alpha1.VSphereTemplateSpec) { s.KeepVersions = n }
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// has checks what is in folder a, and how often the name was free meanwhile.
func (w *world) has(t testing.TB, want string, bare int) {
	t.Helper()
	if got := w.describe(folder); got != want || w.bare != bare {
		t.Errorf("the folder has %s, want %s; the name was free after %d calls, want %d", got, want, w.bare, bare)
	}
	w.bare = 0
}

func (w *world) ready(t testing.TB, status metav1.ConditionStatus, reason v1alpha1.ConditionReason, message string) {
	t.Helper()
	c := v1alpha1.ConditionReady.In(w.template().Status.Conditions)
	if c == nil || c.Status != status || c.Reason != string(reason) || !strings.Contains(c.Message, message) {
		t.Errorf("Ready is %+v, want %s, %s, %s", c, status, reason, message)
	}
}

func TestReleases(t *testing.T) {
	p := newWorld(t.Context()).process()
	p.create(t)
	p.settle(t)
	p.has(t, name+"=1", 0)
	p.ready(t, metav1.ConditionTrue, v1alpha1.ReasonTemplateReady, "")
	// Two that were made in the same second are told apart.
	if made := p.named(folder, name).Made; made.Nanosecond() != 7e6 {
		t.Errorf("it was made at %s", made)
	}

	p.change(t, release("2"))
	p.settle(t)
	p.has(t, name+"=2", 1)

	p.change(t, keep(2))
	p.change(t, release("3"))
	p.settle(t)
	p.change(t, release("4"))
	p.settle(t)
	p.has(t, name+"-2=2 "+name+"-3=3 "+name+"=4", 2)
	s := p.template().Status.FailureDomains[0]
	if len(s.Versions) != 3 || s.Release != "4" || s.Step != v1alpha1.VSphereTemplateDone {
		t.Errorf("the status has %+v", s)
	}

	// Back to one that was kept, whatever the source is now.
	p.fetch = func(context.Context, templates.Domain) (templates.Archive, error) {
		t.Error("something was downloaded")
		return nil, errors.New("no")
	}
	p.change(t, func(s *v1alpha1.VSphereTemplateSpec) { s.Release = "2" })
	p.settle(t)
	p.has(t, name+"-3=3 "+name+"-4=4 "+name+"=2", 1)

	p.change(t, keep(0))
	p.settle(t)
	p.has(t, name+"=2", 0)
	must(t, p.Delete(p.ctx, p.template()))
	p.settle(t)
	if p.template() != nil || p.describe(folder) != "" {
		t.Errorf("there is still %v", p.snapshot())
	}
}

// What is not ours stays as it is, and is said; the other failure domain goes on.
func TestForeign(t *testing.T) {
	p := newWorld(t.Context()).process()
	foreign := p.add(folder, "", templates.Item{Name: name, Mark: templates.Mark{Release: "x"}, Stage: templates.Whole})
	p.create(t, func(s *v1alpha1.VSphereTemplateSpec) {
		s.FailureDomains = append(s.FailureDomains, v1alpha1.VSphereFailureDomain{Name: "b", Folder: otherFolder})
	})
	p.settle(t)
	p.has(t, name+"=x!", 0)
	if got := p.describe(otherFolder); got != name+"=1" {
		t.Errorf("the other failure domain has %s", got)
	}
	p.ready(t, metav1.ConditionFalse, v1alpha1.ReasonForeignTemplate, "failure domain a: the folder contains a machine named "+name)
	foreign.Name = "theirs"
	p.settle(t)
	p.has(t, "theirs=x! "+name+"=1", 0)
}

// A restored VSphereTemplate holds back beside what it had before, and takes that over if it is told so, without another import.
func TestTakeOver(t *testing.T) {
	p := newWorld(t.Context()).process()
	for n, mark := range []templates.Mark{{Release: "1"}, {Release: "0"}} {
		p.add(folder, lost+"uid", templates.Item{Mark: mark, Name: []string{name, name + "-0"}[n], Stage: templates.Whole})
	}
	p.fetch = func(context.Context, templates.Domain) (templates.Archive, error) {
		t.Error("something was downloaded")
		return nil, errors.New("no")
	}
	p.create(t)
	p.settle(t)
	p.ready(t, metav1.ConditionFalse, v1alpha1.ReasonOwnedByAnother, "kubectl sallyport take-over svst "+svst+" -n "+namespace)
	decide := func(uid types.UID) {
		o := p.template()
		before := o.DeepCopy()
		o.Annotations = map[string]string{v1alpha1.AnnotationTakeOver: string(uid)}
		must(t, p.Patch(t.Context(), o, client.MergeFrom(before)))
	}
	decide("the UID in a backup")
	p.settle(t)
	p.ready(t, metav1.ConditionFalse, v1alpha1.ReasonOwnedByAnother, "")
	p.change(t, func(s *v1alpha1.VSphereTemplateSpec) { s.KeepVersions = 1 })
	decide(p.template().UID)
	p.settle(t)
	p.ready(t, metav1.ConditionTrue, v1alpha1.ReasonTemplateReady, "")
	p.has(t, name+"-0=0 "+name+"=1", 0)
	if got := p.template().Status.FormerIn("a"); len(got) != 1 || got[0] != lost+"uid" {
		t.Errorf("the status has the former UIDs %v", got)
	}
	p.fetch = func(context.Context, templates.Domain) (templates.Archive, error) { return ova{}, nil }
	p.change(t, release("2"))
	p.settle(t)
	p.has(t, name+"-1=1 "+name+"=2", 1)
}

// Somebody takes the name between the two renames: nothing of it is touched, and nothing of ours lost.
func TestForeignInTheGap(t *testing.T) {
	p := newWorld(t.Context()).process()
	p.create(t)
	p.settle(t)
	var thief *templates.Item
	p.refuse = func(verb string, item *templates.Item, to string) error {
		if verb == "rename" && to == name && thief == nil {
			thief = p.add(folder, "", templates.Item{Name: name, Mark: templates.Mark{Release: "x"}, Stage: templates.Whole})
			return templates.NewTaken(nil, to)
		}
		return nil
	}
	p.change(t, release("2"))
	p.settle(t)
	p.ready(t, metav1.ConditionFalse, v1alpha1.ReasonForeignTemplate, name)
	if got := p.describe(folder); strings.Count(got, "=1") != 1 || strings.Count(got, "=2") != 1 || !strings.Contains(got, name+"=x!") {
		t.Errorf("the folder has %s", got)
	}
	thief.Name = "theirs"
	p.settle(t)
	if got := p.describe(folder); got != "theirs=x! "+name+"=2" {
		t.Errorf("the folder has %s", got)
	}
}

// A template that cannot take the name leaves it to the one that had it, in the same pass.
func TestUndo(t *testing.T) {
	p := newWorld(t.Context()).process()
	p.create(t, keep(1))
	p.settle(t)
	p.refuse = func(verb string, item *templates.Item, to string) error {
		if verb == "rename" && to == name && item.Release == "2" {
			return runtime.NewPermission(nil, "you may not")
		}
		return nil
	}
	p.change(t, release("2"))
	for range 5 {
		_, err := p.pass()
		must(t, err)
		if !p.whole() {
			t.Fatalf("after a pass the name is free: %s", p.describe(folder))
		}
		p.now = p.now.Add(time.Hour)
	}
	p.ready(t, metav1.ConditionFalse, v1alpha1.ReasonPermissionDenied, "you may not")
	p.refuse = nil
	p.bare = 0
	p.settle(t)
	p.has(t, name+"-1=1 "+name+"=2", 1)
}

// What cannot be imported is said, and tried again later and later; the template that there is stays.
func TestImportFails(t *testing.T) {
	p := newWorld(t.Context()).process()
	p.create(t)
	p.settle(t)
	tries := 0
	p.fetch = func(context.Context, templates.Domain) (templates.Archive, error) {
		tries++
		return nil, runtime.NewInvalidSpec(nil, "spec.source.sha256: the content has another")
	}
	p.change(t, release("2"))
	for range 100 {
		_, err := p.pass()
		must(t, err)
		p.now = p.now.Add(10 * time.Second)
	}
	p.has(t, name+"=1", 0)
	p.ready(t, metav1.ConditionFalse, v1alpha1.ReasonInvalidSpec, "spec.source.sha256: the content has another")
	// After 1, 2, 4, ... 256 and 300 seconds, in passes that are 10 seconds apart.
	if tries != 11 {
		t.Errorf("tried %d times in 1,000 s, want 11", tries)
	}
	// A correction is tried at once.
	p.fetch = func(context.Context, templates.Domain) (templates.Archive, error) { return ova{}, nil }
	p.change(t, func(s *v1alpha1.VSphereTemplateSpec) { s.Source.SHA256 = "right" })
	for range 4 {
		_, err := p.pass()
		must(t, err)
	}
	p.has(t, name+"=2", 1)
}

// A failure domain that is taken out loses its templates; one that only has another name keeps them.
// A VSphereTemplate does not wait for the next retry when its VSphereServer was corrected or has become ready again.
func TestServerThatCanBeUsedAgain(t *testing.T) {
	p := newWorld(t.Context()).process()
	p.create(t)
	down := true
	p.r.Stores = func(context.Context, *v1alpha1.VSphereTemplate) (templates.Store, error) {
		if down {
			return nil, runtime.NewUnavailable(nil, "vCenter does not answer")
		}
		return store{p.folders, p.call}, nil
	}
	for range 20 { // until it waits for minutes
		_, err := p.pass()
		must(t, err)
		p.now = p.now.Add(time.Minute)
	}
	p.ready(t, metav1.ConditionUnknown, v1alpha1.ReasonRuntimeUnavailable, "vCenter does not answer")
	down = false
	passes := func() {
		p.r.due[keyOf(p.template().UID, folder)] = p.now.Add(time.Hour)
		for range 4 {
			_, err := p.pass()
			must(t, err)
		}
	}
	passes()
	p.has(t, "", 0)
	server := func(name string, generation int64, status metav1.ConditionStatus) *v1alpha1.VSphereServer {
		s := &v1alpha1.VSphereServer{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: generation}}
		s.Status.Conditions = []metav1.Condition{v1alpha1.ConditionReady.Condition(status, v1alpha1.ReasonConnected, generation, "")}
		return s
	}
	mine := p.template().Spec.ServerRef.Name
	for name, tc := range map[string]struct {
		before, now *v1alpha1.VSphereServer
		want        int
	}{
		"still not ready": {server(mine, 1, metav1.ConditionFalse), server(mine, 1, metav1.ConditionFalse), 0},
		"ready as before": {server(mine, 1, metav1.ConditionTrue), server(mine, 1, metav1.ConditionTrue), 0},
		"another":         {server("other", 1, metav1.ConditionFalse), server("other", 1, metav1.ConditionTrue), 0},
		"another spec":    {server(mine, 1, metav1.ConditionFalse), server(mine, 2, metav1.ConditionFalse), 1},
		"ready again":     {server(mine, 1, metav1.ConditionFalse), server(mine, 1, metav1.ConditionTrue), 1},
	} {
		requested := 0
		if usableAgain.Update(event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.now}) {
			requested = len(p.r.templatesOfServer(t.Context(), tc.now))
		}
		if requested != tc.want {
			t.Errorf("%s: %d requests, want %d", name, requested, tc.want)
		}
	}
	passes() // what was under way when the server became ready fails after it
	p.has(t, name+"=1", 0)
}

func TestFailureDomainsComeAndGo(t *testing.T) {
	p := newWorld(t.Context()).process()
	p.create(t)
	p.settle(t)
	p.change(t, func(s *v1alpha1.VSphereTemplateSpec) { s.FailureDomains[0].Name = "renamed" })
	p.settle(t)
	p.has(t, name+"=1", 0)
	if s := p.template().Status.FailureDomains; len(s) != 1 || s[0].Name != "renamed" || s[0].Release != "1" {
		t.Errorf("the status has %+v", s)
	}
	p.change(t, func(s *v1alpha1.VSphereTemplateSpec) {
		s.FailureDomains[0] = v1alpha1.VSphereFailureDomain{Name: "b", Folder: otherFolder}
	})
	p.settle(t)
	if got := p.describe(folder) + p.describe(otherFolder); got != name+"=1" {
		t.Errorf("there is %s", got)
	}
	if s := p.template().Status.FailureDomains; len(s) != 1 || s[0].Name != "b" {
		t.Errorf("the status has %+v", s)
	}
}

// A failure domain that comes back with another folder waits until its old one is empty, and not longer.
func TestFailureDomainComesBackElsewhere(t *testing.T) {
	const third = "/DC0/vm/c"
	p := newWorld(t.Context()).process()
	p.create(t)
	p.settle(t)
	old := p.named(folder, name)
	old.Busy = true
	p.change(t, func(s *v1alpha1.VSphereTemplateSpec) {
		s.FailureDomains[0] = v1alpha1.VSphereFailureDomain{Name: "b", Folder: otherFolder}
	})
	p.settle(t)
	p.change(t, func(s *v1alpha1.VSphereTemplateSpec) {
		s.FailureDomains = append(s.FailureDomains, v1alpha1.VSphereFailureDomain{Name: "a", Folder: third})
	})
	begun := p.now
	for p.describe(third) != name+"=1" && p.now.Before(begun.Add(2*time.Minute)) {
		result, err := p.pass()
		must(t, err)
		p.now = p.now.Add(result.RequeueAfter)
		old.Busy = false
	}
	if got := p.describe(folder) + p.describe(third); got != name+"=1" {
		t.Errorf("after %v there is %s", p.now.Sub(begun), got)
	}
}

// Where machines are always being made from the present template, the next one takes its name all the same in the end, and the one before
// stays as long as it is in use.
func TestSwapIsNotHeldForEver(t *testing.T) {
	p := newWorld(t.Context()).process()
	p.create(t)
	p.settle(t)
	used := p.named(folder, name)
	used.Busy = true
	p.change(t, release("2"))
	begun, away := p.now, false
	for p.named(folder, name) == used && p.now.Before(begun.Add(time.Hour)) {
		result, err := p.pass()
		must(t, err)
		if p.named(folder, name) == used && p.now.Sub(begun) > time.Minute {
			p.ready(t, metav1.ConditionFalse, v1alpha1.ReasonTemplateInUse, "it is replaced when they are done, or after 30m")
		}
		p.now = p.now.Add(result.RequeueAfter)
		// The vCenter is away for a moment, which does not begin the wait anew.
		if stores := p.r.Stores; p.named(folder, name) == used && p.now.Sub(begun) > 10*time.Minute && !away {
			away = true
			p.r.Stores = func(context.Context, *v1alpha1.VSphereTemplate) (templates.Store, error) {
				return nil, runtime.NewUnavailable(nil, "away")
			}
			result, err := p.pass()
			must(t, err)
			p.r.Stores = stores
			p.now = p.now.Add(result.RequeueAfter)
		}
	}
	if held := p.now.Sub(begun); held < swapPatience || held > swapPatience+5*time.Minute {
		t.Errorf("the names were exchanged after %v", held)
	}
	p.settle(t)
	if got := p.describe(folder); strings.Count(got, "=1") != 1 || !strings.Contains(got, name+"=2") {
		t.Errorf("the folder has %s", got)
	}
	used.Busy = false
	p.settle(t)
	p.has(t, name+"=2", 1)
}

// While a template of one failure domain is in use, a VSphereTemplate that is deleted is looked at from time to time, and no oftener.
func TestDeletionWaitsForWhatIsInUse(t *testing.T) {
	p := newWorld(t.Context()).process()
	p.create(t, func(s *v1alpha1.VSphereTemplateSpec) {
		s.FailureDomains = append(s.FailureDomains, v1alpha1.VSphereFailureDomain{Name: "b", Folder: otherFolder})
	})
	p.settle(t)
	used := p.named(folder, name)
	used.Busy = true
	must(t, p.Delete(p.ctx, p.template()))
	for range 3 {
		result, err := p.pass()
		must(t, err)
		if result.RequeueAfter < time.Second {
			t.Errorf("it is looked at again after %v", result.RequeueAfter)
		}
	}
	p.ready(t, metav1.ConditionFalse, v1alpha1.ReasonTemplateInUse, name)
	used.Busy = false
	p.settle(t)
	if p.template() != nil || p.describe(folder)+p.describe(otherFolder) != "" {
		t.Errorf("there is still %v", p.snapshot())
	}
}

// A process may die before and after every one of its calls, in every history: at the next pass the name is on a whole template again if
// it ever was, and in the end nothing is left over.
func TestCrashAtEveryCall(t *testing.T) {
	histories := map[string][]func(*testing.T, *process){
		"the first": {func(t *testing.T, p *process) { p.create(t) }},
		"the next": {
			func(t *testing.T, p *process) { p.create(t) },
			func(t *testing.T, p *process) { p.change(t, release("2")) },
		},
		"one is kept": {
			func(t *testing.T, p *process) { p.create(t, keep(1)) },
			func(t *testing.T, p *process) { p.change(t, release("2")) },
			func(t *testing.T, p *process) { p.change(t, release("3")) },
		},
		"back": {
			func(t *testing.T, p *process) { p.create(t, keep(1)) },
			func(t *testing.T, p *process) { p.change(t, release("2")) },
			func(t *testing.T, p *process) { p.change(t, release("1")) },
		},
		"moved": {
			func(t *testing.T, p *process) { p.create(t) },
			func(t *testing.T, p *process) {
				p.change(t, func(s *v1alpha1.VSphereTemplateSpec) {
					s.FailureDomains[0] = v1alpha1.VSphereFailureDomain{Name: "b", Folder: otherFolder}
				})
			},
		},
		"deleted": {
			func(t *testing.T, p *process) { p.create(t, keep(1)) },
			func(t *testing.T, p *process) { p.change(t, release("2")) },
			func(t *testing.T, p *process) { must(t, p.Delete(p.ctx, p.template())) },
		},
	}
	every := 1
	if testing.Short() {
		every = 3
	}
	points := 0
	for what, history := range histories {
		var want string
		for dies := 0; ; dies += every {
			ended := false
			for _, after := range []bool{false, true} {
				p := newWorld(t.Context()).process()
				for i, happens := range history {
					happens(t, p)
					if i == len(history)-1 {
						stays := p.whole() && what != "deleted" && what != "moved"
						p.Begin()
						p.Die(dies, after)
						_, _ = p.pass()
						for range 8 { // as far as it gets
							_, _ = p.pass()
						}
						ended = dies > 0 && !p.dead()
						p.renew()
						_, _ = p.pass()
						if stays && !p.whole() {
							t.Fatalf("%s, call %d, after %v: the name is free after the next pass: %s", what, dies, after, p.describe(folder))
						}
					}
					p.settle(t)
				}
				got := p.snapshot()
				delete(got, "status")
				if dies == 0 {
					want = fmt.Sprint(got)
				}
				if fmt.Sprint(got) != want {
					t.Errorf("%s, call %d, after %v: %v, want %s", what, dies, after, got, want)
				}
				points++
			}
			if ended {
				break
			}
		}
	}
	t.Logf("%d points", points)
}

// dead tells whether the process has died.
func (p *process) dead() bool { return errors.Is(p.Call(func() error { return nil }), mortal.ErrDied) }

// Two processes that both take themselves for the leader, people who change the spec and the folder, calls that are refused: what is not
// ours is never touched (the store panics), and once all is quiet everything is as it is wanted.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t.Context())
		one, two := w.process(), w.process()
		w.create(t, keep(int32(rapid.IntRange(0, 2).Draw(rt, "keep"))))
		stranger := 0
		rt.Repeat(map[string]func(*rapid.T){
			"one passes": func(*rapid.T) { _, _ = one.pass() },
			"two passes": func(*rapid.T) { _, _ = two.pass() },
			"two acts within a pass of one": func(rt *rapid.T) {
				one.Begin()
				one.Before(rapid.IntRange(1, 12).Draw(rt, "call"), func() { _, _ = two.pass() })
				_, _ = one.pass()
				one.Begin()
			},
			"one dies": func(rt *rapid.T) {
				one.Begin()
				one.Die(rapid.IntRange(1, 15).Draw(rt, "call"), rapid.Bool().Draw(rt, "after"))
				_, _ = one.pass()
				one.renew()
			},
			"another release": func(rt *rapid.T) {
				w.change(t, release(rapid.SampledFrom([]string{"1", "2", "3", "4"}).Draw(rt, "release")))
			},
			"keep":  func(rt *rapid.T) { w.change(t, keep(int32(rapid.IntRange(0, 2).Draw(rt, "keep")))) },
			"pause": func(rt *rapid.T) { w.change(t, func(s *v1alpha1.VSphereTemplateSpec) { s.Paused = !s.Paused }) },
			"a stranger": func(rt *rapid.T) {
				stranger++
				w.add(folder, "", templates.Item{Name: fmt.Sprintf("theirs-%d", stranger), Mark: templates.Mark{Release: "x"}, Stage: templates.Whole})
			},
			"machines are made": func(rt *rapid.T) {
				for _, item := range w.all[folder] {
					item.Busy = rapid.Bool().Draw(rt, "busy")
				}
			},
			"time": func(*rapid.T) { w.now = w.now.Add(time.Minute) },
		})
		for _, item := range w.all[folder] {
			item.Busy = false
		}
		w.change(t, func(s *v1alpha1.VSphereTemplateSpec) { s.Paused = false })
		two.settle(t)
		one.settle(t)
		if item := w.named(folder, name); item == nil || item.Stage != templates.Whole || item.Release != w.template().Spec.Release {
			rt.Fatalf("the folder has %s", w.describe(folder))
		}
		if ours := len(w.all[folder]) - stranger; ours > 1+int(w.template().Spec.KeepVersions) {
			rt.Fatalf("too much is left: %s", w.describe(folder))
		}
	})
}
