package policy

import (
	"math"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"sallyport.dev/sallyport/api/v1alpha1"
)

func TestStoredRevisions(t *testing.T) {
	f := newFixture(t)
	guard := toy("guard", "a")
	f.Must(f.api.Create(t.Context(), &guard))
	f.settles()
	f.stores("guard", "a")
	for _, step := range []struct {
		word string
		want string
	}{
		{"b", "a b"}, {"a", "b a"}, {"BROKEN", "b a"}, {"b", "a b"}, {"c", "a b c"}, {"d", "b c d"}, {"b", "c d b"}, {"a", "d b a"},
	} {
		f.word("guard", step.word)
		f.settles()
		f.stores("guard", strings.Fields(step.want)...)
	}
	// What decides is not only modules.
	f.patched("guard", `{"spec":{"mode":"Audit"}}`)
	f.settles()
	f.stores("guard", "b", "a", "a")
	// Tests do not decide.
	f.patched("guard", `{"spec":{"tests":[{"name":"a_test.rego","source":"x"}]}}`)
	f.settles()
	f.stores("guard", "b", "a", "a")

	all := &appsv1.ControllerRevisionList{}
	f.Must(f.api.List(t.Context(), all, client.InNamespace(f.Namespace)))
	for _, s := range all.Items {
		if o := s.OwnerReferences; len(o) != 1 || o[0].UID != f.policy("guard").UID || o[0].Controller != nil || !strings.HasPrefix(s.Name, "guard-") {
			t.Errorf("%s is of %+v", s.Name, o)
		}
		f.Must(f.api.Delete(t.Context(), &s))
	}
	f.settles() // somebody deleted them
	f.stores("guard", "a")
}

// The last good revision is stored although the object is broken by the time that it can be.
func TestLastGoodIsStored(t *testing.T) {
	f := newFixture(t)
	guard := toy("guard", "a")
	f.Must(f.api.Create(t.Context(), &guard))
	if _, ok := f.Catalog.State("guard"); !ok { // it has been seen
		t.Fatal("it has not")
	}
	f.word("guard", "BROKEN")
	f.settles()
	f.stores("guard", "a")
	f.shows("guard", "Active", "True LastGoodRevision The last good revision 61 is active instead of the current one. See condition Compiled.")
}

func TestNothingGood(t *testing.T) {
	f := newFixture(t)
	guard := toy("guard", "BROKEN")
	f.Must(f.api.Create(t.Context(), &guard))
	f.settles()
	f.stores("guard")
	f.shows("guard", "Active", "False NoGoodRevision No revision is active: requests that it matches follow spec.onError, which is Deny. See condition Compiled.")
	f.shows("guard", "Shipped", "")
	f.tells("Warning CompileFailed RegoPolicy/guard: No revision is active: requests that it matches follow spec.onError, which is Deny. See condition Compiled. guard/main.rego:1:1: BROKEN")
}

// The last good revision is lost, and what is wrong with the object is not new.
func TestLastGoodIsLost(t *testing.T) {
	f := newFixture(t)
	guard := toy("guard", "a")
	f.Must(f.api.Create(t.Context(), &guard))
	f.settles()
	f.word("guard", "BROKEN")
	f.settles()
	f.told.take()
	f.Catalog = &compiler{api: f.api}
	f.settles()
	f.tells("Warning NoGoodRevision RegoPolicy/guard: No revision is active: requests that it matches follow spec.onError, which is Deny. See condition Compiled.")
	f.word("guard", "b")
	f.settles()
	f.tells("Normal Repaired RegoPolicy/guard", "Normal Activated RegoPolicy/guard: Revision 62 is active.")
}

// The name of a policy is a label of what is stored of it.
func TestLongNames(t *testing.T) {
	f := newFixture(t)
	long, longer := toy(strings.Repeat("a", 63), "a"), toy(strings.Repeat("a", 64), "a")
	f.Must(f.api.Create(t.Context(), &long))
	f.settles()
	f.stores(long.Name, "a")
	if err := f.api.Create(t.Context(), &longer); err == nil || !strings.Contains(err.Error(), "metadata.name must have at most 63 characters") {
		t.Errorf("the error is %v", err)
	}
}

