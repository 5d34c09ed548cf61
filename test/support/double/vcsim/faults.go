package vcsim

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/vmware/govmomi/vim25/soap"
)

// ErrReplyLost is what a request ends with whose reply was lost.
var ErrReplyLost = errors.New("the connection broke off")

// Faults is what befalls the requests of a client, one fault each, in the order in which they were set. A request is named
// by its method, such as PowerOnVM_Task, and one of the REST API by its verb and what it asks for, such as "GET tagging/tag"; no
// name at all means any. The zero value lets everything through.
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

// status is what a request of the REST API is answered with in place of an answer.
type status int

func (s status) Error() string { return http.StatusText(int(s)) }

// Answer has the next request of the REST API of these methods answered with that HTTP status, without being carried out.
func (f *Faults) Answer(code int, methods ...string) { f.Fail(status(code), methods...) }

// Stall has the next request of these methods not be sent, and stay without an answer until its context ends.
func (f *Faults) Stall(methods ...string) {
	f.Instead(func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}, methods...)
}

// Instead has do run in place of the next request of these methods, which is not sent and ends with the error.
func (f *Faults) Instead(do func(context.Context) error, methods ...string) {
	f.add(methods, func(ctx context.Context, _ func() error) error { return do(ctx) })
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

// requested says what a request with that path asks for.
func requested(at string) string {
	if strings.HasPrefix(at, "/nfc/") {
		return "nfc"
	}
	what, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(at, "/rest/com/vmware/"), "cis/"), "/id:")
	return what
}

// WrapREST puts the faults around what sends requests of the REST API, and uploads, which are named "POST nfc".
func (f *Faults) WrapREST(next http.RoundTripper) http.RoundTripper { return &faultyREST{f, next} }

type faultyREST struct {
	faults *Faults
	next   http.RoundTripper
}

// RoundTrip sends the request, with what befalls it.
func (f *faultyREST) RoundTrip(req *http.Request) (res *http.Response, err error) {
	sent := false
	send := func() error {
		sent = true
		res, err = f.next.RoundTrip(req) //nolint:bodyclose // whoever asked closes it
		return err
	}
	b := f.faults.take(req.Method + " " + requested(req.URL.Path))
	if b == nil {
		return res, send()
	}
	failed := b.do(req.Context(), send)
	if !sent && req.Body != nil {
		_ = req.Body.Close()
	}
	if code, is := errors.AsType[status](failed); is {
		return &http.Response{StatusCode: int(code), Status: code.Error(), Header: http.Header{}, Body: http.NoBody, Request: req}, nil
	}
	if failed != nil && res != nil {
		_ = res.Body.Close()
		res = nil
	}
	return res, failed
}
