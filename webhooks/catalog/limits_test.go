package catalog

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/policies"
)

// large is a policy that needs about that many mebibytes.
func large(name string, minutes int, mebibytes int) v1alpha1.RegoPolicy {
	p := stored(policy(name, "apps/v1/deployments UPDATE"), "uid-large")
	p.CreationTimestamp = metav1.NewTime(time.Date(2026, 11, 21, 10, minutes, 0, 0, time.UTC))
	return edited(p, "\n_table := ["+strings.TrimSuffix(strings.Repeat("1,", (mebibytes-1)<<20/256/2), ",")+"]\n")
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
