package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// RunTests refuses a policy with the word FAILING, and cannot say anything of one with the word DARK.
func (c *compiler) RunTests(_ context.Context, world []v1alpha1.RegoPolicy, name string) (refused, err error) {
	i := slices.IndexFunc(world, func(p v1alpha1.RegoPolicy) bool { return p.Name == name })
	switch source := words(&world[i]); {
	case strings.Contains(source, "FAILING"):
		return fmt.Errorf("%s/main_test.rego:3: test toy.test_x: failed", name), nil
	case strings.Contains(source, "DARK"):
		return nil, errors.New("no child could be started")
	}
	return nil, nil
}

// actor runs tests by the word: one passes, and FAILING fails.
type actor struct {
	mu   sync.Mutex
	runs []string
	err  error
}

func (a *actor) Test(_ context.Context, p *v1alpha1.RegoPolicy) (Tested, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.runs = append(a.runs, p.Name+" "+words(p))
	switch {
	case a.err != nil:
		return Tested{}, a.err
	case strings.Contains(words(p), "FAILING"):
		return Tested{Finding{v1alpha1.ReasonTestsFailed, "main_test.rego:3: test toy.test_x: failed"}, 1, 2}, nil
	}
	return Tested{Finding{v1alpha1.ReasonTestsPassed, "3 tests passed."}, 3, 0}, nil
}

// ran gives what was run since the last time.
func (a *actor) ran() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	runs := a.runs
	a.runs = nil
	return runs
}

// tested has everything shown that the tests of the policy tell.
func (f *fixture) tested() {
	f.Helper()
	f.Must(f.test(f.Context(), "guard"))
	f.settles()
}

func TestTestsAreShown(t *testing.T) {
	f := newFixture(t)
	a := &actor{}
	f.Tester = a
	f.ships("1.0.0", toy("guard", "a"))
	f.settles()
	f.shows("guard", "TestsPassed", "")
	f.told.take()
	f.tested()
	f.shows("guard", "TestsPassed", "True TestsPassed 3 tests passed.")
	if got := f.policy("guard").Status.Tests; got == nil || *got != (v1alpha1.PolicyTestResult{Passed: 3}) {
		t.Errorf("its tests are %+v", got)
	}
	f.tells()

	f.tested() // once for a text
	f.patched("guard", `{"metadata":{"labels":{"a":"b"}}}`)
	f.tested()
	if got := a.ran(); !slices.Equal(got, []string{"guard a"}) {
		t.Errorf("run were %q", got)
	}

	f.word("guard", "FAILING")
	f.settles()
	f.shows("guard", "TestsPassed", "True TestsPassed 3 tests passed.") // of the generation that it was
	if c := v1alpha1.ConditionTestsPassed.In(f.policy("guard").Status.Conditions); c.ObservedGeneration == f.policy("guard").Generation {
		t.Errorf("it says so of generation %d", c.ObservedGeneration)
	}
	f.told.take()
	f.tested()
	f.shows("guard", "TestsPassed", "False TestsFailed main_test.rego:3: test toy.test_x: failed")
	f.shows("guard", "Active", "True CurrentRevision Revision 4641494c49 is active.")
	if got := f.policy("guard").Status.Tests; got == nil || *got != (v1alpha1.PolicyTestResult{Passed: 1, Failed: 2}) {
		t.Errorf("its tests are %+v", got)
	}
	f.tells("Warning TestsFailed RegoPolicy/guard: main_test.rego:3: test toy.test_x: failed")

	f.word("guard", "BROKEN")
	f.settles()
	f.shows("guard", "TestsPassed", "Unknown TestsNotRun The policy does not compile. See condition Compiled.")
	if got := f.policy("guard").Status.Tests; got != nil {
		t.Errorf("its tests are %+v", got)
	}
	f.word("guard", "FAILING again")
	f.settles()
	f.tested()
	f.told.take()
	f.word("guard", "good")
	f.tested()
	f.tells("Normal TestsPassed RegoPolicy/guard: 3 tests passed.", "Normal Activated RegoPolicy/guard")

	// The next leader tries it again, and finds the same.
	f.lead(f.Namespace)
	b := &actor{}
	f.Tester = b
	f.settles()
	f.shows("guard", "TestsPassed", "True TestsPassed 3 tests passed.")
	f.tested()
	f.tells()
	if got := b.ran(); !slices.Equal(got, []string{"guard good"}) {
		t.Errorf("run were %q", got)
	}
}

