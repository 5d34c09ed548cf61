// Package mortal has processes die in tests, at any of their calls, and things happen between two of them.
package mortal

import (
	"context"
	"errors"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// ErrDied is what all calls of a process give from its death on, the one at which it died too.
var ErrDied = errors.New("the process died")

// Process is a process that makes calls. They come one after another, also when the process makes them side by side, each with what
// happens before it, so that what happens need not guard what it knows.
type Process struct {
	mu     sync.Mutex
	calls  int
	dies   int
	after  bool
	dead   bool
	when   int
	happen func()
	at     int
	fault  func(call func() error) error
}

// Die has the process die at its call of that number, from 1 on, before the call is made or just after.
func (p *Process) Die(at int, after bool) { p.dies, p.after = at, after }

// Before has something happen before the call of that number.
func (p *Process) Before(call int, happen func()) { p.when, p.happen = call, happen }

// Befall has a fault befall the call of that number, which it makes or does not make.
func (p *Process) Befall(call int, fault func(call func() error) error) { p.at, p.fault = call, fault }

// Calls returns how many calls the process has made since it was begun.
func (p *Process) Calls() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls
}

// Rests tells whether the process has made no call since it was begun.
func (p *Process) Rests() bool { return p.calls == 0 }

// Begin begins another process in its place, to which nothing happens.
func (p *Process) Begin() {
	p.calls, p.dies, p.when, p.happen, p.dead, p.at, p.fault = 0, 0, 0, nil, false, 0, nil
}

// Call makes a call, unless the process is dead or dies of it.
func (p *Process) Call(call func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return ErrDied
	}
	p.calls++
	if p.calls == p.when && p.happen != nil {
		p.happen()
	}
	p.dead = p.calls == p.dies
	if p.dead && !p.after {
		return ErrDied
	}
	if p.calls == p.at && p.fault != nil {
		return p.fault(call)
	}
	if err := call(); err != nil || !p.dead {
		return err
	}
	return ErrDied
}

// Client gives a client by which the process makes its calls.
func (p *Process) Client(inner client.WithWatch) client.WithWatch {
	return interceptor.NewClient(inner, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return p.Call(func() error { return c.Get(ctx, k, o, opts...) })
		},
		List: func(ctx context.Context, c client.WithWatch, o client.ObjectList, opts ...client.ListOption) error {
			return p.Call(func() error { return c.List(ctx, o, opts...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return p.Call(func() error { return c.Create(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return p.Call(func() error { return c.Delete(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return p.Call(func() error { return c.Patch(ctx, o, patch, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			return p.Call(func() error { return c.SubResource(sub).Update(ctx, o, opts...) })
		},
		SubResourcePatch: func(
			ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption,
		) error {
			return p.Call(func() error { return c.SubResource(sub).Patch(ctx, o, patch, opts...) })
		},
	})
}
