package fair

import (
	"context"
	"math"

	"golang.org/x/time/rate"
)

// For returns a context for what is done as part of a share.
func For(ctx context.Context, whose string) context.Context {
	return context.WithValue(ctx, share{}, whose)
}

type share struct{}

// Pace bounds how many requests a client sends per second. It is client-go's flowcontrol.RateLimiter. The limit only says when the next
// one may go; which one that is, the lines say, by the shares of the requests' contexts.
type Pace struct {
	next  *Slots
	limit *rate.Limiter
}

// NewPace returns a pace of that many requests per second, and so many at once after a pause.
func NewPace(perSecond float64, burst int) *Pace {
	return &Pace{next: NewSlots(1, math.MaxInt), limit: rate.NewLimiter(rate.Limit(perSecond), burst)}
}

// Wait returns when the request of the context may be sent.
func (p *Pace) Wait(ctx context.Context) error {
	whose, _ := ctx.Value(share{}).(string)
	if err := p.next.Acquire(ctx, whose); err != nil {
		return err
	}
	defer p.next.Release()
	return p.limit.Wait(ctx)
}

// TryAccept reports whether a request may be sent now.
func (p *Pace) TryAccept() bool { return p.limit.Allow() }

// Accept returns when a request may be sent that is nobody's in particular.
func (p *Pace) Accept() { _ = p.Wait(context.Background()) }

// QPS returns how many requests are sent per second.
func (p *Pace) QPS() float32 { return float32(p.limit.Limit()) }

// Stop does nothing: nothing runs.
func (*Pace) Stop() {}
