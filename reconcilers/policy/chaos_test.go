package policy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/api/v1alpha1"
)

var errCrash = errors.New("the process ends here")

// story is something that happens to shipped policies: one release, an edit that is seen, something that is not, the next one.
type story struct {
	one, two   []v1alpha1.RegoPolicy
	seen, then func(*fixture)
}

func nothing(*fixture) {}

var stories = map[string]story{
	"upgraded with their library": {
		one: []v1alpha1.RegoPolicy{toy("lib", "has:x", library), toy("edited", "needs:x"), toy("plain", "needs:x")},
		two: []v1alpha1.RegoPolicy{
			toy("lib", "has:x has:y", library), toy("plain", "needs:y"),
			toy("edited", "needs:y", func(p *v1alpha1.RegoPolicy) { p.Spec.TimeoutMilliseconds = 900 }),
		},
		seen: func(f *fixture) { f.word("edited", "mine needs:x") }, then: nothing,
	},
	"dropped": {
		one:  []v1alpha1.RegoPolicy{toy("dropped", "a"), toy("kept", "a")},
		seen: func(f *fixture) { f.word("kept", "mine") }, then: nothing,
	},
	"deleted": {
		one: []v1alpha1.RegoPolicy{toy("deleted", "a")}, two: []v1alpha1.RegoPolicy{toy("deleted", "a")},
		seen: nothing, then: func(f *fixture) { f.Must(f.api.Delete(f.Context(), f.policy("deleted"))) },
	},
	"reset": {
		one: []v1alpha1.RegoPolicy{toy("given-back", "a")}, two: []v1alpha1.RegoPolicy{toy("given-back", "b")},
		seen: func(f *fixture) { f.word("given-back", "mine") },
		then: func(f *fixture) {
			f.patched("given-back", `{"metadata":{"annotations":{"sallyport.dev/release":"reset"}}}`)
		},
	},
	"back and forth": {
		one: []v1alpha1.RegoPolicy{toy("back-and-forth", "a")}, two: []v1alpha1.RegoPolicy{toy("back-and-forth", "a")},
		seen: func(f *fixture) { f.word("back-and-forth", "b") }, then: func(f *fixture) { f.word("back-and-forth", "a") },
	},
	"new": {two: []v1alpha1.RegoPolicy{toy("new-lib", "has:z", library), toy("new", "needs:z")}, seen: nothing, then: nothing},
}

// happens has a story happen. What it comes to is still to be done.
func (f *fixture) happens(s story) {
	f.Helper()
	f.ships("1.0.0", s.one...)
	f.settles()
	s.seen(f)
	f.settles()
	s.then(f)
	f.ships("1.0.0", s.two...)
}

// all is all stories at once.
func all() story {
	together := story{seen: nothing, then: nothing}
	for _, s := range stories {
		before := together
		together = story{
			one: slices.Concat(before.one, s.one), two: slices.Concat(before.two, s.two),
			seen: func(f *fixture) { before.seen(f); s.seen(f) }, then: func(f *fixture) { before.then(f); s.then(f) },
		}
	}
	return together
}

// look gives all there is, as text, but for what differs from one run to the next.
func (f *fixture) look() string {
	f.Helper()
	all := &v1alpha1.RegoPolicyList{}
	f.Must(f.api.List(f.Context(), all))
	var out []string
	for i := range all.Items {
		p := &all.Items[i]
		var owners []string
		for _, e := range p.ManagedFields {
			owners = append(owners, fmt.Sprintf("%s %s %s %s", e.Manager, e.Operation, e.Subresource, e.FieldsV1.GetRawString()))
		}
		slices.Sort(owners)
		for c := range p.Status.Conditions {
			p.Status.Conditions[c].LastTransitionTime = metav1.Time{}
			p.Status.Conditions[c].ObservedGeneration = 0
		}
		text, err := yaml.Marshal(map[string]any{
			"name": p.Name, "labels": p.Labels, "annotations": p.Annotations, "spec": p.Spec, "conditions": p.Status.Conditions, "owners": owners,
			"active": p.Status.ActiveRevision, "stored": f.storedOf(p),
		})
		f.Must(err)
		out = append(out, string(text))
	}
	return strings.Join(out, "---\n")
}

