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
	// Wait gives how long this process must not send anything yet, because another may still be sending. Nil means that
	// there is none. Looking is allowed meanwhile, but a look that shows nothing in flight proves nothing then.
	Wait func() time.Duration
}

// Limit wraps a runtime so that its calls keep the limits. What may not be sent yet is a TakingOver error, and no machine is
// quiet yet: what another process sends may come after the look. What it returns is a Migrator exactly if the runtime is one.
func Limit(inner Runtime, limits Limits) Runtime {
	if limits.Call <= 0 {
		limits.Call = DefaultCallTimeout
	}
	outer := &limited{limits: limits}
	outer.Runtime = wrap(inner, outer.call)
	if migrator, ok := outer.Runtime.(Migrator); ok {
		return &limitedMigrator{limited: outer, Migrator: migrator}
	}
	return outer
}

type limited struct {
	Runtime
	limits Limits
}

type limitedMigrator struct {
	*limited
	Migrator
}

func (l *limited) call(ctx context.Context, verb Verb, _ Machine, call func(context.Context) error) error {
	if verb != VerbObserve && l.waits() {
		return errTakingOver
	}
	ctx, cancel := context.WithTimeout(ctx, l.limits.Call)
	defer cancel()
	return call(ctx)
}

func (l *limited) waits() bool { return l.limits.Wait != nil && l.limits.Wait() > 0 }

// errTakingOver is why nothing is sent, and why nothing can be said to be over.
var errTakingOver = newError(KindTakingOver, nil,
	"this replica has just taken over from one that may still be at work, and waits until it cannot be any more")

// Observe calls the runtime. Whether there is something to wait for is asked before.
func (l *limited) Observe(ctx context.Context, machine Machine) (Observation, error) {
	waits := l.waits()
	seen, err := l.Runtime.Observe(ctx, machine)
	switch {
	case waits && NothingOfOurs(err):
		return Observation{}, errTakingOver
	case waits && err == nil:
		seen.InFlight = append(seen.InFlight, Task{Kind: TaskTakingOver})
	}
	return seen, err
}
