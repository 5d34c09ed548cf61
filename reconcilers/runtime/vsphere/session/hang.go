package session

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
	// hungAfter is how long a request must have waited without any answer before vCenter counts as hung.
	hungAfter = 2 * time.Second
	// firstProbe and lastProbe bound the wait between probes of a hung vCenter.
	firstProbe, lastProbe = time.Second, 15 * time.Second
)

// errHung is the error of requests that are not sent to a hung vCenter.
var errHung = errors.New("nothing was sent, because the vCenter has not answered for a while; it is tried again soon")

// hang tracks whether a vCenter answers at all. While it does not, all requests except occasional probes fail at
// once: otherwise they would keep workers from other machines. Any answer ends this state. Watches and connection
// checks are always sent.
type hang struct {
	after, first time.Duration // hungAfter and firstProbe

	mu       sync.Mutex
	answered time.Time     // time of the last answer
	between  *wait.Backoff // between probes; nil if it is not hung
	probe    time.Time     // when the next probe may be sent
}

// rejects reports whether a request must not be sent now. If it is sent as a probe, the next one waits for its
// result, or for twice the timeout of a call.
func (h *hang) rejects() bool {
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

// record records the result of a request that began then.
func (h *hang) record(ctx context.Context, began time.Time, err error) {
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	long := now.Sub(began) >= h.after
	switch {
	case err == nil:
		h.answer()
	case ctx.Err() == nil && !long: // it fails at once, for example if nothing listens there
		h.between = nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded) && long && !h.answered.After(began):
		if h.between == nil {
			h.between = Pauses(h.first, lastProbe)
		}
		h.probe = now.Add(h.between.Step())
	}
}

func (h *hang) answer() { h.answered, h.between = time.Now(), nil }

// listening records the answers of a vCenter.
type listening struct {
	soap.RoundTripper
	hang *hang
}

func (l listening) RoundTrip(ctx context.Context, request, response soap.HasFault) error {
	err := l.RoundTripper.RoundTrip(ctx, request, response)
	if err == nil || soap.IsSoapFault(err) {
		l.hang.mu.Lock()
		defer l.hang.mu.Unlock()
		l.hang.answer()
	}
	return err
}
