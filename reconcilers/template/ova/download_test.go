package ova

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"testing"
	"time"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// An OVA ends without an error only if all of it is what the source says, whatever the server does.
func TestContent(t *testing.T) {
	data := content("abcdefg", 1_000_000)
	sends := func(out http.ResponseWriter, length int, data []byte) {
		if length > 0 {
			out.Header().Set("Content-Length", strconv.Itoa(length))
		}
		_, _ = out.Write(data)
		out.(http.Flusher).Flush()
	}
	lies := func(out http.ResponseWriter, length int, data []byte) {
		connection, _, err := http.NewResponseController(out).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = fmt.Fprintf(connection, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", length, data)
		_ = connection.Close()
	}
	aborts := func() { panic(http.ErrAbortHandler) }
	invalid, away := runtime.IsInvalidSpec, runtime.IsUnavailable
	for name, c := range map[string]struct {
		answer func(out http.ResponseWriter)
		is     func(error) bool
		says   string
	}{
		"whole":                                   {func(out http.ResponseWriter) { sends(out, len(data), data) }, nil, ""},
		"whole, of an unknown size":               {func(out http.ResponseWriter) { sends(out, 0, data) }, nil, ""},
		"truncated, with the size of the whole":   {func(out http.ResponseWriter) { sends(out, len(data), data[:600]); aborts() }, away, "too early"},
		"truncated, with the connection":          {func(out http.ResponseWriter) { sends(out, 0, data[:600]); aborts() }, away, "too early"},
		"truncated, of an unknown size":           {func(out http.ResponseWriter) { sends(out, 0, data[:600]) }, invalid, "spec.source.sha256: "},
		"truncated, with its size":                {func(out http.ResponseWriter) { sends(out, 600, data[:600]) }, invalid, "spec.source.sha256: "},
		"longer than its size":                    {func(out http.ResponseWriter) { lies(out, 600, data) }, invalid, "spec.source.sha256: "},
		"a size that no cache could ever reserve": {func(out http.ResponseWriter) { sends(out, 1<<62, data); aborts() }, away, "too early"},
		"changed": {func(out http.ResponseWriter) { sends(out, len(data), append(content("x", 7), data[7:]...)) }, invalid, "spec.source.sha256: "},
		"more":    {func(out http.ResponseWriter) { sends(out, 0, append(data, 0)) }, invalid, "spec.source.sha256: "},
		"nothing": {func(http.ResponseWriter) {}, invalid, "spec.source.sha256: "},
	} {
		t.Run(name, func(t *testing.T) {
			w := serving(t, data)
			w.answers(func(out http.ResponseWriter, _ *http.Request) { c.answer(out) })
			if c.is == nil {
				w.has(w.source(), data)
			} else {
				w.refuses(w.source(), c.is, c.says)
			}
			w.answers(w.serve)
			w.has(w.source(), data) // nothing of it was kept
		})
	}
}

// A download is given up that stands still, before its first byte or after it, or brings too little.
func TestTooSlow(t *testing.T) {
	for name, answer := range map[string]func(http.ResponseWriter, *http.Request){
		"nothing comes": func(_ http.ResponseWriter, request *http.Request) { <-request.Context().Done() },
		"it stops": func(out http.ResponseWriter, request *http.Request) {
			_, _ = out.Write([]byte("abc"))
			out.(http.Flusher).Flush()
			<-request.Context().Done()
		},
		"it trickles": func(out http.ResponseWriter, request *http.Request) {
			for request.Context().Err() == nil {
				_, _ = out.Write([]byte("a"))
				out.(http.Flusher).Flush()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := serving(t, content("abcdefg", 1000))
			w.Patience = 50 * time.Millisecond
			w.answers(answer)
			w.refuses(w.source(), runtime.IsUnavailable, "stalled, or brought less than 4 MiB in 60s")
		})
	}
}

// Time in which nobody reads is none that the server takes.
func TestPace(t *testing.T) {
	gaveUp := make(chan struct{})
	p := &pace{patience: time.Hour, giveUp: func() { close(gaveUp) }}
	p.waited = 59 * time.Minute
	if _, err := p.wait(func() (int, error) { return minBytes, nil }); err != nil || p.waited != 0 || p.got != 0 {
		t.Errorf("after enough has come: %+v, %v", p, err)
	}
	p.waited = time.Hour
	if n, err := p.wait(func() (int, error) { <-gaveUp; return 1, io.EOF }); n != 1 || !errors.Is(err, io.EOF) || p.waited < time.Hour {
		t.Errorf("too little has come: %+v, %d, %v", p, n, err)
	}
}

// A download ends with its context, and with Close while it is being read.
func TestDownloadEnds(t *testing.T) {
	for name, end := range map[string]func(context.CancelFunc, *Stream){
		"with its context": func(cancel context.CancelFunc, _ *Stream) { cancel() },
		"with Close":       func(_ context.CancelFunc, s *Stream) { _ = s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			w := serving(t, content("abcdefg", 1000))
			hungUp := make(chan struct{})
			w.answers(func(out http.ResponseWriter, request *http.Request) {
				_, _ = out.Write([]byte("abc"))
				out.(http.Flusher).Flush()
				<-request.Context().Done()
				close(hungUp)
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			archive, err := w.Open(ctx, w.source())
			w.Must(err)
			_, err = io.ReadFull(archive, make([]byte, 3))
			w.Must(err)
			go end(cancel, archive)
			_, err = archive.Read(make([]byte, 1))
			w.told(err, func(err error) bool { return errors.Is(err, context.Canceled) })
			<-hungUp
			w.Must(archive.Close())
		})
	}
}

func TestStatus(t *testing.T) {
	w := serving(t, content("abcdefg", 1000))
	for status, is := range map[int]func(error) bool{
		http.StatusBadRequest:          runtime.IsInvalidSpec,
		http.StatusUnauthorized:        runtime.IsInvalidSpec,
		http.StatusForbidden:           runtime.IsInvalidSpec,
		http.StatusNotFound:            runtime.IsInvalidSpec,
		http.StatusGone:                runtime.IsInvalidSpec,
		http.StatusRequestTimeout:      runtime.IsUnavailable,
		http.StatusTooEarly:            runtime.IsUnavailable,
		http.StatusTooManyRequests:     runtime.IsUnavailable,
		http.StatusInternalServerError: runtime.IsUnavailable,
		http.StatusServiceUnavailable:  runtime.IsUnavailable,
		http.StatusNoContent:           runtime.IsUnavailable,
		http.StatusPartialContent:      runtime.IsUnavailable,
		http.StatusNotModified:         runtime.IsUnavailable,
	} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			w.answers(func(out http.ResponseWriter, _ *http.Request) { out.WriteHeader(status) })
			w.refuses(w.source(), is, "spec.source.url", strconv.Itoa(status), http.StatusText(status))
		})
	}
}
