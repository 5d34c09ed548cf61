package fairqueue_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sallyport.dev/sallyport/fairqueue"
)

// Whoever waits in a short line goes before the rest of a long one.
func TestLinesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fairqueue.NewSlots(1, 100)
		if !s.TryAcquire() || s.TryAcquire() {
			t.Fatal("there is not one place")
		}
		got := make(chan string, 101)
		wait := func(whose string) {
			go func() {
				if err := s.Acquire(t.Context(), whose); err != nil {
					t.Error(err)
				}
				got <- whose
			}()
			synctest.Wait()
		}
		for range 100 {
			wait("hostile")
		}
		wait("honest")
		if err := s.Acquire(t.Context(), "hostile"); !errors.Is(err, fairqueue.ErrCrowded) {
			t.Errorf("one more than may wait: %v", err)
		}
		for i := range 101 {
			s.Release()
			synctest.Wait()
			if whose := <-got; (whose == "honest") != (i == 1) {
				t.Fatalf("%s got place %d", whose, i)
			}
		}
		s.Release()
		if !s.TryAcquire() || s.TryAcquire() {
			t.Error("a place was lost, or made")
		}
	})
}

// A name that holds all its places waits for one of its own, and no other name waits with it.
func TestEachNameHasPlacesOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := fairqueue.NewEach(2, 1)
		var held []func()
		for range 2 {
			release, err := e.Acquire(t.Context(), "hostile")
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, release)
		}
		why := errors.New("left")
		ctx, leave := context.WithCancelCause(t.Context())
		leave(why)
		if _, err := e.Acquire(ctx, "hostile"); !errors.Is(err, why) {
			t.Errorf("a third place: %v", err)
		}
		got := make(chan func(), 1)
		go func() {
			release, err := e.Acquire(t.Context(), "hostile")
			if err != nil {
				t.Error(err)
			}
			got <- release
		}()
		synctest.Wait()
		if release, err := e.Acquire(t.Context(), "honest"); err != nil {
			t.Errorf("another name: %v", err)
		} else {
			release()
		}
		if len(got) > 0 || e.TryAcquire("hostile") != nil {
			t.Error("a name holds more places than it has")
		}
		if _, err := e.Acquire(t.Context(), "hostile"); !errors.Is(err, fairqueue.ErrCrowded) {
			t.Errorf("one more than may wait: %v", err)
		}
		held[0]()
		(<-got)()
		held[1]()
	})
}

// Who leaves takes no place, whether it was called or not.
func TestWhoLeavesTakesNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fairqueue.NewSlots(1, 1)
		s.TryAcquire()
		why := errors.New("left")
		ctx, leave := context.WithCancelCause(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Acquire(ctx, "a") }()
		synctest.Wait()
		leave(why)
		if err := <-ended; !errors.Is(err, why) {
			t.Errorf("got %v", err)
		}
		if err := s.Acquire(ctx, "a"); !errors.Is(err, why) {
			t.Errorf("one that had left before got %v", err)
		}
		for range 1000 { // both at once: either way there is one place in the end
			ctx, leave := context.WithCancel(t.Context())
			go func() { ended <- s.Acquire(ctx, "a") }()
			synctest.Wait()
			go leave()
			s.Release()
			if err := <-ended; err != nil && !s.TryAcquire() {
				t.Fatal("the place was lost")
			}
		}
	})
}

// leaving is a context that ends, and whose owner is called right after that, while the wait begins.
type leaving struct {
	context.Context
	leave, call func()
}

func (l leaving) Done() <-chan struct{} {
	l.leave()
	l.call()
	return l.Context.Done()
}

// Who had left before it was called gives the place back: a read for it would delay others.
func TestWhoIsCalledAfterLeavingTakesNoPlace(t *testing.T) {
	for range 100 { // select chooses between two that are ready
		s := fairqueue.NewSlots(1, 1)
		s.TryAcquire()
		ctx, leave := context.WithCancel(t.Context())
		if err := s.Acquire(leaving{ctx, leave, s.Release}, "a"); !errors.Is(err, context.Canceled) {
			t.Fatalf("one that had left got a place: %v", err)
		}
		if !s.TryAcquire() {
			t.Fatal("the place was lost")
		}
	}
}

// One namespace with many objects due delays those of another by one at most.
func TestNamespacesTakeTurnsInControllers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := fairqueue.NewQueue("", workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, time.Minute))
		defer q.ShutDown()
		of := func(namespace string, i int) reconcile.Request {
			return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: string(rune('a' + i))}}
		}
		for i := range 20 {
			q.Add(of("hostile", i))
		}
		q.Add(of("honest", 0))
		q.Add(of("honest", 0)) // which is due already
		if q.Len() != 21 {
			t.Errorf("%d are due", q.Len())
		}
		for i := range 2 {
			if next, _ := q.Get(); (next.Namespace == "honest") != (i == 1) {
				t.Errorf("%s is number %d", next, i)
			}
		}
		q.AddRateLimited(of("later", 0))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		for i := range 2 { // one more of the hostile ones, and it
			if next, _ := q.Get(); (next.Namespace == "later") != (i == 1) {
				t.Errorf("%s is number %d after a while", next, i)
			}
		}
	})
}