// A revision with a number that nothing can follow, forged or not, does not stay above the one that decides.
func TestRevisionsWithoutASuccessor(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := appsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	guard := toy("guard", "a")
	guard.UID = "uid"
	state := State{Active: "r1", Data: []byte(`{"policy":{"metadata":{"name":"guard","uid":"uid"},"spec":{}}}`)}
	api := fake.NewClientBuilder().WithScheme(scheme).Build()
	r := &Reconciler{Client: api, Live: api, Namespace: "release"}
	stored := func() (numbers []int64) {
		t.Helper()
		if err := r.store(t.Context(), &guard, state); err != nil {
			t.Fatal(err)
		}
		all := &appsv1.ControllerRevisionList{}
		if err := api.List(t.Context(), all); err != nil {
			t.Fatal(err)
		}
		for _, s := range all.Items {
			numbers = append(numbers, s.Revision)
		}
		return numbers
	}
	stored()
	mine := &appsv1.ControllerRevisionList{}
	if err := api.List(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	mine.Items[0].Revision = math.MaxInt64
	if err := api.Update(t.Context(), &mine.Items[0]); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"guard-forged", "guard-other"} {
		err := api.Create(t.Context(), &appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{Namespace: "release", Name: name, Labels: map[string]string{policyLabel: "guard"}},
			Data:       runtime.RawExtension{Raw: state.Data}, Revision: math.MaxInt64,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := stored(); !slices.Equal(got, []int64{1}) {
		t.Errorf("stored are the numbers %v", got)
	}
}

// An object by the name of a revision that is none is not taken for one.
func TestRevisionThatIsNone(t *testing.T) {
	const another = `{"policy":{"metadata":{"name":"guard"},"spec":{}}}`
	labels := map[string]string{policyLabel: "guard"}
	for name, tc := range map[string]struct {
		labels map[string]string
		data   func(mine string) string
	}{
		"labelled":                  {labels, func(string) string { return another }},
		"not labelled":              {nil, func(string) string { return another }},
		"its libraries are no list": {labels, func(mine string) string { return strings.Replace(mine, "{", `{"libraries":1,`, 1) }},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			guard := toy("guard", "a")
			f.Must(f.api.Create(t.Context(), &guard))
			f.settles()
			all := &appsv1.ControllerRevisionList{}
			f.Must(f.api.List(t.Context(), all, client.InNamespace(f.Namespace)))
			f.Must(f.api.Delete(t.Context(), &all.Items[0]))
			f.Must(f.api.Create(t.Context(), &appsv1.ControllerRevision{
				ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: all.Items[0].Name, Labels: tc.labels},
				Data:       runtime.RawExtension{Raw: []byte(tc.data(string(all.Items[0].Data.Raw)))},
			}))
			f.word("guard", "BROKEN a")
			err := f.pass()
			if err == nil || !strings.Contains(err.Error(), "is not a stored revision of RegoPolicy guard") {
				t.Errorf("the error is %v", err)
			}
			f.shows("guard", "Compiled", "False CompileFailed guard/main.rego:1:1: BROKEN") // the status is written all the same
		})
	}
}

// The status is about an object that the catalog has seen.
func TestNothingIsSaidOfWhatIsNotSeen(t *testing.T) {
	f := newFixture(t)
	guard := toy("guard", "a")
	f.Must(f.api.Create(t.Context(), &guard))
	seen, _ := f.Catalog.State("guard")
	f.word("guard", "BROKEN")
	f.Catalog = catalogOf(func(string) (State, bool) { return seen, true })
	f.Must(f.pass())
	if got := f.policy("guard").Status; got.ObservedGeneration != 0 || len(f.writes) != 0 {
		t.Errorf("it says %+v", got)
	}
	// Caches that are being filled are nothing new after a restart.
	f.Catalog = &compiler{api: f.api}
	f.word("guard", "b")
	f.settles()
	filling, _ := f.Catalog.State("guard")
	filling.Reads, filling.Active, filling.Data = Finding{Reason: v1alpha1.ReasonReadsNotSynced, Message: "pods"}, "", nil
	f.Catalog = catalogOf(func(string) (State, bool) { return filling, true })
	f.writes = nil
	f.Must(f.pass())
	if len(f.writes) != 0 {
		t.Error("it says that nothing decides")
	}
}

type catalogOf func(string) (State, bool)

func (c catalogOf) State(name string) (State, bool) { return c(name) }
