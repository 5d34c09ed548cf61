package vsphere

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/vmware/govmomi/vim25/soap"
	"k8s.io/apimachinery/pkg/util/wait"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

const (
	// hungAfter is how long a request must have waited, while nothing was answered, before its vCenter counts as hung.
	hungAfter = 2 * time.Second
	// firstProbe and lastProbe bound the wait before a request is tried with a vCenter that is hung.
	firstProbe, lastProbe = time.Second, 15 * time.Second
)

// errHung is why nothing was sent. The vCenter of the message did not answer earlier requests.
var errHung = errors.New("nothing was sent, because the vCenter has not answered for a while; it is tried again soon")

// hang knows whether a vCenter answers at all. While it does not, requests fail at once but for one from time to time: whoever waits
// for a vCenter keeps a worker from the machines of others. Any answer ends it. Watches, and who asks whether it is there, always ask.
type hang struct {
	after, first time.Duration // hungAfter and firstProbe

	mu       sync.Mutex
	answered time.Time     // last
	between  *wait.Backoff // of probes; nil if it is not hung
	probe    time.Time     // when the next one may be sent
}

// refuses reports whether nothing is to be sent now. If a probe is sent, the next one waits for what comes of it, or twice the time of a
// call.
func (h *hang) refuses() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if h.between == nil {
		return false
	}
	if now.Before(h.probe) {
		return true
	}
	h.probe = now.Add(2 * runtime.DefaultCallTimeout)
	return false
}

// note takes down what became of a request that began then.
func (h *hang) note(ctx context.Context, began time.Time, err error) {
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	long := now.Sub(began) >= h.after
	switch {
	case err == nil:
		h.answer()
	case ctx.Err() == nil && !long: // it fails by itself, such as where nobody listens
		h.between = nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded) && long && !h.answered.After(began):
		if h.between == nil {
			h.between = pauses(h.first, lastProbe)
		}
		h.probe = now.Add(h.between.Step())
	}
}

// answer notes an answer.
func (h *hang) answer() { h.answered, h.between = time.Now(), nil }

// listening notes the answers of a vCenter.
type listening struct {
	soap.RoundTripper
	hang *hang
}

// RoundTrip makes a request.
func (l listening) RoundTrip(ctx context.Context, request, response soap.HasFault) error {
	err := l.RoundTripper.RoundTrip(ctx, request, response)
	if err == nil || soap.IsSoapFault(err) {
		l.hang.mu.Lock()
		defer l.hang.mu.Unlock()
		l.hang.answer()
	}
	return err
}
