package facts

import (
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	cachetesting "k8s.io/client-go/tools/cache/testing"
)

// A cache that has synced when something else has its kind checked is told as one that is waited for: the store's owner would wait for ever.
func TestASyncIsToldWhateverIsCheckedMeanwhile(t *testing.T) {
	s, k := NewStore(nil, nil), &kind{informer: toolscache.NewSharedIndexInformer(cachetesting.NewFakeControllerSource(), &corev1.Pod{}, 0, nil)}
	of := reading{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Pod")}
	s.kinds[of] = k
	s.WatchFailed(of.String(), errors.New("the API server starts")) // which is over when it has synced
	if _, synced, changed := s.settle(t.Context(), reading{}, k, nil); synced == nil || changed {
		t.Fatalf("before: awaited %t, changed %t", synced != nil, changed)
	}
	go k.informer.Run(t.Context().Done())
	<-k.informer.HasSyncedChecker().Done()
	if _, synced, changed := s.settle(t.Context(), reading{}, k, nil); synced != nil || !changed {
		t.Errorf("after: awaited %t, changed %t", synced != nil, changed)
	}
	if _, _, changed := s.settle(t.Context(), reading{}, k, nil); changed {
		t.Error("it is told twice")
	}
	if k.lasting != nil {
		t.Errorf("a failure before it synced lasts: %v", k.lasting)
	}
}

// A right that nobody grants, or a kind that nobody installs, is asked for less and less often, but every half minute at least.
func TestAttemptsAreMadeLessAndLessOften(t *testing.T) {
	p := NewStore(nil, nil).pace
	var waits []time.Duration
	for wait := p.next(0); len(waits) < 8; wait = p.next(wait) {
		waits = append(waits, wait/time.Second)
	}
	if want := []time.Duration{1, 2, 4, 8, 16, 30, 30, 30}; !slices.Equal(waits, want) {
		t.Errorf("got %v, want %v", waits, want)
	}
}
