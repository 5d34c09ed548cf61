package ova

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/step"
)

// content is what an OVA of so many bytes has, which differs by what it is of.
func content(of string, size int) []byte { return bytes.Repeat([]byte(of), size/len(of)+1)[:size] }

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// world is a server with OVAs, and a cache.
type world struct {
	step.T
	*Cache
	server *httptest.Server
	data   []byte
	answer http.HandlerFunc

	log    sync.Mutex
	ranges []string // of the requests
}

// serving gives a server that has the content at every path, and knows ranges.
func serving(t *testing.T, data []byte) *world {
	w := &world{T: step.T{T: t}, data: data}
	hours := atomic.Int64{}
	w.Cache = &Cache{Dir: filepath.Join(t.TempDir(), "cache"), MaxBytes: 1 << 30, Now: func() time.Time {
		return time.Date(2026, 11, 1, int(hours.Add(1)), 0, 0, 0, time.UTC)
	}}
	w.answer = w.serve
	w.server = w.listen(func(out http.ResponseWriter, request *http.Request) {
		w.log.Lock()
		w.ranges = append(w.ranges, request.Header.Get("Range"))
		answer := w.answer
		w.log.Unlock()
		answer(out, request)
	})
	t.Cleanup(w.ended)
	return w
}

func (w *world) listen(handle http.HandlerFunc) *httptest.Server {
	server := httptest.NewUnstartedServer(handle)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	w.Cleanup(server.Close)
	return server
}

func (w *world) serve(out http.ResponseWriter, request *http.Request) {
	http.ServeContent(out, request, "", time.Time{}, bytes.NewReader(w.data))
}

func (w *world) answers(answer http.HandlerFunc) {
	w.log.Lock()
	defer w.log.Unlock()
	w.answer = answer
}

// asked gives the ranges that were asked for.
func (w *world) asked() []string {
	w.log.Lock()
	defer w.log.Unlock()
	return slices.Clone(w.ranges)
}

// ended waits for the downloads that nobody waits for any more.
func (w *world) ended() {
	for {
		w.mu.Lock()
		var d *download
		for _, d = range w.downloads {
		}
		w.mu.Unlock()
		if d == nil {
			return
		}
		<-d.done
	}
}

func authority(server *httptest.Server) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
}

// source is where the server has the OVA.
func (w *world) source() v1alpha1.VSphereTemplateSource {
	return v1alpha1.VSphereTemplateSource{URL: w.server.URL + "/a.ova?token=secret", SHA256: digest(w.data), CABundle: authority(w.server)}
}

func (w *world) fetch(source v1alpha1.VSphereTemplateSource) (*File, error) {
	return w.Fetch(w.Context(), source, nil, nil)
}

// has fetches the OVA and compares it.
func (w *world) has(source v1alpha1.VSphereTemplateSource, want []byte) *File {
	w.Helper()
	file, err := w.fetch(source)
	w.Must(err)
	w.Cleanup(func() { _ = file.Close() })
	w.reads(file, want)
	return file
}

func (w *world) reads(file *File, want []byte) {
	w.Helper()
	opened, err := file.Open()
	w.Must(err)
	got, err := io.ReadAll(opened)
	w.Must(err)
	if !bytes.Equal(got, want) || file.Size() != int64(len(want)) {
		w.Errorf("the file has %d bytes, of %d", len(got), file.Size())
	}
	w.Must(opened.Close())
}

// refuses fetches, and wants an error with these words. What a user is told has no secret and no address in it.
func (w *world) refuses(source v1alpha1.VSphereTemplateSource, is func(error) bool, words ...string) {
	w.Helper()
	file, err := w.fetch(source)
	if err == nil {
		_ = file.Close()
		w.Fatal("it was downloaded")
	}
	w.told(err, is, words...)
}

func (w *world) told(err error, is func(error) bool, words ...string) {
	w.Helper()
	if !is(err) {
		w.Errorf("an error of another kind: %v", err)
	}
	for _, word := range words {
		if !strings.Contains(runtime.Message(err), word) {
			w.Errorf("%q is not in: %v", word, err)
		}
	}
	if strings.Contains(err.Error(), "token") || strings.Contains(err.Error(), "secret") {
		w.Errorf("the query is in: %v", err)
	}
}

// folder gives the names in the cache's folder.
func (w *world) folder() (names []string) {
	entries, err := os.ReadDir(w.Dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		w.Fatal(err)
	}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// left puts a file into the cache's folder, as if it had been left there, used so many hours ago.
func (w *world) left(name string, data []byte, hours int) {
	w.Helper()
	w.Must(os.MkdirAll(w.Dir, 0o700))
	w.Must(os.WriteFile(w.path(name), data, 0o600))
	used := time.Date(2026, 10, 31, 0, 0, 0, 0, time.UTC).Add(-time.Duration(hours) * time.Hour)
	w.Must(os.Chtimes(w.path(name), used, used))
}

// part is the name of the part of a source.
func (w *world) part(source v1alpha1.VSphereTemplateSource) string {
	from, err := parse(source, nil)
	w.Must(err)
	return from.part
}

// fetching is a Fetch in the background.
type fetching struct {
	cancel context.CancelFunc
	done   chan struct{}
	file   *File
	err    error
}

func (w *world) begin(source v1alpha1.VSphereTemplateSource) *fetching {
	ctx, cancel := context.WithCancel(w.Context())
	f := &fetching{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(f.done)
		f.file, f.err = w.Fetch(ctx, source, nil, nil)
	}()
	w.Cleanup(func() {
		cancel()
		<-f.done
		if f.file != nil {
			_ = f.file.Close()
		}
	})
	return f
}

// waiting waits until so many wait for that download.
func (w *world) waiting(source v1alpha1.VSphereTemplateSource, count int) {
	w.Helper()
	part := w.part(source)
	w.Eventually("everybody waits for the download", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		d := w.downloads[part]
		return d != nil && d.waiting == count
	})
}
