package vsphere

import (
	"context"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// pauses returns waits between polls, each twice as long as the one before.
func pauses(first, last time.Duration) *wait.Backoff {
	return &wait.Backoff{Duration: first, Factor: 2, Cap: last, Steps: math.MaxInt}
}

// briefly returns the waits of a call that polls.
func briefly() *wait.Backoff { return pauses(5*time.Millisecond, 200*time.Millisecond) }

// pause waits for the next pause or until ctx ends.
func pause(ctx context.Context, b *wait.Backoff) error {
	timer := time.NewTimer(b.Step())
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
