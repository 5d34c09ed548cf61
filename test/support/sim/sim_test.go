package sim

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
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

func machine(name string) runtime.Machine {
	return runtime.Machine{
		NamespacedName: types.NamespacedName{Namespace: "ns", Name: name},
		UID:            types.UID("uid-" + name),
		Spec:           &v1alpha1.VirtualMachineSpec{Runtime: v1alpha1.VirtualMachineRuntime{Pod: &v1alpha1.PodRuntime{}}},
	}
}

// What a world does is the same through HTTP.
func TestConformance(t *testing.T) {
	conformance.Run(t, func(t *testing.T) conformance.Harness {
		w, s := serve(t)
		return conformance.Harness{
			Runtime:   Dial(s.Address, "first"),
			Machine:   func(_ *testing.T, name string) runtime.Machine { return machine(name) },
			Advance:   func(m runtime.Machine) { w.Advance(m.UID) },
			Reconnect: func(*testing.T) runtime.Runtime { return Dial(s.Address, "second") },
			Instances: func(_ *testing.T, m runtime.Machine) (n int) {
				for _, in := range w.Instances() {
					if in.Owner == m.UID {
						n++
					}
				}
				return n
			},
			IgnoreShutdown: func(_ *testing.T, m runtime.Machine) { w.SetGuest(m.UID, fake.Guest{Ignores: true}) },
			HeedShutdown:   func(_ *testing.T, m runtime.Machine) { w.GuestActs(m.UID) },
			RemoveTools:    func(_ *testing.T, m runtime.Machine) { w.SetGuest(m.UID, fake.Guest{NoTools: true}) },
			SetGuest:       func(_ *testing.T, m runtime.Machine, says runtime.Guest) { w.SetGuest(m.UID, fake.Guest{Says: says}) },
			Ask:            func(_ *testing.T, m runtime.Machine, q v1alpha1.PendingQuestion) { w.Ask(m.UID, &q) },
			Pause:          func(_ *testing.T, m runtime.Machine) { w.Pause(m.UID) },
			Spoil:          func(_ *testing.T, m runtime.Machine) func() { return w.Spoil(m.UID, "convert it") },
			Hold:           func(_ *testing.T, m runtime.Machine, kind runtime.TaskKind) func() { return w.Hold(m.UID, kind) },
			OtherNode: func(_ *testing.T, m runtime.Machine) string {
				in, _ := w.Instance(m.UID)
				return map[string]string{"node-1": "node-2", "node-2": "node-1"}[in.NodeName]
			},
			Foreign: func(*testing.T) (runtime.Machine, func() error) {
				m := machine("foreign")
				w.AddInstance(fake.Instance{Place: fake.Place(m), Owner: "somebody-else", Power: v1alpha1.PowerRunning})
				want := w.Instances()
				return m, func() error {
					if diff := cmp.Diff(want, w.Instances()); diff != "" {
						return fmt.Errorf("(-before +after):\n%s", diff)
					}
					return nil
				}
			},
			LoseReply: func(_ *testing.T, m runtime.Machine, verb runtime.Verb) {
				w.Script(fake.At{Verb: verb, Machine: m.UID}, fake.LoseReply())
			},
			Stall: func(_ *testing.T, m runtime.Machine, verb runtime.Verb) <-chan struct{} {
				stall := fake.NewStall(fake.ActAfter)
				w.Script(fake.At{Verb: verb, Machine: m.UID}, stall.Fault())
				return stall.Reached()
			},
		}
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
		got := Dial(s.Address, "c").PowerOn(t.Context(), machine("vm"))
		if got == nil || got.Error() != want.Error() || runtime.Reason(got) != runtime.Reason(want) ||
			runtime.Message(got) != runtime.Message(want) || runtime.MayHaveActed(got) != runtime.MayHaveActed(want) {
			t.Errorf("got %v (%s), want %v (%s)", got, runtime.Reason(got), want, runtime.Reason(want))
		}
	}
}

// An interceptor can cut a call off before and after it is done; the caller cannot tell which.
func TestInterceptedCalls(t *testing.T) {
	w, s := serve(t)
	m := machine("vm")
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
	m := machine("vm")
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
