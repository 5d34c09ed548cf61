package catalog

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/policies"
	"sallyport.dev/sallyport/webhooks/engine"
)

// tedious is a policy that takes some tenths of a second to compile.
func tedious(p v1alpha1.RegoPolicy) v1alpha1.RegoPolicy {
	var rules strings.Builder
	for i := range 2_000 {
		fmt.Fprintf(&rules, "\nx%d := [a | some a in [b | some b in [c | some c in [1]]]]\n", i)
	}
	return edited(p, rules.String())
}

// large is a policy that needs about that many mebibytes.
func large(name string, minutes int, mebibytes int) v1alpha1.RegoPolicy {
	p := stored(policy(name, "apps/v1/deployments UPDATE"), "uid-large")
	p.CreationTimestamp = metav1.NewTime(time.Date(2026, 11, 21, 10, minutes, 0, 0, time.UTC))
	return edited(p, "\n_table := ["+strings.TrimSuffix(strings.Repeat("1,", (mebibytes-1)<<20/256/2), ",")+"]\n")
}

// A policy that cannot be compiled in time is one that does not compile: the others decide, and its last good revision does.
func TestAPolicyThatTakesTooLongToCompile(t *testing.T) {
	c := &Catalog{}
	good := stored(policy("slow", "apps/v1/deployments UPDATE"), "uid-slow")
	other := stored(policy("other", "apps/v1/deployments UPDATE"), "uid-other")
	build(t, c, nil, good, other).compiled(t, "slow")
	slow := tedious(good)
	untilNoneIsLeftBehind(t) // by another test
	c.Patience = 100 * time.Millisecond
	b := build(t, c, nil, slow, other)
	b.compiled(t, "other")
	state := b.states["slow"]
	if state.Problem != v1alpha1.ReasonLimitExceeded || !state.LastGood || !strings.Contains(state.Err.Error(), "did not finish within 100ms") {
		t.Fatalf("got %+v", state)
	}
	if n := LeftBehind(); n != 1 {
		t.Errorf("%d compilations are left behind, want 1", n)
	}
	// Another catalog, which has all the time that there is, does not begin it beside the first.
	again := build(t, &Catalog{Patience: time.Hour}, map[string]Revision{"slow": {Policy: good}}, slow, other)
	again.compiled(t, "other")
	if state := again.states["slow"]; LeftBehind() > 0 && state.Problem != v1alpha1.ReasonLimitExceeded || !state.LastGood {
		t.Errorf("got %+v", state)
	}
	untilNoneIsLeftBehind(t)
}

func untilNoneIsLeftBehind(t *testing.T) {
	t.Helper()
	for LeftBehind() > 0 {
		if t.Context().Err() != nil {
			t.Fatal("a compilation never ended")
		}
		time.Sleep(time.Millisecond)
	}
}

// A machine that is slow, as one that is throttled is at its start, has all policies in the end: what takes too long goes on, and the build
// after it uses the result.
func TestWhatCompilesTooLateIsUsedWhenItIsThere(t *testing.T) {
	ended := make(chan struct{}, 10)
	c := &Catalog{Patience: time.Nanosecond, Late: func() { ended <- struct{}{} }}
	p := stored(policy("late", "apps/v1/deployments UPDATE"), "uid-late")
	for builds := 1; ; builds++ {
		b := build(t, c, nil, p)
		state := b.states["late"]
		if state.Active != nil {
			break
		}
		if state.Problem != v1alpha1.ReasonLimitExceeded || builds > 5 { // its outline is late, and then its compilation
			t.Fatalf("build %d: got %+v", builds, state)
		}
		select {
		case <-ended:
		case <-t.Context().Done():
			t.Fatal("nobody was told")
		}
	}
}

