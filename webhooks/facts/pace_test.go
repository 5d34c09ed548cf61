package facts

import (
	"slices"
	"testing"
	"time"
)

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
