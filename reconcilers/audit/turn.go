package audit

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/semaphore"
)

// Up to underWay audits take turns, in the order in which they wait, so that a slow policy does not delay the others: atOnce of them read or
// evaluate at a time, each for a slice.
const (
	underWay = 32
	atOnce   = 2
	slice    = 2 * time.Second
)

var errTooLong = fmt.Errorf("the audit took longer than %v", patience)

// turn measures the time of one audit. Time spent waiting for a slot does not count.
type turn struct {
	slots *semaphore.Weighted
	end   context.CancelCauseFunc // of the audit

	left  time.Duration // of patience, when the current slice began
	timer *time.Timer   // fires after left; nil while the audit waits for a slot
	began time.Time     // of the slice
}

// inTurn runs part once the audit has a slot.
func (r *Reconciler) inTurn(ctx context.Context, f *findings, part func(context.Context) error) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	f.turn = &turn{slots: r.turns, end: end, left: patience}
	defer f.turn.over()
	if err := f.turn.begin(ctx); err != nil {
		return err
	}
	return part(ctx)
}

func (t *turn) begin(ctx context.Context) error {
	if t.slots != nil {
		if t.slots.Acquire(ctx, 1) != nil {
			return context.Cause(ctx)
		}
	}
	t.began = time.Now()
	t.timer = time.AfterFunc(t.left, func() { t.end(errTooLong) })
	return nil
}

func (t *turn) over() {
	if t.timer == nil {
		return
	}
	t.timer.Stop()
	t.timer = nil
	t.left -= time.Since(t.began)
	if t.slots != nil {
		t.slots.Release(1)
	}
}

// yield releases the slot and waits for the next one, if the slice is over.
func (t *turn) yield(ctx context.Context) error {
	if time.Since(t.began) < slice {
		return nil
	}
	t.over()
	return t.begin(ctx)
}