// What did not end in time is known by what it is, and not begun a second time beside the first.
func TestACompilationThatWasGivenUpIsNotBegunAgain(t *testing.T) {
	const calls = 3
	key, end, begun := sha256.Sum256([]byte(t.Name())), make(chan struct{}), atomic.Int32{}
	ended := make(chan struct{}, calls)
	c := &Catalog{Patience: time.Millisecond, Late: func() { ended <- struct{}{} }}
	compile := func() (*engine.Policy, error) {
		begun.Add(1)
		<-end
		return nil, errors.New("found at last")
	}
	for range calls {
		if _, err := c.within("library slow", key, nil, compile); !errors.Is(err, errOverrun) {
			t.Errorf("got %v", err)
		}
	}
	close(end)
	select {
	case <-ended:
	case <-t.Context().Done():
		t.Fatal("nobody was told that it ended")
	}
	if _, err := c.within("library slow", key, nil, compile); err == nil || err.Error() != "found at last" {
		t.Errorf("got %v", err)
	}
	if n := begun.Load(); n != 1 {
		t.Errorf("it was begun %d times", n)
	}
}

func TestMemoryIsGivenToTheOldestPolicies(t *testing.T) {
	var all []v1alpha1.RegoPolicy
	const each = 3
	c := &Catalog{Most: 4*each<<20 + 1<<20}
	fit := 4
	for i := range fit + 2 {
		all = append(all, large(fmt.Sprintf("p%02d", 50-i), i, each)) // by age, which is not the order of names
	}
	b := build(t, c, nil, all...)
	for i, p := range all {
		state := b.states[p.Name]
		if active := state.Active != nil; active != (i < fit) {
			t.Errorf("%s, the %dth: active is %t: %v", p.Name, i+1, active, state.Err)
		}
		if i >= fit && (state.Problem != v1alpha1.ReasonLimitExceeded || !strings.Contains(state.Err.Error(), "the limit for all policies is 13.0 MiB")) {
			t.Errorf("%s: got %s %v", p.Name, state.Problem, state.Err)
		}
	}
	// One that grows goes on as it was.
	last := &all[fit-1]
	if b = build(t, c, nil, all[:fit]...); b.states[last.Name].Active == nil {
		t.Fatalf("got %+v", b.states[last.Name])
	}
	grown := large(last.Name, fit-1, each+3)
	grown.Generation++
	b = build(t, c, nil, append(all[:fit-1:fit-1], grown)...)
	if state := b.states[last.Name]; state.Problem != v1alpha1.ReasonLimitExceeded || !state.LastGood {
		t.Errorf("got %+v", state)
	}
	// And all that are left fit again.
	if b = build(t, c, nil, all[2:]...); b.states[all[fit+1].Name].Active == nil {
		t.Errorf("got %+v", b.states[all[fit+1].Name])
	}
}

func TestOnePolicyMayNotNeedTooMuchMemory(t *testing.T) {
	p := large("p", 1, 34)
	l := lib("l", "sallyport.lib.l", "x := ["+strings.TrimSuffix(strings.Repeat("1,", 70_000), ",")+"]", 1)
	b := build(t, &Catalog{}, nil, p, l)
	for _, name := range []string{"p", "l"} {
		if state := b.states[name]; state.Problem != v1alpha1.ReasonLimitExceeded || !strings.Contains(state.Err.Error(), "the limit for one policy or library is 32.0 MiB") {
			t.Errorf("%s: got %s %v", name, state.Problem, state.Err)
		}
	}
}

// What is shipped leaves most of the memory to others.
func TestWhatShippedPoliciesNeed(t *testing.T) {
	shipped, err := policies.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	set, err := Compile(shipped)
	if err != nil {
		t.Fatal(err)
	}
	sum := int64(0)
	for _, p := range set.Policies() {
		t.Logf("%s: %d KiB", p.Name(), p.Weight()>>10)
		sum += p.Weight()
	}
	if sum > MostWeight/3 {
		t.Errorf("they need %d of %d bytes", sum, MostWeight)
	}
}
