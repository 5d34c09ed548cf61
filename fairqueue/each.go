package fairqueue

import (
	"context"
	"sync"
)

// Each limits how many places each name holds at once. It is safe for concurrent use.
type Each struct {
	places, longest int

	mu sync.Mutex
	of map[string]*holder
}

// holder is a name that holds places or waits for one.
type holder struct {
	*Slots
	users int
}

// NewEach returns a limit of places for each name. At most longest callers of one name wait for a place.
func NewEach(places, longest int) *Each {
	return &Each{places: places, longest: longest, of: map[string]*holder{}}
}

// Acquire takes a place of the name, and waits if it has none left. The caller must call release. The error is that of a context that has
// ended, or ErrCrowded.
func (e *Each) Acquire(ctx context.Context, whose string) (release func(), err error) {
	h := e.enter(whose)
	if err := h.Acquire(ctx, ""); err != nil {
		e.leave(whose, h)
		return nil, err
	}
	return e.release(whose, h), nil
}

// TryAcquire takes a place of the name without waiting. The caller must call release, which is nil if the name has no place left.
func (e *Each) TryAcquire(whose string) (release func()) {
	h := e.enter(whose)
	if !h.TryAcquire() {
		e.leave(whose, h)
		return nil
	}
	return e.release(whose, h)
}

func (e *Each) release(whose string, h *holder) func() {
	return func() {
		h.Release()
		e.leave(whose, h)
	}
}

func (e *Each) enter(whose string) *holder {
	e.mu.Lock()
	defer e.mu.Unlock()
	h := e.of[whose]
	if h == nil {
		h = &holder{Slots: NewSlots(e.places, e.longest)}
		e.of[whose] = h
	}
	h.users++
	return h
}

func (e *Each) leave(whose string, h *holder) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if h.users--; h.users == 0 {
		delete(e.of, whose)
	}
}