// storedOf gives the stored revisions of a policy that there is.
func (f *fixture) storedOf(p *v1alpha1.RegoPolicy) []string {
	f.Helper()
	all := &appsv1.ControllerRevisionList{}
	f.Must(f.api.List(f.Context(), all, client.InNamespace(f.Namespace), client.MatchingLabels{policyLabel: p.Name}))
	slices.SortFunc(all.Items, func(a, b appsv1.ControllerRevision) int { return cmp.Compare(a.Revision, b.Revision) })
	var hashes []string
	for _, s := range all.Items {
		if s.OwnerReferences[0].UID == p.UID {
			hashes = append(hashes, s.Annotations[revisionAnnotation])
		}
	}
	return hashes
}

// Whichever write fails, or is not heard of any more, a process that starts anew ends where one does that nothing happens to.
func TestCrashAtEveryWrite(t *testing.T) {
	for name, s := range stories {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.happens(s)
			f.settles()
			want := f.look()
			every := 1
			if testing.Short() {
				every = 41
			}
			for at, ended := 0, false; !ended; at += every {
				for _, after := range []bool{false, true} {
					if testing.Short() && after != (at%2 == 0) {
						continue
					}
					f.reset()
					f.happens(s)
					n := 0
					f.crash = func(then bool) error {
						if n > at { // the process is gone
							return errCrash
						}
						if then == after {
							n++
						}
						if then == after && n > at {
							return errCrash
						}
						return nil
					}
					f.mu.Lock()
					f.writes = nil
					f.mu.Unlock()
					err := f.pass()
					ended = n <= at
					if ended == errors.Is(err, errCrash) || at == 0 && ended {
						t.Fatalf("write %d: the error is %v, after %v", at, err, f.writes)
					}
					f.lead(f.Namespace)
					f.crash = nil
					f.settles()
					if diff := gocmp.Diff(want, f.look()); diff != "" {
						t.Errorf("write %d, after: %v: it ends otherwise:\n%s", at, after, diff)
					}
				}
			}
		})
	}
}

// reset makes the cluster as it was, with a new leader.
func (f *fixture) reset() {
	f.Helper()
	f.Must(f.api.DeleteAllOf(f.Context(), &v1alpha1.RegoPolicy{}))
	f.Must(f.api.DeleteAllOf(f.Context(), &appsv1.ControllerRevision{}, client.InNamespace(f.Namespace)))
	f.lead(f.Namespace)
	f.crash = nil
}

// Two processes that both think that they lead.
func TestTwoLeaders(t *testing.T) {
	f := newFixture(t)
	f.happens(all())
	f.settles()
	want := f.look()
	times := 2
	if testing.Short() {
		times = 1
	}
	for range times {
		f.reset()
		f.happens(all())
		var wg sync.WaitGroup
		for range 2 {
			r := f.leader(f.Namespace)
			wg.Go(func() {
				for range 6 {
					if err := passOf(t.Context(), f.api, r); err != nil {
						t.Errorf("a leader: %v", err)
					}
				}
			})
		}
		wg.Wait()
		f.lead(f.Namespace)
		f.settles()
		if diff := gocmp.Diff(want, f.look()); diff != "" {
			t.Errorf("it ends otherwise:\n%s", diff)
		}
	}
}

// Two leaders that disagree about what decides, because one has not seen the last edit, end with the one that has.
func TestTwoLeadersThatDisagree(t *testing.T) {
	f := newFixture(t)
	guard := toy("guard", "a")
	f.Must(f.api.Create(t.Context(), &guard))
	f.settles()
	behind := f.leader(f.Namespace)
	old, _ := f.Catalog.State("guard")
	f.word("guard", "b")
	f.settles()
	all := &appsv1.ControllerRevisionList{}
	f.Must(f.api.List(t.Context(), all, client.InNamespace(f.Namespace)))
	for i := range all.Items {
		all.Items[i].Revision = 7 // both were faster than the other
		f.Must(f.api.Update(t.Context(), &all.Items[i]))
	}
	f.settles()
	f.stores("guard", "a", "b")
	for range 3 {
		if err := behind.store(t.Context(), f.policy("guard"), old); err != nil {
			t.Error(err)
		}
		f.stores("guard", "b", "a")
		f.settles()
		f.stores("guard", "a", "b")
	}
}

func TestNoWriteInSteadyState(t *testing.T) {
	f := newFixture(t)
	f.happens(all())
	f.settles()
	for range 3 {
		f.lead(f.Namespace)
		f.writes = nil
		f.Must(f.pass())
		if len(f.writes) > 0 || len(f.told.take()) > 0 {
			t.Errorf("it writes %v", f.writes)
		}
	}
}
