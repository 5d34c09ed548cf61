//go:build !race

package images

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// traffic counts the requests of a manager to the API server, without watches.
type traffic struct {
	mu       sync.Mutex
	requests map[string]int  // by verb and resource
	read     map[string]bool // paths of single objects
	bytes    int64
	open     int
	// all are lists that select nothing.
	all []string
}

// wrap returns a transport that counts.
func (t *traffic) wrap(inner http.RoundTripper) http.RoundTripper {
	return transport(func(r *http.Request) (*http.Response, error) {
		if r.URL.Query().Get("watch") != "" {
			return inner.RoundTrip(r)
		}
		t.begin(r)
		reply, err := inner.RoundTrip(r)
		if err != nil {
			t.end()
			return reply, err
		}
		reply.Body = &counted{ReadCloser: reply.Body, of: t}
		return reply, nil
	})
}

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

func (t *traffic) begin(r *http.Request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open++
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if i := slices.Index(parts, "namespaces"); i >= 0 {
		parts = parts[min(i+2, len(parts)):]
	} else {
		parts = parts[min(len(parts), map[string]int{"api": 2, "apis": 3}[parts[0]]):]
	}
	verb := r.Method
	switch {
	case verb == http.MethodGet && len(parts) == 1:
		verb = "LIST"
		if q := r.URL.Query(); q.Get("fieldSelector") == "" && q.Get("labelSelector") == "" {
			t.all = append(t.all, parts[0])
		}
	case verb == http.MethodGet:
		t.read[r.URL.Path] = true
	}
	if len(parts) > 1 { // without the name
		parts = slices.Delete(parts, 1, 2)
	}
	t.requests[verb+" "+strings.Join(parts, "/")]++
}

func (t *traffic) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open--
}

// counted is the body of a reply.
type counted struct {
	io.ReadCloser
	of   *traffic
	once sync.Once
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.of.bytes += int64(n)
	return n, err
}

func (c *counted) Close() error {
	c.once.Do(c.of.end)
	return c.ReadCloser.Close()
}

// reset forgets what was counted.
func (t *traffic) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests, t.read, t.bytes, t.all = map[string]int{}, map[string]bool{}, 0, nil
}

// sum is what was counted since the last reset.
type sum struct {
	requests, writes int
	bytes            int64
	by               string
	all              []string
	read             int // distinct objects
	open             int
}

func (t *traffic) sum() sum {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := sum{bytes: t.bytes, all: slices.Clone(t.all), read: len(t.read), open: t.open}
	for _, what := range slices.Sorted(maps.Keys(t.requests)) {
		s.requests += t.requests[what]
		if !strings.HasPrefix(what, "GET ") && !strings.HasPrefix(what, "LIST ") {
			s.writes += t.requests[what]
		}
		s.by += fmt.Sprintf("%d %s, ", t.requests[what], what)
	}
	return s
}
