package certs

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// load makes handshakes in a loop, by the bundles as they are, until the test ends: in a quarter of the time, since what it loads needs the
// processor, too.
type load struct {
	rounds atomic.Int64
	failed atomic.Pointer[error]
}

func (f *fixture) load() *load {
	l := &load{}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			began := time.Now()
			if err := f.tryHandshakes(ctx); err != nil && ctx.Err() == nil {
				l.failed.CompareAndSwap(nil, &err)
			}
			l.rounds.Add(1)
			select {
			case <-time.After(3 * time.Since(began)):
			case <-ctx.Done():
			}
		}
	})
	f.Cleanup(done.Wait)
	f.Cleanup(cancel)
	return l
}

// pass lets time pass, in which the API servers have learned of what was written before.
func (l *load) pass(f *fixture, d time.Duration) {
	f.Helper()
	from := l.rounds.Load()
	f.Eventually("all handshakes are made twice", func() bool { return l.rounds.Load() >= from+2 || l.failed.Load() != nil })
	if failed := l.failed.Load(); failed != nil {
		f.Fatal(*failed)
	}
	f.add(d)
}

// renewal is the time after which the certificate of a fixture is due. Each certificate is its own authority.
const renewal = 20 * day24

func TestRotationUnderLoad(t *testing.T) {
	f, l := running(t, "a", "b")
	load := f.load()
	for range 2 {
		first := f.state()
		load.pass(f, renewal-2*day24)
		f.settle(l)
		load.pass(f, 0)
		if c := f.state(); !c.Leaf.Equal(first.Leaf) {
			t.Fatal("the certificate is replaced too early")
		}
		f.add(2 * day24)
		f.lead(l)
		c := f.state()
		if len(c.trusted) != 1 || !c.trusted[0].Equal(first.ca) || c.Leaf.Equal(first.Leaf) {
			t.Fatalf("the new authority is not trusted beside the old one: %d trusted", len(c.trusted))
		}
		old := f.replicas[0].hash()
		f.take(f.replicas...)
		for range 2 {
			load.pass(f, 10*time.Second)
			f.lead(l)
			f.take(f.replicas...)
			if f.replicas[0].hash() != old {
				t.Fatal("a certificate from the new authority is served before API servers can know of it")
			}
		}
		load.pass(f, 30*time.Second)
		f.lead(l)
		if len(f.state().trusted) != 1 {
			t.Fatal("the old authority is dropped while the replicas serve what it signed")
		}
		f.take(f.replicas[0]) // the other replica is slow
		for range 3 {
			load.pass(f, time.Minute)
			f.lead(l)
			if len(f.state().trusted) != 1 {
				t.Fatal("the old authority is dropped while a replica serves what it signed")
			}
		}
		f.take(f.replicas[1])
		for range 2 {
			f.lead(l)
			load.pass(f, time.Minute)
		}
		load.pass(f, 0)
		if c := f.state(); len(c.trusted) != 0 || c.ca.Equal(first.ca) {
			t.Fatal("the old authority is still there")
		}
		configurations, err := f.live(t.Context())
		f.Must(err)
		for bundle, authorities := range bundles(configurations, f.Now()) {
			if len(authorities) != 1 || !authorities[0].Equal(f.state().ca) {
				t.Errorf("a bundle has not just the new authority: %s", bundle)
			}
		}
	}
	if n := f.count(reasonAuthorityDropped); n != 2 {
		t.Errorf("%d events say that the old authority is dropped", n)
	}
}

// A process that dies before or after any write of a rotation leaves what the next one can go on from.
func TestRotationSurvivesCrashes(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	for _, after := range []bool{false, true} {
		for n, crashed := 1, true; crashed && n < 20; n++ {
			t.Run(fmt.Sprintf("after=%v/%d", after, n), func(t *testing.T) {
				f, _ := running(t, "a", "b")
				first := f.state().ca
				f.add(renewal)
				f.writes, crashed = nil, false
				f.crash = func(i int, was bool) error {
					if i == n && was == after && !crashed {
						crashed = true
						return errCrash
					}
					return nil
				}
				l := f.leader()
				for i := range 25 {
					was := crashed
					_, err := l.look(t.Context(), true)
					if crashed != was {
						l = f.leader() // with nothing in its memory
					} else {
						f.Must(err)
					}
					f.handshakes()
					f.take(f.replicas[i%2])
					f.handshakes()
					f.add(10 * time.Second)
				}
				if c := f.state(); c.ca.Equal(first) || len(c.trusted) != 0 {
					t.Errorf("the rotation did not come to its end: %v", f.written())
				}
				if !crashed && n < 7 { // Secret, 2 configurations; 2 configurations
					if n != 6 {
						t.Errorf("a rotation takes only %d writes: %v", n-1, f.written())
					}
				}
			})
			if t.Failed() {
				return
			}
		}
	}
}

