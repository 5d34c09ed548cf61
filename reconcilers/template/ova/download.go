// Package ova downloads OVAs. Nothing is stored: an OVA is a stream that ends without an error only if all of its
// content matches the source. An interrupted download starts again.
package ova

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

const (
	// defaultPatience is the default of [Downloader.Patience].
	defaultPatience = time.Minute
	// minBytes is how many bytes must arrive per patience of waiting.
	minBytes = 4 << 20
)

var errTooSlow = errors.New("too slow")

// Downloader opens OVAs. It is safe for concurrent use.
type Downloader struct {
	// Forbidden are the addresses that are never contacted. LocalAddresses should be among them.
	Forbidden []netip.Prefix
	// Patience is how long a server may take to answer, and to send 4 MiB. Time during which the stream is not read
	// does not count. Default: a minute.
	Patience time.Duration
}

// Stream is an OVA being downloaded. It must be closed.
type Stream struct {
	from   *origin
	ctx    context.Context // of the download
	body   io.Reader
	size   int64
	hash   hash.Hash // of the content
	ended  error     // result of the last Read
	closes func()
}

// Open starts the download of the source's OVA. It ends with ctx.
//
// Errors of Open and Read are [runtime.IsInvalidSpec] if the source must change, and [runtime.IsUnavailable] if
// another attempt may succeed.
func (o *Downloader) Open(ctx context.Context, source v1alpha1.VSphereTemplateSource) (*Stream, error) {
	from, err := parse(source)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	s := &Stream{from: from, ctx: ctx, closes: func() { cancel(context.Canceled) }}
	pace := &pace{patience: o.patience(), giveUp: func() { cancel(errTooSlow) }}
	if err := o.get(ctx, s, pace); err != nil {
		s.closes()
		return nil, err
	}
	s.closes = sync.OnceFunc(s.closes)
	return s, nil
}

func (o *Downloader) get(ctx context.Context, s *Stream, pace *pace) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.from.url, nil)
	if err != nil {
		return s.from.invalidURL()
	}
	request.Header.Set("User-Agent", "sallyport")
	request.Header.Set("Accept-Encoding", "identity")
	var response *http.Response
	_, err = pace.wait(func() (n int, err error) {
		response, err = o.client(s.from).Do(request)
		return 0, err
	})
	if err != nil {
		return s.from.connectionError(ctx, err)
	}
	if response.StatusCode != http.StatusOK {
		_ = response.Body.Close()
		return s.from.statusError(response.StatusCode)
	}
	s.body, s.size, s.hash = paced{response.Body, pace}, response.ContentLength, sha256.New()
	cancel := s.closes
	s.closes = func() {
		cancel()
		_ = response.Body.Close()
	}
	return nil
}

// Size returns the size in bytes as the source reports it, which may be wrong, or less than zero if unknown.
func (s *Stream) Size() int64 { return s.size }

// Read reads the next bytes. They are verified only once it has returned io.EOF.
func (s *Stream) Read(p []byte) (n int, err error) {
	if s.ended != nil {
		return 0, s.ended
	}
	n, err = s.body.Read(p)
	s.hash.Write(p[:n])
	if err != nil {
		s.ended = s.end(err)
	}
	return n, s.ended
}

// end returns the final result of Read.
func (s *Stream) end(err error) error {
	// A server whose connection is closed may still end its answer with io.EOF.
	if s.ctx.Err() != nil || !errors.Is(err, io.EOF) {
		return s.from.connectionError(s.ctx, err)
	}
	if sum := hex.EncodeToString(s.hash.Sum(nil)); sum != s.from.digest {
		return runtime.NewInvalidSpec(nil, "spec.source.sha256: the OVA at %s has the SHA-256 %s, not %s", s.from.shown, sum, s.from.digest)
	}
	return io.EOF
}

// Close ends the download. It may be called while Read blocks, which then returns.
func (s *Stream) Close() error {
	s.closes()
	return nil
}

func (o *Downloader) patience() time.Duration {
	if o.Patience > 0 {
		return o.Patience
	}
	return defaultPatience
}

// pace aborts a download that receives less than minBytes per patience of waiting.
type pace struct {
	patience time.Duration
	giveUp   func()

	waited time.Duration // since the last minBytes
	got    int
}

// wait runs do, which waits for the server and returns the number of bytes received.
func (p *pace) wait(do func() (int, error)) (int, error) {
	timer, begun := time.AfterFunc(p.patience-p.waited, p.giveUp), time.Now()
	n, err := do()
	timer.Stop()
	p.waited += time.Since(begun)
	if p.got += n; p.got >= minBytes {
		p.got, p.waited = 0, 0
	}
	return n, err
}

type paced struct {
	io.Reader
	*pace
}

func (r paced) Read(b []byte) (int, error) {
	return r.wait(func() (int, error) { return r.Reader.Read(b) })
}
