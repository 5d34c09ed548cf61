package vcsim

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/vmware/govmomi/vim25/soap"
)

// ErrReplyLost is what a request ends with whose reply was lost.
var ErrReplyLost = errors.New("the connection broke off")

// Faults is what befalls the requests of a client, one fault each, in the order in which they were set. A request is named
// by its method, such as PowerOnVM_Task; no name at all means any. The zero value lets everything through.
type Faults struct {
	mu     sync.Mutex
	next   []*befalling
	called []string
}

// befalling is a fault that waits for its request.
type befalling struct {
	methods []string
	do      func(ctx context.Context, send func() error) error
}

// Wrap puts the faults around what sends requests.
func (f *Faults) Wrap(next soap.RoundTripper) soap.RoundTripper { return &faulty{f, next} }

func (f *Faults) add(methods []string, do func(context.Context, func() error) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next = append(f.next, &befalling{methods, do})
}

// Fail has the next request of these methods end with the error without being sent.
func (f *Faults) Fail(err error, methods ...string) {
	f.add(methods, func(context.Context, func() error) error { return err })
}

// Refuse has the next request of these methods refused by vCenter for that cause, without being carried out. The cause
// is a pointer to a fault of package types.
func (f *Faults) Refuse(cause any, methods ...string) {
	refused := &soap.Fault{Code: "ServerFaultCode"}
	refused.Detail.Fault = cause
	f.Fail(soap.WrapSoapFault(refused), methods...)
}

// LoseReply has the next request of these methods carried out and its reply lost.
func (f *Faults) LoseReply(methods ...string) {
	f.add(methods, func(_ context.Context, send func() error) error {
		if err := send(); err != nil {
			return err
		}
		return ErrReplyLost
	})
}

// Stall has the next request of these methods not be sent, and stay without an answer until its context ends.
func (f *Faults) Stall(methods ...string) {
	f.add(methods, func(ctx context.Context, _ func() error) error {
		<-ctx.Done()
		return ctx.Err()
	})
}

// Before has f run right before the next request of these methods is sent.
func (f *Faults) Before(do func(), methods ...string) {
	f.add(methods, func(_ context.Context, send func() error) error {
		do()
		return send()
	})
}

// Called gives the methods of the requests so far, and forgets them.
func (f *Faults) Called() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	called := f.called
	f.called = nil
	return called
}

// Clear forgets the faults that have not befallen a request yet, and counts them.
func (f *Faults) Clear() (left int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	left = len(f.next)
	f.next = nil
	return left
}

// take gives the fault of a request, and nil if there is none.
func (f *Faults) take(method string) *befalling {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.called = append(f.called, method)
	for i, b := range f.next {
		if len(b.methods) == 0 || slices.Contains(b.methods, method) {
			f.next = slices.Delete(f.next, i, i+1)
			return b
		}
	}
	return nil
}

type faulty struct {
	faults *Faults
	next   soap.RoundTripper
}

// RoundTrip sends the request, with what befalls it.
func (f *faulty) RoundTrip(ctx context.Context, req, res soap.HasFault) error {
	send := func() error { return f.next.RoundTrip(ctx, req, res) }
	method := strings.TrimSuffix(reflect.TypeOf(req).Elem().Name(), "Body")
	if b := f.faults.take(method); b != nil {
		return b.do(ctx, send)
	}
	return send()
}
