package facts

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/webhooks/engine"
)

// gated is an API server whose reads begin when the test lets them; only there can "not begun yet" be told from "running".
type gated struct {
	client.Client
	begun   chan string
	release chan struct{}
	reads   atomic.Int32
}

func (g *gated) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	g.reads.Add(1)
	g.begun <- key.Name
	<-g.release
	return nil
}

func question(name string) engine.Query {
	return engine.Query{APIVersion: "v1", Kind: "Pod", Name: name, Live: true}
}

// takeAll takes all slots, and gives what frees them.
func takeAll(t *testing.T, l *live) (free func()) {
	t.Helper()
	for range liveReads {
		if !l.slots.TryAcquire() {
			t.Fatal("a slot is taken")
		}
	}
	return func() {
		for range liveReads {
			l.slots.Release()
		}
	}
}

// Requests with the same question share a read that waits for its turn, and never one that has begun: that one may miss
// what the later request's author has already seen.
func TestSameQuestionsShareAReadThatHasNotBegun(t *testing.T) {
	g := &gated{begun: make(chan string), release: make(chan struct{})}
	l := newLive(g)
	var wg sync.WaitGroup
	ask := func(name string) {
		wg.Go(func() {
			if _, err := l.read(context.Background(), "", question(name)); err != nil {
				t.Error(err)
			}
		})
	}
	free := takeAll(t, l) // every slot is taken by a read that has begun
	first := l.join("a", "", question("a"))
	for range 5 {
		if l.join("a", "", question("a")) != first {
			t.Fatal("a second read of the same was queued")
		}
	}
	if l.join("b", "", question("b")) == first {
		t.Fatal("another question shares the read")
	}
	free()
	<-g.begun
	<-g.begun
	ask("a") // both reads have begun: this one must begin anew
	<-g.begun
	close(g.release)
	wg.Wait()
	if n := g.reads.Load(); n != 3 {
		t.Errorf("%d reads reached the API server, want 3", n)
	}
}

func TestRequestLeavesAtItsDeadline(t *testing.T) {
	g := &gated{begun: make(chan string, 1), release: make(chan struct{})}
	defer close(g.release)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := newLive(g).read(ctx, "", question("a")); err == nil {
		t.Error("waited for an answer that nobody gives")
	}
}

// Requests may be made up, each with a question of its own. Those that have left must not be read for.
func TestNothingIsReadForRequestsThatLeft(t *testing.T) {
	g := &gated{begun: make(chan string, 200), release: make(chan struct{})}
	close(g.release)
	l := newLive(g)
	free := takeAll(t, l)
	left, leave := context.WithCancel(t.Context())
	leave()
	var flights []*flight
	for i := range 100 {
		q := question(fmt.Sprint("made-up-", i))
		text, err := json.Marshal(q)
		if err != nil {
			t.Fatal(err)
		}
		key := " " + string(text)
		f := l.join(key, "", q) // with the request, so that its end can be waited for
		if _, err := l.read(left, "", q); err == nil {
			t.Fatal("a request was answered after it had left")
		}
		l.leave(f, key)
		flights = append(flights, f)
	}
	honest := make(chan error)
	go func() {
		_, err := l.read(t.Context(), "", question("honest"))
		honest <- err
	}()
	free()
	if err := <-honest; err != nil {
		t.Fatal(err)
	}
	for _, f := range flights {
		<-f.done
	}
	if n := g.reads.Load(); n != 1 {
		t.Errorf("%d reads reached the API server, want the honest one only", n)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) > 0 {
		t.Errorf("%d questions are still kept", len(l.waiting))
	}
}

// What takes rights to find out waits for its turn as reads do.
func TestQuestionsAboutRightsWaitForTheirTurn(t *testing.T) {
	l := newLive(panicking{})
	takeAll(t, l)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.may(ctx, "", requester{}, &engine.Access{Verb: "get", Resource: "pods"}); err == nil {
		t.Error("it was asked although every slot is taken")
	}
}

type panicking struct{ client.Client }

func (panicking) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	panic("boom")
}

func TestPanicOfAClientIsAnError(t *testing.T) {
	if _, err := newLive(panicking{}).read(t.Context(), "", question("a")); err == nil || !strings.Contains(err.Error(), "boom") {
		t.Errorf("got %v", err)
	}
}

func TestExceptNeedsTheFieldToBeThere(t *testing.T) {
	o := mustObject(t, &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"phase": "Failed"}}})
	if !o.isExcepted(map[string][]string{"status.phase": {"Completed", "Failed"}}) {
		t.Error("a failed object was not left out")
	}
	if o.isExcepted(map[string][]string{"status.phase": {"Completed"}, "spec.x": {""}}) {
		t.Error("an object was left out that has none of the values")
	}
}
