package runtime

import (
	"context"
	"slices"
)

// Client is a runtime as reconcilers use it: every call passes through its interceptors. It is a [Runtime] itself.
// Abilities that only some runtimes have are used through [Use].
type Client struct {
	runtime      Runtime
	interceptors []Interceptor
	halt         func(context.Context) error
}

// Call is one call of a runtime.
type Call struct {
	// Verb is the method.
	Verb Verb
	// Machine is the machine of the call, if there is one.
	Machine Machine
	// Disk is the disk of the call, if there is one.
	Disk Disk
	// Seen is the result of an Observe, once the runtime has answered.
	Seen Observation
}

// Interceptor wraps the calls of a runtime. It makes the call with next or returns an error instead, and may change
// the result of an Observe. It is safe for concurrent use.
type Interceptor func(ctx context.Context, call *Call, next func(context.Context) error) error

// NewClient returns a client of the runtime. The first interceptor is the outermost; those of a Client are inside
// them.
func NewClient(rt Runtime, interceptors ...Interceptor) *Client {
	if inner, ok := rt.(*Client); ok {
		return &Client{runtime: inner.runtime, interceptors: append(slices.Clone(interceptors), inner.interceptors...), halt: inner.halt}
	}
	return &Client{runtime: rt, interceptors: interceptors}
}

// Halted returns a client of the same runtime that asks before each call but those that only observe, after its interceptors. An error is
// returned in place of the call.
func (c *Client) Halted(by func(context.Context) error) *Client {
	halted := *c
	halted.halt = by
	return &halted
}

// observing are the calls that change nothing.
var observing = []Verb{VerbObserve, VerbObserveDisk}

// Can reports whether the runtime has an optional ability, an interface such as [Migrator].
func Can[Ability any](c *Client) bool {
	_, can := c.runtime.(Ability)
	return can
}

// Use makes a call of an optional ability. It returns a NotSupported error if the runtime does not have it.
func Use[Ability any](ctx context.Context, c *Client, verb Verb, machine Machine, call func(context.Context, Ability) error) error {
	return use(ctx, c, &Call{Verb: verb, Machine: machine}, call)
}

// UseDisk makes a call of [Disks] for a disk, and the machine that it is attached to or detached from, if there is
// one.
func UseDisk(ctx context.Context, c *Client, verb Verb, disk Disk, machine Machine, call func(context.Context, Disks) error) error {
	return use(ctx, c, &Call{Verb: verb, Machine: machine, Disk: disk}, call)
}

func use[Ability any](ctx context.Context, c *Client, of *Call, call func(context.Context, Ability) error) error {
	able, can := c.runtime.(Ability)
	if !can {
		return NewNotSupported(nil, "the runtime does not support %s", of.Verb)
	}
	return c.call(ctx, of, func(ctx context.Context) error { return call(ctx, able) })
}

func (c *Client) call(ctx context.Context, call *Call, make func(context.Context) error) error {
	if c.halt != nil && !slices.Contains(observing, call.Verb) {
		send := make
		make = func(ctx context.Context) error {
			if err := c.halt(ctx); err != nil {
				return err
			}
			return send(ctx)
		}
	}
	for _, intercept := range slices.Backward(c.interceptors) {
		next := make
		make = func(ctx context.Context) error { return intercept(ctx, call, next) }
	}
	return make(ctx)
}

// Observe observes the machine.
func (c *Client) Observe(ctx context.Context, machine Machine) (Observation, error) {
	call := &Call{Verb: VerbObserve, Machine: machine}
	err := c.call(ctx, call, func(ctx context.Context) (err error) {
		call.Seen, err = c.runtime.Observe(ctx, machine)
		return err
	})
	return call.Seen, err
}

// Ensure creates or adopts the machine.
func (c *Client) Ensure(ctx context.Context, machine Machine) (instanceID string, err error) {
	err = c.call(ctx, &Call{Verb: VerbEnsure, Machine: machine}, func(ctx context.Context) (err error) {
		instanceID, err = c.runtime.Ensure(ctx, machine)
		return err
	})
	return instanceID, err
}

// PowerOn powers the machine on.
func (c *Client) PowerOn(ctx context.Context, machine Machine) error {
	return c.call(ctx, &Call{Verb: VerbPowerOn, Machine: machine}, func(ctx context.Context) error {
		return c.runtime.PowerOn(ctx, machine)
	})
}

// PowerOff powers the machine off.
func (c *Client) PowerOff(ctx context.Context, machine Machine, mode Mode) error {
	return c.call(ctx, &Call{Verb: VerbPowerOff, Machine: machine}, func(ctx context.Context) error {
		return c.runtime.PowerOff(ctx, machine, mode)
	})
}

// Cancel cancels a task.
func (c *Client) Cancel(ctx context.Context, machine Machine, task string) error {
	return c.call(ctx, &Call{Verb: VerbCancel, Machine: machine}, func(ctx context.Context) error {
		return c.runtime.Cancel(ctx, machine, task)
	})
}

// Delete removes or releases the machine.
func (c *Client) Delete(ctx context.Context, machine Machine) error {
	return c.call(ctx, &Call{Verb: VerbDelete, Machine: machine}, func(ctx context.Context) error {
		return c.runtime.Delete(ctx, machine)
	})
}
