package facts_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
)

// What policies may read is a list. The rights of the store's client, and what other policies read, let no policy read more.
func TestOnlyListedKindsAreRead(t *testing.T) {
	for _, live := range []bool{false, true} {
		t.Run(fmt.Sprintf("live: %v", live), func(t *testing.T) { listedKinds(t, live) })
	}
}

func listedKinds(t *testing.T, live bool) {
	w := watching(env.Shared(t).Config)
	f := newRunning(t, w.config)
	var listed atomic.Bool
	f.Restrict(func(policy, _, resource string) (allowed, known bool) {
		return resource == "pods" && policy == "evictions" || resource == "services", listed.Load()
	})
	pods, services := engine.Read{APIVersion: "v1", Kind: "Pod", Live: live}, engine.Read{APIVersion: "v1", Kind: "Service", Live: live}
	rights := map[bool]string{false: "get, list, watch", true: "get, list"}[live]
	refused := "Sallyport may not " + rights + " pods for policy p"
	lack := func(policy string) string {
		var lines []string
		for _, l := range f.Watch(t.Context(), policy, []engine.Read{pods, services}) {
			lines = append(lines, l.Err.Error())
		}
		return strings.Join(lines, "\n")
	}
	await := func(policy, want string) {
		t.Helper()
		f.await(t, policy+" to be told: "+want, func() bool { return lack(policy) == want })
	}
	if got := lack("p"); got != "v1 Pod: not synced yet\nv1 Service: not synced yet" {
		t.Errorf("before the list is known: %q", got)
	}
	listed.Store(true)
	f.Relisted()
	await("p", "v1 Pod: "+refused)
	if w.lists("pods") != 0 || w.open("pods") != 0 {
		t.Error("Pods are read for a policy that may not")
	}
	await("evictions", "")
	if got := lack("p"); got != "v1 Pod: "+refused { // at once, although they are there
		t.Errorf("beside a policy that may read Pods, another is told %q", got)
	}
	var forbidden *facts.ForbiddenError
	if lacks := f.Watch(t.Context(), "p", []engine.Read{pods}); !errors.As(lacks[0].Err, &forbidden) || forbidden.Resource != "pods" {
		t.Errorf("got %+v", lacks)
	}
	for policy, want := range map[string][]string{"p": {refused}, "evictions": nil} {
		var told []string
		for _, e := range f.Ungranted(t.Context(), policy, []engine.Read{pods, services}) {
			told = append(told, e.Error())
		}
		if !slices.Equal(told, want) {
			t.Errorf("ungranted for policy %s are %q, want %q", policy, told, want)
		}
	}
}
