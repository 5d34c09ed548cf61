package ova

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/step"
)

// content is what an OVA of so many bytes has, which differs by what it is of.
func content(of string, size int) []byte { return bytes.Repeat([]byte(of), size/len(of)+1)[:size] }

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// world is a server with OVAs, and what downloads them.
type world struct {
	step.T
	*Downloader
	server *httptest.Server
	data   []byte

	log    sync.Mutex
	answer http.HandlerFunc
	count  int // of the requests
}

// serving gives a server that has the content at every path.
func serving(t *testing.T, data []byte) *world {
	w := &world{T: step.T{T: t}, data: data, Downloader: &Downloader{}}
	w.answer = w.serve
	w.server = w.listen(func(out http.ResponseWriter, request *http.Request) {
		w.log.Lock()
		w.count++
		answer := w.answer
		w.log.Unlock()
		answer(out, request)
	})
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

// asked gives how many requests there were.
func (w *world) asked() int {
	w.log.Lock()
	defer w.log.Unlock()
	return w.count
}

func authority(server *httptest.Server) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
}

// source is where the server has the OVA.
func (w *world) source() v1alpha1.VSphereTemplateSource {
	return v1alpha1.VSphereTemplateSource{URL: w.server.URL + "/a.ova?token=secret", SHA256: digest(w.data), CABundle: authority(w.server)}
}

func (w *world) fetch(source v1alpha1.VSphereTemplateSource) (content []byte, err error) {
	w.Helper()
	archive, err := w.Open(w.Context(), source)
	if err != nil {
		return nil, err
	}
	defer func() { w.Must(archive.Close()) }()
	content, err = io.ReadAll(archive)
	if n, again := archive.Read(make([]byte, 1)); n != 0 || err == nil && !errors.Is(again, io.EOF) || err != nil && !errors.Is(again, err) {
		w.Errorf("after its end it reads %d bytes, %v", n, again)
	}
	return content, err
}

// has downloads the OVA and compares it.
func (w *world) has(source v1alpha1.VSphereTemplateSource, want []byte) {
	w.Helper()
	got, err := w.fetch(source)
	if err != nil || !bytes.Equal(got, want) {
		w.Errorf("it has %d bytes of %d, %v", len(got), len(want), err)
	}
}

// refuses downloads, and wants an error with these words. What a user is told has no secret and no address in it.
func (w *world) refuses(source v1alpha1.VSphereTemplateSource, is func(error) bool, words ...string) {
	w.Helper()
	_, err := w.fetch(source)
	w.told(err, is, words...)
}

func (w *world) told(err error, is func(error) bool, words ...string) {
	w.Helper()
	if err == nil {
		w.Fatal("it was downloaded")
	}
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
