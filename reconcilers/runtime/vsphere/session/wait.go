package session

import (
	"context"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Pauses returns waits between polls, each twice as long as the one before.
func Pauses(first, last time.Duration) *wait.Backoff {
	return &wait.Backoff{Duration: first, Factor: 2, Cap: last, Steps: math.MaxInt}
}

// Briefly returns the waits of a call that polls.
func Briefly() *wait.Backoff { return Pauses(5*time.Millisecond, 200*time.Millisecond) }

// Pause waits for the next pause or until ctx ends.
func Pause(ctx context.Context, b *wait.Backoff) error {
	timer := time.NewTimer(b.Step())
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tidyPatience limits the removal of temporary objects in vCenter, which disappear with the session anyway.
const tidyPatience = 5 * time.Second

// Tidy removes a temporary object of a call, whose context may have ended. It waits no longer than the context.
func Tidy(ctx context.Context, drop func(context.Context) error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyPatience)
		defer cancel()
		_ = drop(ctx)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}
