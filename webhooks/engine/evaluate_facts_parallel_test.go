package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// asking is a policy with as many facts, called f00 and so on.
func asking(t *testing.T, facts int) *Policy {
	t.Helper()
	var body strings.Builder
	for i := range facts {
		fmt.Fprintf(&body, "facts.f%02d := {\"apiVersion\": \"toy/v1\", \"kind\": \"Loan\", \"name\": \"n\", \"freshness\": \"live\"}\n\n", i)
	}
	body.WriteString("valid_input if { ")
	for i := range facts {
		fmt.Fprintf(&body, "input.facts.f%02d != 1; ", i)
	}
	body.WriteString("true }\n\n" + denyMetadata + `deny contains {"reason": "R", "message": "m"} if input.request.no`)
	src := policy(body.String())
	src.Timeout = 30 * time.Second // only if something is wrong
	return mustCompile(t, src)
}

// barrier answers nobody before as many wait for an answer.
type barrier struct {
	wanted int
	// full is called instead of letting them through.
	full func()
	err  func(Query) error

	mu             sync.Mutex
	inFlight, most int
	once           sync.Once
	open           chan struct{}
}

func newBarrier(wanted int) *barrier {
	b := &barrier{wanted: wanted, open: make(chan struct{})}
	b.full = func() { close(b.open) }
	return b
}

func (b *barrier) Read(ctx context.Context, q Query) (Answer, error) {
	b.mu.Lock()
	b.inFlight++
	b.most = max(b.most, b.inFlight)
	if b.inFlight == b.wanted {
		b.once.Do(b.full)
	}
	b.mu.Unlock()
	defer func() { b.mu.Lock(); b.inFlight--; b.mu.Unlock() }()
	select {
	case <-b.open:
	case <-ctx.Done():
		return Answer{}, ctx.Err()
	}
	if b.err != nil {
		if err := b.err(q); err != nil {
			return Answer{}, err
		}
	}
	return Answer{Live: true}, nil
}

// The facts of a policy are read side by side: all are asked for before any is answered.
func TestFactsAreReadSideBySide(t *testing.T) {
	decision, err := asking(t, 9).Decide(t.Context(), input(t, `{"no": false}`), newBarrier(9))
	if err != nil || len(decision.Facts) != 9 {
		t.Errorf("got %v, %v", decision, err)
	}
}

// And not more of them at once than an API server is to bear for one request.
func TestFactsAreReadInNumbers(t *testing.T) {
	b := newBarrier(mostReads)
	if _, err := asking(t, 3*mostReads).Decide(t.Context(), input(t, `{"no": false}`), b); err != nil {
		t.Error(err)
	}
	if b.most > mostReads {
		t.Errorf("%d were read at once", b.most)
	}
}

// Of several that cannot be read the first by name is told, whichever was the first to fail; a panic is one of them.
func TestTheFirstErrorByName(t *testing.T) {
	p := asking(t, 6)
	for range 20 {
		b := newBarrier(6)
		b.err = func(q Query) error {
			switch q.Fact {
			case "f04":
				panic("a bug")
			case "f02", "f05":
				return errors.New("cannot be read: " + q.Fact)
			}
			return nil
		}
		_, err := p.Decide(t.Context(), input(t, `{"no": false}`), b)
		wantCause(t, err, FactUnavailable, "facts.f02: cannot be read: f02")
	}
	b := newBarrier(6)
	b.err = func(Query) error { panic("a bug") }
	_, err := p.Decide(t.Context(), input(t, `{"no": false}`), b)
	wantCause(t, err, Panicked, "a bug")
}

// Nobody waits for an answer longer than the caller does.
func TestFactsAreReadForAsLongAsTheCallerWaits(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	b := newBarrier(6)
	b.full = cancel
	_, err := asking(t, 6).Decide(ctx, input(t, `{"no": false}`), b)
	wantCause(t, err, CallerGone, "the caller disconnected")
}
