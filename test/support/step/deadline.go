package step

import (
	"context"
	"sync"
)

// deadline is a context whose deadline passes when it is told.
type deadline struct {
	context.Context
	over chan struct{}
}

// Deadline returns a context that ends with DeadlineExceeded when expire is called, and with its parent: a test whose request hangs need
// not choose a time in which a busy machine can send the request.
func Deadline(parent context.Context) (ctx context.Context, expire func()) {
	d := &deadline{parent, make(chan struct{})}
	end := sync.OnceFunc(func() { close(d.over) })
	stop := context.AfterFunc(parent, end)
	return d, func() {
		stop()
		end()
	}
}

// Done returns the channel that expire closes.
func (d *deadline) Done() <-chan struct{} { return d.over }

// Err returns DeadlineExceeded after expire.
func (d *deadline) Err() error {
	select {
	case <-d.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// Value returns nothing, so that contexts made of this one look at its end, and not at its parent's.
func (d *deadline) Value(any) any { return nil }