// A rotation that begins while replicas serve two earlier certificates adds one authority, and then writes nothing until a replica has
// moved on. Each write would cause the next look.
func TestTwoOlderCertificatesAreServed(t *testing.T) {
	f, l := running(t, "a", "b")
	for range 2 {
		f.Must(f.api.Delete(t.Context(), f.secret()))
		f.lead(l)
		f.take(f.replicas...)
		f.add(f.options.Settle)
		f.take(f.replicas[0])
	}
	f.Must(f.api.Delete(t.Context(), f.secret()))
	f.lead(l)
	before := len(f.written())
	if served := f.served(); served[0] == served[1] || len(f.state().trusted) < 2 {
		t.Fatalf("replicas serve %v, and %d older authorities are trusted", served, len(f.state().trusted))
	}
	for range 3 {
		f.lead(l)
	}
	if more := f.written()[before:]; len(more) > 0 {
		t.Errorf("the same authorities are written again: %v", more)
	}
	b := f.replicas[1]
	f.take(b)
	since := f.Now()
	f.add(time.Minute)
	f.take(b)
	if got := testutil.ToFloat64(b.rotating); got == 0 || got > float64(since.Unix()) {
		t.Errorf("the rotation that began before %d is unfinished since %f", since.Unix(), got)
	}
	if got := testutil.ToFloat64(b.accepted); got != 1 {
		t.Errorf("the served certificate is trusted, and the metric is %f", got)
	}
	f.settle(l)
	if got := testutil.ToFloat64(b.rotating); got != 0 {
		t.Errorf("the rotation has ended, and is unfinished since %f", got)
	}
	if got, want := testutil.ToFloat64(b.renewal), float64(part(f.state().Leaf, lateAt).Unix()); got != want {
		t.Errorf("the renewal is due at %f, not %f", got, want)
	}
}

// try lets a leader look once. Another one may write first.
func (f *fixture) try(l *Certificates) {
	if _, err := l.look(f.Context(), true); err != nil && !apierrors.IsConflict(err) {
		f.Error(err)
	}
}

// Two replicas believe that they lead, from the beginning and through a rotation.
func TestTwoLeaders(t *testing.T) {
	f := newFixture(t, "a", "b")
	race := func() {
		var both sync.WaitGroup
		for range 2 {
			l := f.leader()
			both.Go(func() {
				for range 3 {
					f.try(l)
				}
			})
		}
		both.Wait()
	}
	race()
	f.take(f.replicas...)
	f.handshakes()
	if n := f.count(reasonIssued); n != 1 {
		t.Fatalf("%d certificates were made, not one", n)
	}
	f.settle(f.leader())
	f.add(renewal)
	leaders := []*Certificates{f.leader(), f.leader()}
	for range 25 {
		var both sync.WaitGroup
		for _, l := range leaders {
			both.Go(func() {
				f.try(l)
			})
		}
		both.Wait()
		f.handshakes()
		f.take(f.replicas...)
		f.handshakes()
		f.add(10 * time.Second)
	}
	if n := f.count(reasonIssued); n != 2 {
		t.Errorf("%d certificates were made, not two", n)
	}
	if c := f.state(); len(c.trusted) != 0 || c.wrong != nil {
		t.Error("the rotation did not come to its end")
	}
}