func TestTestsThatCannotBeRun(t *testing.T) {
	f := newFixture(t)
	a := &actor{err: errors.New("no child could be started")}
	f.Tester = a
	f.ships("1.0.0", toy("guard", "a"))
	f.settles()
	if err := f.test(t.Context(), "guard"); !errors.Is(err, a.err) {
		t.Errorf("got %v", err)
	}
	f.settles()
	f.shows("guard", "TestsPassed", "Unknown TestsNotRun The tests could not be run, retrying: running the tests of RegoPolicy guard: no child could be started")
	a.err = nil
	f.tested()
	f.shows("guard", "TestsPassed", "True TestsPassed 3 tests passed.")
	f.Must(f.test(t.Context(), "nobody"))
}

// What is shipped is tried with its tests, where they or what they test would change.
func TestShippedIsTriedWithItsTests(t *testing.T) {
	f := newFixture(t)
	f.ships("1.0.0", toy("guard", "FAILING"), toy("other", "a"))
	f.settles()
	f.is("guard", "")
	f.is("other", "a")
	f.tells(
		"Warning CheckFailed ConfigMap/sallyport-policies: RegoPolicy guard: Release 1.0.0 is not applied: guard/main_test.rego:3: test toy.test_x: failed",
		"Normal Shipped RegoPolicy/other", "Normal Activated RegoPolicy/other",
	)
	f.ships("1.0.0", toy("guard", "a"), toy("other", "FAILING"))
	f.settles()
	f.is("guard", "a")
	f.is("other", "a")
	f.shows("other", "Shipped", "False CheckFailed Release 1.0.0 is not applied: other/main_test.rego:3: test toy.test_x: failed")

	// One that fails already, as when it was written while nobody looked, can have everything else changed.
	f.word("other", "FAILING mine")
	f.ships("1.0.0", toy("guard", "a"), toy("other", "FAILING", func(p *v1alpha1.RegoPolicy) { p.Spec.TimeoutMilliseconds = 900 }))
	f.settles()
	f.is("other", "FAILING mine")
	if got := f.policy("other").Spec.TimeoutMilliseconds; got != 900 {
		t.Errorf("its timeout is %d", got)
	}
}

// A library whose tests fail stays, and so do the policies that need what is new in it.
func TestShippedTogetherIsRefusedTogether(t *testing.T) {
	f := newFixture(t)
	f.ships("1.0.0", toy("lib", "has:x", library), toy("guard", "needs:x"), toy("other", "a"))
	f.settles()
	f.ships("1.0.0", toy("lib", "has:x has:y FAILING", library), toy("guard", "needs:y"), toy("other", "b"))
	f.settles()
	f.is("lib", "has:x")
	f.is("guard", "needs:x")
	f.is("other", "b")
	f.shows("lib", "Shipped", "False CheckFailed Release 1.0.0 is not applied: lib/main_test.rego:3: test toy.test_x: failed")
	f.shows("guard", "Shipped", "False CheckFailed Release 1.0.0 is not applied: guard/main.rego:1:1: needs:y is not there")
}

// That nothing can be found out is no reason to apply it, nor to give up.
func TestShippedThatCannotBeTried(t *testing.T) {
	f := newFixture(t)
	f.ships("1.0.0", toy("guard", "a"), toy("other", "a"))
	f.settles()
	f.ships("1.0.0", toy("guard", "DARK"), toy("other", "b"))
	if err := f.pass(); err == nil || !strings.Contains(err.Error(), "running its tests: no child could be started") {
		t.Errorf("got %v", err)
	}
	f.is("guard", "a")
	f.is("other", "b")
	f.shows("guard", "Shipped", "False ApplyFailed Release 1.0.0: running its tests: no child could be started")
}
