package sim

import (
	"context"
	"errors"
	"testing"
	"time"

	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/double/conformance"
	"sallyport.dev/sallyport/test/support/double/fake"
)

func serve(t *testing.T) (*fake.World, *Server) {
	t.Helper()
	w := fake.New()
	s, err := Serve(w)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return w, s
}

// What a world does is the same through HTTP.
func TestConformance(t *testing.T) {
	conformance.Run(t, func(t *testing.T) conformance.Harness {
		w, s := serve(t)
		return conformance.OfWorld(w, func(client string) runtime.Runtime { return Dial(s.Address, client) })
	})
}

// Errors keep their kind, their message and their cause.
func TestErrorsComeAcross(t *testing.T) {
	w, s := serve(t)
	for _, want := range []error{
		runtime.NewNotFound(nil, "gone"), runtime.NewInvalidState(nil, "busy"), runtime.NewToolsUnavailable(nil, "no tools"),
		runtime.NewUnavailable(errors.New("dial"), "away"), runtime.NewPermission(nil, "no right"),
		runtime.NewOwnedByAnother(nil, "theirs"), runtime.NewNotSupported(nil, "never"), errors.New("something else"),
	} {
		w.Script(fake.At{}, fake.Fail(want))
		got := Dial(s.Address, "c").PowerOn(t.Context(), conformance.PodMachine("vm"))
		if got == nil || got.Error() != want.Error() || runtime.Reason(got) != runtime.Reason(want) ||
			runtime.Message(got) != runtime.Message(want) || runtime.MayHaveActed(got) != runtime.MayHaveActed(want) {
			t.Errorf("got %v (%s), want %v (%s)", got, runtime.Reason(got), want, runtime.Reason(want))
		}
	}
}

// An interceptor can cut a call off before and after it is done; the caller cannot tell which.
func TestInterceptedCalls(t *testing.T) {
	w, s := serve(t)
	m := conformance.PodMachine("vm")
	for _, moment := range []Moment{Before, After} {
		s.Intercept(func(at Moment, c Call) bool { return at != moment || c.Client != "cut off" })
		if _, err := Dial(s.Address, "cut off").Ensure(t.Context(), m); !runtime.IsUnavailable(err) {
			t.Errorf("%s: got %v", moment, err)
		}
		w.Advance(m.UID)
		if _, made := w.Instance(m.UID); made != (moment == After) {
			t.Errorf("%s: made is %v", moment, made)
		}
	}
	calls := s.Calls()
	if len(calls) != 2 || calls[0].Client != "cut off" || calls[0].Verb != runtime.VerbEnsure || calls[0].Ended.Before(calls[0].Began) {
		t.Errorf("logged are %+v", calls)
	}
}

// A call whose caller has given up is not done any more, however late it is looked at.
func TestWhatArrivesTooLateIsNotDone(t *testing.T) {
	w, s := serve(t)
	m := conformance.PodMachine("vm")
	arrived, over := make(chan struct{}, 100), make(chan struct{}, 100)
	for within := 50 * time.Millisecond; len(arrived) == 0; within *= 2 { // until the call arrives before its caller gives up
		ctx, cancel := context.WithTimeout(t.Context(), within)
		s.Intercept(func(at Moment, _ Call) bool {
			if at == After {
				over <- struct{}{}
				return true
			}
			arrived <- struct{}{}
			<-ctx.Done()
			return true
		})
		if _, err := Dial(s.Address, "c").Ensure(ctx, m); !runtime.IsUnavailable(err) {
			t.Errorf("got %v", err)
		}
		cancel()
	}
	<-over
	w.Advance(m.UID)
	if _, made := w.Instance(m.UID); made {
		t.Error("it was done")
	}
}
