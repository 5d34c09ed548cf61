package vsphere

import (
	"context"
	"time"
)

// wait is the pauses between looks at something that takes vCenter a moment.
type wait struct{ next time.Duration }

func newWait() wait { return wait{next: 5 * time.Millisecond} }

// pause waits, each time longer, or until ctx ends.
func (w *wait) pause(ctx context.Context) error {
	timer := time.NewTimer(w.next)
	defer timer.Stop()
	w.next = min(2*w.next, 200*time.Millisecond)
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
