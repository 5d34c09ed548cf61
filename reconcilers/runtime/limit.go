package runtime

import (
	"cmp"
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
	// Wait gives how long this process must not send anything yet, because another may still be sending. Nil means that
	// there is none. Looking is allowed meanwhile, but a look that shows nothing in flight proves nothing then.
	Wait func() time.Duration
}

// Keep has the calls of a client keep the limits. What may not be sent yet is a TakingOver error, and no machine is quiet yet: what
// another process sends may come after the look, so whether there is something to wait for is asked before it.
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

// errTakingOver is why nothing is sent, and why nothing can be said to be over.
var errTakingOver = newError(KindTakingOver, nil,
	"this replica has just taken over from another one and waits until the other can no longer be working")
