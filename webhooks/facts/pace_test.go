package facts

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// What is granted or installed counts within seconds, however long it was missing; what else is wrong is tried ever less often.
func TestWhatIsMissingIsLookedForOften(t *testing.T) {
	p := NewStore(nil, nil).pace
	missing, other := fmt.Errorf("watching: %w", &ForbiddenError{Verbs: verbs}), errors.New("timeout")
	wait := p.first / 2
	for range 20 {
		if wait = p.next(wait, other); wait < p.first || wait > p.longest {
			t.Errorf("%v", wait)
		}
	}
	for _, err := range []error{missing, ErrNotServed} {
		if got := p.next(wait, err); got > 2*time.Second {
			t.Errorf("after %v it is looked for again in %v", err, got)
		}
	}
}
