package fairqueue

import (
	"context"
	"errors"
	"sync"
)

// ErrCrowded is what one gets whose line is full.
var ErrCrowded = errors.New("too many requests of the same namespace or user are waiting")

// Slots are places of which there are only so many. It is safe for concurrent use.
type Slots struct {
	longest int

	mu      sync.Mutex
	free    int
	waiting lines[chan struct{}]
}

// NewSlots returns that many free places, for which at most longest wait in one name.
func NewSlots(places, longest int) *Slots { return &Slots{free: places, longest: longest} }

// TryAcquire takes a place if one is free, without waiting.
func (s *Slots) TryAcquire() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.take()
}

func (s *Slots) take() bool {
	if s.free == 0 {
		return false
	}
	s.free--
	return true
}

// Acquire takes a place, which Release gives back, or waits for one in the line of whose share it is. The error is that of a context
// that has ended, or ErrCrowded.
func (s *Slots) Acquire(ctx context.Context, whose string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.mu.Lock()
	if s.take() {
		s.mu.Unlock()
		return nil
	}
	if len(s.waiting.of[whose]) >= s.longest {
		s.mu.Unlock()
		return ErrCrowded
	}
	called := make(chan struct{})
	s.waiting.push(whose, called)
	s.mu.Unlock()
	select {
	case <-called:
	case <-ctx.Done():
	}
	if ctx.Err() == nil {
		return nil
	}
	s.leave(whose, called)
	return context.Cause(ctx)
}

// leave removes a waiter from its line. If it already has a place, leave releases the place.
func (s *Slots) leave(whose string, called chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.waiting.remove(whose, called) {
		s.release()
	}
}

// Release gives a place back.
func (s *Slots) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release()
}

// release hands a place on. As long as somebody waits none is free.
func (s *Slots) release() {
	if s.waiting.total > 0 {
		close(s.waiting.pop())
	} else {
		s.free++
	}
}
