//go:build cdi

package cdi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

// The account that some sources ask for.
const user, password = "AKIAIMAGES", "s3cr3t-of-the-images"

// source is a server of images under every name. A namespace has its own image.
type source struct {
	*httptest.Server
	client *http.Client

	// registry serves container images, and s3 is the program of S3, with the address of its server.
	registry  http.Handler
	s3        string
	s3Address string

	mu    sync.Mutex
	modes map[string]mode
	asked map[string]int
	// named are the hosts that got the account.
	named map[string]bool
}

// mode serves the image of a namespace, the nth time.
type mode func(s *source, w http.ResponseWriter, r *http.Request, nth int)

func newSource(t *testing.T, s3 string) *source {
	s := &source{registry: registry.New(registry.Logger(log.New(io.Discard, "", 0))), s3: s3, modes: map[string]mode{}, asked: map[string]int{}, named: map[string]bool{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	s.serveS3(t)
	dialer := &net.Dialer{}
	s.client = &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, s.Listener.Addr().String())
		},
	}}
	return s
}

// open begins to download an image, as an importer with these settings does.
func (s *source) open(ctx context.Context, settings map[string]string) (body io.ReadCloser, length int64, err error) {
	switch settings["IMPORTER_SOURCE"] {
	case "s3":
		return s.openS3(ctx, settings)
	case "registry":
		return s.openRegistry(ctx, settings)
	}
	response, err := s.get(ctx, settings)
	if err != nil {
		return nil, 0, err
	}
	if response.StatusCode != http.StatusOK {
		_ = response.Body.Close()
		return nil, 0, fmt.Errorf("expected status code 200, got %d. Status: %s", response.StatusCode, response.Status)
	}
	return response.Body, response.ContentLength, nil
}

// get follows every redirect, and repeats the account there.
func (s *source) get(ctx context.Context, settings map[string]string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, settings["IMPORTER_ENDPOINT"], nil)
	if err != nil {
		return nil, err
	}
	sign := func(r *http.Request) {
		if id := settings["IMPORTER_ACCESS_KEY_ID"]; id != "" {
			r.SetBasicAuth(id, settings["IMPORTER_SECRET_KEY"])
		}
	}
	sign(r)
	c := *s.client
	c.CheckRedirect = func(r *http.Request, _ []*http.Request) error { sign(r); return nil }
	return c.Do(r)
}

// data is the image of a namespace.
func data(namespace string) []byte {
	out := make([]byte, 64<<10)
	r := rand.NewChaCha8(sha256.Sum256([]byte(namespace)))
	_, _ = r.Read(out)
	return out
}

func checksumOf(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// owner returns the namespace of a path, also if that is one of a registry.
func owner(r *http.Request) string {
	return strings.Split(strings.TrimPrefix(r.URL.Path, "/v2"), "/")[1]
}

// ServeHTTP implements http.Handler.
func (s *source) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	serve, nth := s.modes[owner(r)], s.asked[owner(r)]
	s.asked[owner(r)]++
	if strings.HasPrefix(r.Header.Get("Authorization"), "Basic ") {
		s.named[r.Host] = true
	}
	s.mu.Unlock()
	switch {
	case serve != nil:
	case strings.HasPrefix(r.URL.Path, "/v2/"):
		serve = fromRegistry
	default:
		serve = whole
	}
	serve(s, w, r, nth)
}

func whole(_ *source, w http.ResponseWriter, r *http.Request, _ int) { send(w, data(owner(r))) }

func send(w http.ResponseWriter, b []byte) {
	w.Header().Set("Content-Length", fmt.Sprint(len(b)))
	_, _ = w.Write(b)
}

// cut breaks the connection in the middle.
func cut(_ *source, w http.ResponseWriter, r *http.Request, _ int) {
	b := data(owner(r))
	w.Header().Set("Content-Length", fmt.Sprint(len(b)))
	_, _ = w.Write(b[:len(b)/2])
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// stall sends the half, and nothing more.
func stall(_ *source, w http.ResponseWriter, r *http.Request, _ int) {
	b := data(owner(r))
	w.Header().Set("Content-Length", fmt.Sprint(len(b)))
	_, _ = w.Write(b[:len(b)/2])
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// slow sends a piece at a time.
func slow(_ *source, w http.ResponseWriter, r *http.Request, _ int) {
	b := data(owner(r))
	w.Header().Set("Content-Length", fmt.Sprint(len(b)))
	for piece := range slices.Chunk(b, len(b)/16) {
		_, _ = w.Write(piece)
		_ = http.NewResponseController(w).Flush()
		select { // as over a slow line
		case <-r.Context().Done():
			return
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// answer is a status.
func answer(code int) mode {
	return func(_ *source, w http.ResponseWriter, _ *http.Request, _ int) { w.WriteHeader(code) }
}

// first serves so once, and then so.
func first(once, then mode) mode {
	return func(s *source, w http.ResponseWriter, r *http.Request, nth int) {
		if nth == 0 {
			once(s, w, r, nth)
		} else {
			then(s, w, r, nth)
		}
	}
}

// other serves the image of somebody else.
func other(_ *source, w http.ResponseWriter, _ *http.Request, _ int) { send(w, data("other")) }

// redirect sends to another host, which answers with the mode.
func redirect(to string, then mode) mode {
	return func(s *source, w http.ResponseWriter, r *http.Request, nth int) {
		if strings.HasPrefix(r.Host, "images.test") || then == nil {
			select { // as a host that is far away
			case <-r.Context().Done():
			case <-time.After(100 * time.Millisecond):
			}
			http.Redirect(w, r, "http://"+to+r.URL.Path+"?X-Signature="+token, http.StatusFound)
			return
		}
		then(s, w, r, nth)
	}
}

// token is a part of the addresses that a source redirects to, and lets everybody read the data.
const token = "t0k3n-in-an-address"

// private asks for the account.
func private(_ *source, w http.ResponseWriter, r *http.Request, _ int) {
	if id, key, basic := r.BasicAuth(); basic && id == user && key == password {
		send(w, data(owner(r)))
		return
	}
	w.WriteHeader(http.StatusForbidden)
}
