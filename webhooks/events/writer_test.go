package events

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"sallyport.dev/sallyport/webhooks/engine"
)

// told keeps the notes of events.
type told struct {
	mu    sync.Mutex
	notes []string
}

func (e *told) Eventf(_, _ runtime.Object, _, _, _, note string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.notes = append(e.notes, fmt.Sprintf(note, args...))
}

// stored is a reader that has an object when it may.
type stored struct{ may <-chan struct{} }

func (s stored) Read(context.Context, engine.Query) (engine.Answer, error) {
	<-s.may
	v, err := engine.ValueOf(map[string]any{"metadata": map[string]any{"name": "cm"}})
	return engine.Answer{Value: v, Live: true}, err
}

// If one namespace has more denied than can be told, its own events are lost, and not those of another namespace, which do not wait for
// all of them either.
func TestEventsTakeTurns(t *testing.T) {
	const pending = 32
	synctest.Test(t, func(t *testing.T) {
		may, e := make(chan struct{}), &told{}
		w := NewWriter(e, prometheus.NewRegistry(), Limits{Rate: rate.Inf, Burst: 1, Pending: pending})
		defer w.Close()
		tell := func(whose string) {
			w.writeIfProven(&pendingEvents{
				object: &corev1.ObjectReference{Kind: "ConfigMap", Name: "cm"}, whose: whose, among: w.denied, reader: stored{may},
				proof:  func(*liveObject) bool { return true },
				events: []event{{policy: &corev1.ObjectReference{Kind: "RegoPolicy", Name: "p"}, reason: "R", action: "Update", note: whose}},
			})
		}
		for range 2 * pending {
			tell("hostile")
		}
		synctest.Wait() // until all eventReaders read
		tell("honest")
		for range eventReaders + 2 { // one read ends after another
			may <- struct{}{}
			synctest.Wait()
		}
		if !slices.ContainsFunc(e.notes, func(note string) bool { return note == "honest" }) {
			t.Errorf("%d events, none of the other namespace", len(e.notes))
		}
		close(may)
		w.open.Wait()
		if len(e.notes) < pending {
			t.Errorf("%d events", len(e.notes))
		}
	})
}
