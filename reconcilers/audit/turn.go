package audit

import (
	"context"
	"fmt"
	"time"

	"sallyport.dev/sallyport/fair"
)

// Audits are under way side by side, so that a policy that takes its time costs the others none: atOnce of them read or judge at a time,
// and the others wait for their turn, which lasts a slice.
const (
	underWay = 32
	atOnce   = 2
	slice    = 2 * time.Second
)

// errTooLong is why an audit ends by itself.
var errTooLong = fmt.Errorf("the audit took longer than %v", patience)

// turn is that of one audit. Waiting for it does not count as time that the audit took.
type turn struct {
	slots  *fair.Slots
	policy string
	end    context.CancelCauseFunc // of the audit

	left  time.Duration // of its patience, beyond the slice that it has
	timer *time.Timer   // of that; nil while it waits
	began time.Time     // the slice
}

// inTurn takes part in the audit of a policy when it is its turn.
func (r *Reconciler) inTurn(ctx context.Context, f *findings, part func(context.Context) error) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	f.turn = &turn{slots: r.turns, policy: f.policy, end: end, left: patience}
	defer f.turn.over()
	if err := f.turn.begin(ctx); err != nil {
		return err
	}
	return part(ctx)
}

func (t *turn) begin(ctx context.Context) error {
	if t.slots != nil {
		if err := t.slots.Acquire(ctx, t.policy); err != nil {
			return err
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
		t.slots.Release()
	}
}

// yield lets others have their turn if this one has lasted for a slice.
func (t *turn) yield(ctx context.Context) error {
	if time.Since(t.began) < slice {
		return nil
	}
	t.over()
	return t.begin(ctx)
}
