package shipping

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"sallyport.dev/sallyport/api/v1alpha1"
)

func TestResetOfWhatIsMissing(t *testing.T) {
	f := newFixture(t)
	shipped := f.release("1.0.0")
	f.Must(Reset(t.Context(), f.api, shipped))
	f.reset(shipped)
	f.is(shipped, nothing)
}

func TestResetOfWhatIsSomebodysOwn(t *testing.T) {
	f := newFixture(t)
	shipped := f.release("1.0.0")
	own := shipped.DeepCopy()
	own.Labels, own.Annotations = map[string]string{"team": "a"}, nil
	own.Spec.Mode, own.Spec.Tests = "Warn", nil
	own.Spec.Match.ExcludeNamespaces = []string{"x"}
	f.Must(f.api.Create(t.Context(), own))
	if Shipped(f.live()) {
		t.Error("it is taken for a shipped one")
	}
	f.reset(shipped)
	if got := f.policy(); got.Labels["team"] != "a" || got.Labels[Label] != "true" || !Shipped(got) || !Retiring(got) {
		t.Errorf("it is %+v", got.ObjectMeta)
	}
}

// Nothing but what is shipped remains of whatever somebody writes, also of what has no value.
func TestResetOfOddities(t *testing.T) {
	f := newFixture(t)
	shipped := f.release("1.0.0", func(s *v1alpha1.RegoPolicySpec) {
		parameters(s, func(p map[string]any) { p["none"], p["empty"], p["limit"] = nil, map[string]any{}, 1.5 })
	})
	f.ship(shipped)
	f.edited(shipped)
	patched("json", `[{"op":"add","path":"/spec/parameters/supersededBy/Start","value":null},{"op":"add","path":"/spec/parameters/x","value":{"y":null,"z":[]}},
		{"op":"add","path":"/spec/match/namespaceSelector","value":{}},
		{"op":"add","path":"/spec/parameters/empty/not","value":"any more"},{"op":"replace","path":"/spec/parameters/limit","value":2}]`)(f)
	f.ship(f.release("2.0.0", second))
	f.reset(shipped)
}

// What somebody makes of a list is told once, not with each part that it has then.
func TestEditOfAListThatHasPartsThen(t *testing.T) {
	for name, value := range map[string]string{"by a plain name": `{"most":3}`, "by another name": `{"at most":3}`} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			shipped := f.release("1.0.0", func(s *v1alpha1.RegoPolicySpec) { parameters(s, func(p map[string]any) { p["limit"] = []any{3} }) })
			f.ship(shipped)
			patched("merge", `{"spec":{"parameters":{"limit":`+value+`}}}`)(f)
			f.edited(shipped, "spec.parameters.limit")
			f.reset(shipped)
		})
	}
}

var errGone = errors.New("the process ends here")

// A process that ends between the two writes of a reset leaves a policy that decides as before, and whoever finds it finishes.
func TestResetThatIsInterrupted(t *testing.T) {
	f := newFixture(t)
	shipped := f.release("1.0.0")
	f.ship(shipped)
	patched("merge", `{"spec":{"mode":"Audit","parameters":{"supersededBy":{"Start":null,"Mine":[]}}}}`)(f)
	before := f.policy()
	interrupted := interceptor.NewClient(f.api, interceptor.Funcs{
		Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
			return errGone
		},
	})
	if err := Reset(t.Context(), interrupted, shipped); !errors.Is(err, errGone) {
		t.Fatal(err)
	}
	between := f.policy()
	if spec(f, between) != spec(f, before) || between.Generation != before.Generation || !ResetWanted(between) || !Shipped(between) {
		t.Errorf("meanwhile it is\n%s", spec(f, between))
	}
	f.reset(shipped)
}

// Somebody who edits the policy in the middle of a reset is not half overwritten: the reset begins again.
func TestEditDuringReset(t *testing.T) {
	f := newFixture(t)
	shipped := f.release("1.0.0")
	f.ship(shipped)
	patched("merge", `{"spec":{"mode":"Audit"}}`)(f)
	applied := 0
	busy := interceptor.NewClient(f.api, interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			if applied++; applied == 1 {
				patched("merge", `{"spec":{"mode":"Warn","parameters":{"supersededBy":{"Mine":["Stop"]}}}}`)(f)
			}
			return c.Apply(ctx, o, opts...)
		},
	})
	f.Must(Reset(t.Context(), busy, shipped))
	if applied != 2 {
		t.Errorf("it was applied %d times", applied)
	}
	f.is(shipped, nothing)
	f.edited(shipped)
}

// A leader whose cache is of before finds a reset that its user has completed, and has edited the policy since: the edit stays.
func TestResetThatIsComplete(t *testing.T) {
	f := newFixture(t)
	shipped := f.release("1.0.0")
	f.ship(shipped)
	patched("merge", `{"metadata":{"annotations":{"sallyport.dev/release":"reset"}}}`)(f)
	f.Must(Reset(t.Context(), f.api, shipped))
	patched("merge", `{"spec":{"mode":"Audit"}}`)(f)
	if wanted, err := Complete(t.Context(), f.api, shipped); wanted || err != nil {
		t.Errorf("it is completed again: %t, error %v", wanted, err)
	}
	f.edited(shipped, "spec.mode")
	patched("merge", `{"metadata":{"annotations":{"sallyport.dev/release":"reset"}}}`)(f)
	if wanted, err := Complete(t.Context(), f.api, shipped); !wanted || err != nil {
		t.Errorf("it is not completed: %t, error %v", wanted, err)
	}
	f.edited(shipped)
}

