//go:build !race

package sweep

import (
	"context"
	"sync"
	"time"

	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/step"
)

// calls are the calls of the runtime that a process has under way. The time of a call is over when one of its requests hangs, and not
// after a while, which a busy machine may need for a request that does not hang.
type calls struct {
	mu       sync.Mutex
	last     int
	underWay map[int]func() // which end their time
}

// keep is an interceptor that lets the time of a call end.
func (c *calls) keep(ctx context.Context, _ *runtime.Call, next func(context.Context) error) error {
	ctx, expire := step.Deadline(ctx)
	defer expire()
	c.mu.Lock()
	if c.underWay == nil {
		c.underWay = map[int]func(){}
	}
	c.last++
	is := c.last
	c.underWay[is] = expire
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.underWay, is)
	}()
	return next(ctx)
}

// How much longer than its call a request hangs that does not end with it, such as a login, and how long one hangs that is not of a call of
// a machine or disk: those of templates have five seconds.
const outlasts, outlastsAny = 100 * time.Millisecond, 6 * time.Second

// hang is what becomes of a request without an answer: the time of the calls under way is over, and then that of the request.
func (c *calls) hang(ctx context.Context) error {
	c.mu.Lock()
	limit := outlastsAny
	for _, expire := range c.underWay {
		limit = outlasts
		expire()
	}
	c.mu.Unlock()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(limit):
		return context.DeadlineExceeded
	}
}
