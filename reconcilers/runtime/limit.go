package runtime

import (
	"cmp"
	"context"
	"time"
)

// DefaultCallTimeout is the default of Limits.Call.
const DefaultCallTimeout = 5 * time.Second

// Limits restrict when a process may call a runtime, so that two leaders never send at the same time: a call ends
// before the lease of its process can expire, and a new leader sends nothing while a call of the previous one may not
// have ended.
type Limits struct {
	// Call limits the duration of each call. Default 5 s.
	Call time.Duration
	// Wait returns how long this process must not send requests because another may still be sending. Nil means no
	// wait. Observing is allowed meanwhile, but then an observation with nothing in flight proves nothing.
	Wait func() time.Duration
}

// Keep is an [Interceptor] that applies the limits. A call that must wait returns a TakingOver error, and no machine
// is quiet meanwhile: another process may send after the observation, so the wait is checked before it.
func (l Limits) Keep(ctx context.Context, call *Call, next func(context.Context) error) error {
	waits := l.Wait != nil && l.Wait() > 0
	if waits && call.Verb != VerbObserve {
		return errTakingOver
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(max(l.Call, 0), DefaultCallTimeout))
	defer cancel()
	err := next(ctx)
	switch {
	case waits && NothingOfOurs(err):
		call.Seen, err = Observation{}, errTakingOver
	case waits && err == nil:
		call.Seen.InFlight = append(call.Seen.InFlight, Task{Kind: TaskTakingOver})
	}
	return err
}

var errTakingOver = newError(KindTakingOver, nil,
	"this replica has just taken over from another one and waits until the other can no longer be working")
