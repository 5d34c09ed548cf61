package runtime

import (
	"context"
	"time"
)

// DefaultCallTimeout bounds a call of a runtime where nothing else is said.
const DefaultCallTimeout = 5 * time.Second

// Limits say when a process may call a runtime, so that no two leaders ever send at once: a call ends before the lease of
// the process that makes it could, and a new leader sends nothing while a call of the one before may not have ended.
type Limits struct {
	// Call bounds every call. Default 5 s.
	Call time.Duration
	// Wait gives how long this process must not send anything yet. Nil means that it may at once. Looking is always
	// allowed.
	Wait func() time.Duration
}

// Limit wraps a runtime so that its calls keep the limits. What may not be sent yet is a TakingOver error. What it returns
// is a Migrator exactly if the runtime is one.
func Limit(inner Runtime, limits Limits) Runtime {
	bound := limits.Call
	if bound <= 0 {
		bound = DefaultCallTimeout
	}
	return wrap(inner, func(ctx context.Context, verb Verb, call func(context.Context) error) error {
		if verb != VerbObserve && limits.Wait != nil && limits.Wait() > 0 {
			return newError(KindTakingOver, nil,
				"this replica has just taken over from one that may still be at work, and waits until it cannot be any more")
		}
		ctx, cancel := context.WithTimeout(ctx, bound)
		defer cancel()
		return call(ctx)
	})
}