// Others who write the policy again and again do not end the reset.
func TestResetAmongOtherWriters(t *testing.T) {
	f := newFixture(t)
	shipped := f.release("1.0.0")
	f.ship(shipped)
	patched("merge", `{"spec":{"mode":"Audit"}}`)(f)
	const others = 6
	tried := 0
	late := interceptor.NewClient(f.api, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if tried++; tried <= others {
				patched("merge", fmt.Sprintf(`{"metadata":{"annotations":{"other":"%d"}}}`, tried))(f)
			}
			return c.Patch(ctx, o, p, opts...)
		},
	})
	f.Must(Reset(t.Context(), late, shipped))
	if tried != others+1 {
		t.Errorf("the fields were taken over in attempt %d, after %d conflicts", tried, others)
	}
	f.is(shipped, nothing)
}

// A step is refused if the policy changed since it was looked at.
func TestStepThatIsLate(t *testing.T) {
	f := newFixture(t)
	f.ship(f.release("1.0.0"))
	step, err := Next(f.live(), f.release("2.0.0", second))
	f.Must(err)
	patched("merge", `{"spec":{"mode":"Audit"}}`)(f)
	if _, err := step.Try(t.Context(), f.api); !apierrors.IsConflict(err) {
		t.Errorf("the error of the test run is %v", err)
	}
	if _, err := step.Do(t.Context(), f.api); !apierrors.IsConflict(err) {
		t.Errorf("the error is %v", err)
	}
	f.Must(f.api.Delete(t.Context(), f.policy()))
	if _, err := step.Do(t.Context(), f.api); !apierrors.IsConflict(err) {
		t.Errorf("the error is %v", err)
	}
}

// What is in conflict unforeseen is left out then.
func TestConflictsThatAreNotForeseen(t *testing.T) {
	f := newFixture(t)
	one, two := f.release("1.0.0"), f.release("2.0.0", second)
	f.ship(one)
	patched("merge", `{"spec":{"mode":"Audit","timeoutMilliseconds":100,"parameters":{"supersededBy":{"Start":["Restart"]}}}}`)(f)
	live := f.live()
	step, err := Next(live, two)
	f.Must(err)
	step.set = step.plan.configuration(live, f.name, step.plan.shipped.set)
	_, err = step.Do(t.Context(), f.api)
	f.Must(err)
	f.edited(two, "spec.mode", "spec.parameters.supersededBy.Start", "spec.timeoutMilliseconds")
	f.is(two, func(s *v1alpha1.RegoPolicySpec) {
		s.Mode, s.TimeoutMilliseconds = "Audit", 100
		rows(s, func(t map[string]any) { t["Start"] = []any{"Restart"} })
	})
}

// Whatever becomes of the record, nothing is lost and nothing is written without end.
func TestRecords(t *testing.T) {
	for name, tc := range map[string]struct {
		do  func(f *fixture, key string)
		new bool // whether new fields come with the next release
	}{
		"left alone": {func(*fixture, string) {}, true},
		"removed": {func(f *fixture, key string) {
			patched("merge", `{"metadata":{"annotations":{"`+key+`":null}}}`)(f)
		}, false},
		"changed": {func(f *fixture, key string) {
			patched("merge", `{"metadata":{"annotations":{"`+key+`":"{}"}}}`)(f)
		}, false},
		"applied by somebody": {func(f *fixture, key string) {
			f.kubectl(f.exported(nothing, "version", "spec"), "apply", "--server-side", "--field-manager=gitops", "-f", "FILE")
		}, true},
		"removed, and found so": {func(f *fixture, key string) {
			patched("merge", `{"metadata":{"annotations":{"`+key+`":null}}}`)(f)
			f.ship(f.release("1.0.0"))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			one, two := f.release("1.0.0"), f.release("2.0.0", second)
			f.ship(one)
			patched("merge", `{"spec":{"parameters":{"supersededBy":{"Stop":null}}}}`)(f)
			_, key, err := recorded(one)
			f.Must(err)
			tc.do(f, key)
			f.ship(one)
			f.edited(one, "spec.parameters.supersededBy.Stop")
			if tc.do(f, key); name == "removed, and found so" {
				f.ship(one)
			}
			f.ship(two)
			p := f.policy()
			if table := string(p.Spec.Parameters.Raw); strings.Contains(table, `"Stop":[`) || strings.Contains(table, `"Pause"`) != tc.new {
				t.Errorf("the table is %s", table)
			}
			f.reset(two)
			three := f.release("3.0.0", second, third)
			f.ship(three)
			f.is(three, nothing)
		})
	}
}

// A release that changes nothing but a value comes also where both records are somebody's, so that only the value tells.
func TestReleaseWhoseRecordIsSomebodys(t *testing.T) {
	f := newFixture(t)
	one, two := f.release("1.0.0"), f.release("1.0.0", func(s *v1alpha1.RegoPolicySpec) { s.TimeoutMilliseconds = 3000 })
	f.ship(one)
	for _, release := range []*v1alpha1.RegoPolicy{one, two} {
		_, key, err := recorded(release)
		f.Must(err)
		patched("merge", `{"metadata":{"annotations":{"`+key+`":"{}"}}}`)(f)
	}
	f.ship(two)
	f.is(two, nothing)
	f.reset(two)
}

// Looking at fields ends well also where the first one decides.
func TestEvery(t *testing.T) {
	set := fieldpath.NewSet(fieldpath.MakePathOrDie("a"), fieldpath.MakePathOrDie("b", "c"))
	for name, want := range map[string]bool{"": true, "a": false, "c": false} {
		got := every(set, func(path fieldpath.Path) bool { return *path[len(path)-1].FieldName != name })
		if got != want {
			t.Errorf("without %q: got %t", name, got)
		}
	}
}
