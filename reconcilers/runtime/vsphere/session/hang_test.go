package session

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// What counts as hung, and when one that is hung is tried again.
func TestWhenAVCenterCountsAsHung(t *testing.T) {
	lost := errors.New("lost")
	// request has taken that long, of a context that ends so late, and what came of it.
	request := func(h *hang, took, limit time.Duration, err error) {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		began := time.Now()
		time.Sleep(took)
		h.record(ctx, began, err)
	}
	for name, tc := range map[string]struct {
		do   func(h *hang)
		hung bool
	}{
		"nothing was asked": {func(*hang) {}, false},
		"no answer":         {func(h *hang) { request(h, 5001*time.Millisecond, 5*time.Second, lost) }, true},
		"no answer to one that had next to no time": {func(h *hang) { request(h, 1001*time.Millisecond, time.Second, lost) }, false},
		"one was given up": {func(h *hang) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			h.record(ctx, time.Now().Add(-time.Minute), lost)
		}, false},
		"nobody listens": {func(h *hang) { request(h, time.Millisecond, 5*time.Second, lost) }, false},
		"another was answered meanwhile": {func(h *hang) {
			time.AfterFunc(time.Second, func() { h.record(context.Background(), time.Now(), nil) })
			request(h, 5001*time.Millisecond, 5*time.Second, lost)
		}, false},
		"an answer afterwards": {func(h *hang) {
			request(h, 5001*time.Millisecond, 5*time.Second, lost)
			h.record(context.Background(), time.Now(), nil)
		}, false},
		"nobody listens afterwards": {func(h *hang) {
			request(h, 5001*time.Millisecond, 5*time.Second, lost)
			request(h, time.Millisecond, 5*time.Second, lost)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &hang{after: hungAfter, first: firstProbe}
				if tc.do(h); h.rejects() != tc.hung {
					t.Errorf("hung: %t", !tc.hung)
				}
			})
		})
	}
}

// However many ask, at most one at a time waits for a vCenter that is hung, and it waits less and less of the time.
func TestProbesOfAHungVCenterAreRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hang{after: hungAfter, first: firstProbe}
		var waiting, probes atomic.Int32
		ask := func() {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			began := time.Now()
			<-ctx.Done()
			h.record(ctx, began, ctx.Err())
		}
		for range 110 {
			go func() {
				ask() // before anything is known
				for range 600 {
					time.Sleep(time.Second)
					if h.rejects() {
						continue
					}
					if probes.Add(1); waiting.Add(1) > 1 {
						t.Error("two wait at once")
					}
					ask()
					waiting.Add(-1)
				}
			}()
		}
		time.Sleep(10 * time.Minute)
		if n := probes.Load(); n < 20 || n > 50 {
			t.Errorf("%d probes in ten minutes", n)
		}
		time.Sleep(time.Hour) // until all have ended
	})
}
