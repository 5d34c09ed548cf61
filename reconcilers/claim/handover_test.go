package claim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"pgregory.net/rapid"
)

const leaseTime, callTime = 15 * time.Second, 5 * time.Second

var errLost = errors.New("the reply was lost")

// store is where the lease is, and the one clock.
type store struct {
	record  *resourcelock.LeaderElectionRecord
	version int
	now     time.Time
}

// process is the lock of one process, as LeaseLock is: it writes over the version that it knows.
type process struct {
	*store
	*Handover
	name string
	read int
	lose bool // the reply of the next write
	down bool // the next write does not arrive

	locks Locks
}

func (s *store) process(name string) *process {
	p := &process{store: s, name: name}
	p.Handover = NewHandover(memoryLock{p}, leaseTime, callTime, &p.locks, func() time.Time { return s.now })
	return p
}

// memoryLock is a resourcelock.Interface.
type memoryLock struct{ p *process }

func (l memoryLock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if l.p.record == nil {
		return nil, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, "x")
	}
	l.p.read = l.p.version
	record := *l.p.record
	raw, err := json.Marshal(record)
	return &record, raw, err
}

func (l memoryLock) Create(_ context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.p.put(l.p.record == nil, record)
}

func (l memoryLock) Update(_ context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.p.put(l.p.record != nil && l.p.read == l.p.version, record)
}

func (l memoryLock) RecordEvent(string) {}
func (l memoryLock) Identity() string   { return l.p.name }
func (l memoryLock) Describe() string   { return "memory" }

func (p *process) put(fits bool, record resourcelock.LeaderElectionRecord) error {
	lose, down := p.lose, p.down
	p.lose, p.down = false, false
	if !fits || down {
		return errors.New("conflict, or no connection")
	}
	p.record = &record
	p.version++
	if lose {
		return errLost
	}
	p.read = p.version
	return nil
}

// take does what leader election does to take or renew a lease that it may: look, and write.
func (p *process) take() error {
	mine := resourcelock.LeaderElectionRecord{HolderIdentity: p.name, LeaseDurationSeconds: int(leaseTime / time.Second)}
	if _, _, err := p.Get(context.Background()); err != nil {
		return p.Create(context.Background(), mine)
	}
	return p.Update(context.Background(), mine)
}

// giveUp does what leader election does to release the lease.
func (p *process) giveUp() error {
	if _, _, err := p.Get(context.Background()); err != nil {
		return err
	}
	return p.Update(context.Background(), resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1})
}

func (s *store) pass(d time.Duration) { s.now = s.now.Add(d) }

func newStore() *store { return &store{now: time.Now()} }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantLeft(t *testing.T, p *process, want time.Duration) {
	t.Helper()
	if got := p.Left(); got != want {
		t.Errorf("%s has to wait %v, want %v", p.name, got, want)
	}
}

func TestHandoverWaitsOnlyForWhoHasNotReleased(t *testing.T) {
	for name, tc := range map[string]struct {
		before func(t *testing.T, s *store)
		want   time.Duration
	}{
		"there was no lease":   {func(*testing.T, *store) {}, 0},
		"it was released":      {func(t *testing.T, s *store) { p := s.process("a"); must(t, p.take()); must(t, p.giveUp()) }, 0},
		"its holder is silent": {func(t *testing.T, s *store) { must(t, s.process("a").take()) }, leaseTime},
		"ours, from before a restart under the same name": {func(t *testing.T, s *store) { must(t, s.process("b").take()) }, leaseTime},
		"it lasted longer than ours does": {func(_ *testing.T, s *store) {
			s.record = &resourcelock.LeaderElectionRecord{HolderIdentity: "a", LeaseDurationSeconds: 60}
		}, time.Minute},
		"it does not say how long it lasts": {func(_ *testing.T, s *store) {
			s.record = &resourcelock.LeaderElectionRecord{HolderIdentity: "a"}
		}, leaseTime},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore()
			tc.before(t, s)
			b := s.process("b")
			if b.Left() <= 0 {
				t.Error("it may send before it leads")
			}
			must(t, b.take())
			wantLeft(t, b, tc.want)
			for left := tc.want; left > 0; left -= time.Second { // renewals change nothing of it
				s.pass(time.Second)
				must(t, b.take())
				wantLeft(t, b, left-time.Second)
			}
		})
	}
}

func TestHandoverWithoutReplies(t *testing.T) {
	t.Run("of the write that took it over", func(t *testing.T) {
		s := newStore()
		must(t, s.process("a").take())
		b := s.process("b")
		b.lose = true
		if err := b.take(); !errors.Is(err, errLost) || b.Left() <= 0 {
			t.Fatalf("got %v, %v", err, b.Left())
		}
		s.pass(2 * time.Second)
		must(t, b.take()) // it now finds the lease its own
		wantLeft(t, b, leaseTime)
	})
	t.Run("of the write that took it free", func(t *testing.T) {
		b := newStore().process("b")
		b.lose = true
		if err := b.take(); !errors.Is(err, errLost) {
			t.Fatal(err)
		}
		must(t, b.take())
		wantLeft(t, b, 0)
	})
	t.Run("while another took it and fell silent", func(t *testing.T) {
		s := newStore()
		b := s.process("b")
		b.down = true
		if err := b.take(); err == nil {
			t.Fatal("it arrived")
		}
		must(t, s.process("a").take())
		must(t, b.take())
		wantLeft(t, b, leaseTime)
	})
	t.Run("and the lease vanished unreleased", func(t *testing.T) {
		s := newStore()
		must(t, s.process("a").take())
		b := s.process("b")
		_, _, err := b.Get(t.Context())
		must(t, err)
		s.record = nil
		must(t, b.take())
		wantLeft(t, b, leaseTime)
	})
}

