//go:build cdi

package cdi

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// The account that some sources ask for.
const user, password = "AKIAIMAGES", "s3cr3t-of-the-images"

// source is a server of images under every name. A namespace has its own image.
type source struct {
	*httptest.Server
	client *http.Client

	mu    sync.Mutex
	modes map[string]mode
	asked map[string]int
	// named are the hosts that got the account.
	named map[string]bool
}

// mode serves the image of a namespace, the nth time.
type mode func(s *source, w http.ResponseWriter, r *http.Request, nth int)

func newSource(t *testing.T) *source {
	s := &source{modes: map[string]mode{}, asked: map[string]int{}, named: map[string]bool{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	dialer := &net.Dialer{}
	s.client = &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, s.Listener.Addr().String())
		},
	}}
	return s
}

// get asks for an image, as an importer with these settings does: it follows every redirect, and repeats the account there.
func (s *source) get(ctx context.Context, settings map[string]string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, settings["IMPORTER_ENDPOINT"], nil)
	if err != nil {
		return nil, err
	}
	sign := func(r *http.Request) {
		id, key := settings["IMPORTER_ACCESS_KEY_ID"], settings["IMPORTER_SECRET_KEY"]
		switch {
		case id == "":
		case settings["IMPORTER_SOURCE"] == "s3":
			r.Header.Set("Authorization", signature(id, key, r.URL.Path))
		default:
			r.SetBasicAuth(id, key)
		}
	}
	sign(r)
	c := *s.client
	c.CheckRedirect = func(r *http.Request, _ []*http.Request) error { sign(r); return nil }
	return c.Do(r)
}

// signature stands for the one of S3.
func signature(id, key, path string) string {
	sum := hmac.New(sha256.New, []byte(key))
	sum.Write([]byte(path))
	return fmt.Sprintf("AWS4-HMAC-SHA256 Credential=%s, Signature=%s", id, hex.EncodeToString(sum.Sum(nil)))
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

// owner returns the namespace of a path.
func owner(r *http.Request) string { return strings.Split(r.URL.Path, "/")[1] }

// ServeHTTP implements http.Handler.
func (s *source) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	serve, nth := s.modes[owner(r)], s.asked[owner(r)]
	s.asked[owner(r)]++
	if strings.HasPrefix(r.Header.Get("Authorization"), "Basic ") {
		s.named[r.Host] = true
	}
	s.mu.Unlock()
	if serve == nil {
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
	id, key, basic := r.BasicAuth()
	if basic && id == user && key == password || r.Header.Get("Authorization") == signature(user, password, r.URL.Path) {
		send(w, data(owner(r)))
		return
	}
	w.WriteHeader(http.StatusForbidden)
}