// A leader that read before the other one wrote is refused, wherever between its reads and writes it was held up.
func TestLeaderThatWasHeldUp(t *testing.T) {
	f, l := running(t, "a", "b")
	configurations, err := f.live(t.Context())
	f.Must(err)
	stale := f.state()
	f.add(renewal)
	f.settle(l)
	for _, c := range configurations {
		if _, err := writeBundle(t.Context(), f.api, c, append(stale.bundle(), '\n')); err == nil {
			t.Errorf("%T was overwritten", c)
		}
	}
	f.handshakes()
}

// Whatever becomes of the Secret and of the processes, in any order: who serves is trusted, and all comes to rest.
func TestRandomFaults(t *testing.T) {
	seeds := uint64(8)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			f, l := running(t, "a", "b", "c")
			random := rand.New(rand.NewPCG(seed, 5))
			var done []string
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("steps: %v\nwrites: %v", done, f.written())
				}
			})
			for range 60 {
				done = append(done, f.fault(random, &l))
				if err := f.tryHandshakes(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			f.crash = nil
			f.settle(l)
			if c := f.state(); len(c.trusted) != 0 || c.wrong != nil {
				t.Errorf("it comes to rest with %d older authorities, faults %v", len(c.trusted), c.wrong)
			}
			for _, r := range f.replicas {
				f.Must(r.ready())
			}
		})
	}
}

// fault does something, and says what.
func (f *fixture) fault(random *rand.Rand, l **Certificates) string {
	f.Helper()
	lead := func() {
		if _, err := (*l).look(f.Context(), true); err != nil {
			*l = f.leader()
		}
	}
	switch n := random.IntN(20); n {
	case 0:
		f.Must(client.IgnoreNotFound(f.api.Delete(f.Context(), f.secret())))
		return "delete"
	case 1, 2:
		keys := []string{caKey, certKey, privateKeyKey}
		secret := f.secret()
		if err := f.api.Get(f.Context(), f.options.Secret, secret); err != nil {
			return "nothing to garble"
		}
		key := keys[random.IntN(len(keys))]
		secret.Data[key] = []byte("garbage")
		if random.IntN(2) == 0 {
			secret.Data[key] = nil
		}
		f.Must(f.api.Update(f.Context(), secret))
		return "garble " + key
	case 3:
		*l = f.leader()
		return "new leader"
	case 4, 5:
		die, after := random.IntN(3)+1, random.IntN(2) == 0
		f.writes, f.crash = nil, func(i int, was bool) error {
			if i >= die && was == after {
				return errCrash
			}
			return nil
		}
		lead()
		f.crash = nil
		return fmt.Sprintf("crash at write %d, after %v", die, after)
	case 6, 7, 8:
		f.add(time.Duration(random.IntN(40)) * time.Second)
		return "time"
	case 9:
		f.add(time.Duration(random.IntN(8)) * time.Hour)
		return "hours"
	case 10, 11, 12, 13, 14:
		r := f.replicas[random.IntN(len(f.replicas))]
		f.take(r)
		return "take " + r.name
	default:
		lead()
		return "lead"
	}
}

func TestRotationIsInOrder(t *testing.T) {
	f, l := running(t, "a")
	f.add(renewal)
	f.writes = nil
	f.settle(l)
	want := []string{
		"update *v1.Secret", "patch *v1.MutatingWebhookConfiguration", "patch *v1.ValidatingWebhookConfiguration",
		"patch *v1.MutatingWebhookConfiguration", "patch *v1.ValidatingWebhookConfiguration",
	}
	if got := f.written(); !slices.Equal(got, want) {
		t.Errorf("writes %v, want %v", got, want)
	}
}

// A replica that starts in the middle of a rotation has nothing to serve but the new certificate. It is not ready before every API server
// knows, as long as other replicas serve the old one; and at once if another replica serves the new one already.
func TestReplicaThatStartsDuringARotation(t *testing.T) {
	f, l := running(t, "a")
	f.Must(f.api.Delete(t.Context(), f.secret()))
	f.lead(l)
	f.take(f.replicas...)
	b := f.serve("b")
	f.take(b)
	if b.ready() == nil {
		t.Fatal("it is ready a moment after its authority was added")
	}
	f.add(f.options.Settle)
	f.take(f.replicas...)
	f.handshakes()
	for _, r := range f.replicas {
		f.Must(r.ready())
	}
	c := f.serve("c")
	f.take(c)
	f.Must(c.ready())
}