// Whoever cannot renew stops before a call could outlast the lease, and goes on if the lease is still its own.
func TestHandoverStopsWhenItCannotRenew(t *testing.T) {
	s := newStore()
	a := s.process("a")
	must(t, a.take())
	s.pass(leaseTime - callTime)
	wantLeft(t, a, 0)
	s.pass(time.Nanosecond)
	if a.Left() <= 0 {
		t.Error("a call could outlast the lease")
	}
	must(t, a.take())
	wantLeft(t, a, 0)
}

func TestHandoverReleasesOnlyWhatIsSafe(t *testing.T) {
	machine := types.NamespacedName{Namespace: "ns", Name: "vm"}
	for name, tc := range map[string]func(t *testing.T, s *store, a *process){
		"a call is under way": func(t *testing.T, _ *store, a *process) {
			_, err := a.locks.Lock(t.Context(), machine)
			must(t, err)
		},
		"another has taken it, and leader election has not noticed": func(t *testing.T, s *store, _ *process) {
			must(t, s.process("c").take())
		},
		"the wait for who had it before is not over": func(t *testing.T, s *store, a *process) {
			must(t, s.process("c").take())
			must(t, a.take())
		},
		"it was given up before": func(_ *testing.T, _ *store, a *process) {
			_ = a.release(context.Background(), resourcelock.LeaderElectionRecord{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore()
			a := s.process("a")
			must(t, a.take())
			tc(t, s, a)
			holder := s.record.HolderIdentity
			if err := a.giveUp(); !errors.Is(err, ErrNotReleased) {
				t.Errorf("got %v", err)
			}
			if a.Left() <= 0 || s.record.HolderIdentity != holder {
				t.Errorf("it may send for %v more, and the lease is %q's", a.Left(), s.record.HolderIdentity)
			}
		})
	}
}

// Whatever is lost, delayed or killed, and whatever leader election believes: of two processes only one has a call under way.
func TestHandoverKeepsCallsApart(t *testing.T) {
	type call struct {
		by  *process
		end time.Time // at the latest
	}
	rapid.Check(t, func(t *rapid.T) {
		s := newStore()
		ps := []*process{s.process("p0"), s.process("p1"), s.process("p2")}
		lastSeen := map[*process]time.Time{} // when the lease was first seen as it is, by process
		version := map[*process]int{}
		var calls []call
		machine := types.NamespacedName{Namespace: "ns", Name: "vm"}
		for i := range rapid.IntRange(10, 120).Draw(t, "steps") {
			n := rapid.IntRange(0, len(ps)-1).Draw(t, "process")
			p := ps[n]
			switch rapid.SampledFrom([]string{"elect", "elect", "send", "send", "pass", "release", "kill"}).Draw(t, "action") {
			case "elect":
				p.lose, p.down = rapid.IntRange(0, 4).Draw(t, "lose") == 0, rapid.IntRange(0, 4).Draw(t, "down") == 0
				if version[p] != s.version {
					version[p], lastSeen[p] = s.version, s.now
				}
				held := s.record != nil && s.record.HolderIdentity != "" && s.record.HolderIdentity != p.name
				if held && s.now.Sub(lastSeen[p]) <= leaseTime {
					_, _, _ = p.Get(context.Background())
					continue
				}
				_ = p.take()
			case "send":
				release, err := p.locks.Lock(context.Background(), machine)
				if err != nil || p.Left() > 0 {
					release()
					continue
				}
				for _, c := range calls {
					if c.by != p && c.end.After(s.now) {
						t.Fatalf("step %d: %s sends while a call of %s is under way", i, p.name, c.by.name)
					}
				}
				took := time.Duration(rapid.IntRange(0, int(callTime/time.Second)).Draw(t, "took")) * time.Second
				calls = append(calls, call{p, s.now.Add(took)})
				release() // for others of this process: what else it does is not told apart
				if took > 0 && rapid.Bool().Draw(t, "released meanwhile") {
					release, _ = p.locks.Lock(context.Background(), machine)
					_ = p.giveUp()
					release()
				}
			case "pass":
				s.pass(time.Duration(rapid.IntRange(1, 20000).Draw(t, "ms")) * time.Millisecond)
			case "release":
				busy := false
				for _, c := range calls {
					busy = busy || (c.by == p && c.end.After(s.now))
				}
				if !busy {
					_ = p.giveUp()
				}
			case "kill":
				ps[n] = s.process(fmt.Sprintf("%s-%d", p.name, i))
			}
		}
	})
}
