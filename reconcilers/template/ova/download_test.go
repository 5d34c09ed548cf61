package ova

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// What a part becomes, by what it has and what the server makes of a request for the rest.
func TestResume(t *testing.T) {
	data := content("abcdefg", 1000)
	whole := func(out http.ResponseWriter, _ *http.Request) { _, _ = out.Write(data) }
	// partly answers a request for a range with that header and content, and any other with everything.
	partly := func(contentRange string, rest []byte) http.HandlerFunc {
		return func(out http.ResponseWriter, request *http.Request) {
			if request.Header.Get("Range") == "" {
				whole(out, request)
				return
			}
			out.Header().Set("Content-Range", contentRange)
			out.WriteHeader(http.StatusPartialContent)
			_, _ = out.Write(rest)
		}
	}
	for name, tc := range map[string]struct {
		part   []byte
		answer http.HandlerFunc
		asked  []string
	}{
		"the rest comes":                       {part: data[:600], asked: []string{"bytes=600-"}},
		"the server knows no ranges":           {part: data[:600], answer: whole, asked: []string{"bytes=600-"}},
		"all of it is there":                   {part: data},
		"nothing is there":                     {part: []byte{}, asked: []string{""}},
		"something else was written":           {part: content("x", 600), asked: []string{"bytes=600-", ""}},
		"the server has less now":              {part: content("x", 2000), asked: []string{"bytes=2000-", ""}},
		"as much of something else is there":   {part: content("x", 1000), asked: []string{"bytes=1000-", ""}},
		"another range comes":                  {data[:600], partly("bytes 0-999/1000", data), []string{"bytes=600-", ""}},
		"a range without a size comes":         {data[:600], partly("bytes 600-999/*", data[600:]), []string{"bytes=600-", ""}},
		"a range beyond its size comes":        {data[:600], partly("bytes 600-999/700", data[600:]), []string{"bytes=600-", ""}},
		"a range that goes back comes":         {data[:600], partly("bytes 600-1/1000", data[600:]), []string{"bytes=600-", ""}},
		"no header says which range comes":     {data[:600], partly("", data[600:]), []string{"bytes=600-", ""}},
		"the rest of something longer comes":   {data[:600], partly("bytes 600-1000/1001", content("y", 401)), []string{"bytes=600-", ""}},
		"what is no range is said to be one":   {data[:600], partly("lines 1-2/3", data[600:]), []string{"bytes=600-", ""}},
		"more comes than the server has of it": {data[:600], partly("bytes 600-998/999", data[600:]), nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := serving(t, data)
			if tc.answer != nil {
				w.answers(tc.answer)
			}
			w.left(w.part(w.source()), tc.part, 1)
			if tc.asked == nil && tc.answer != nil {
				w.refuses(w.source(), runtime.IsUnavailable, "too early")
				return
			}
			w.has(w.source(), data)
			if diff := cmp.Diff(tc.asked, w.asked()); diff != "" {
				t.Errorf("asked for (-want +got):\n%s", diff)
			}
			w.ended()
			if diff := cmp.Diff([]string{digest(data) + ".ova"}, w.folder()); diff != "" {
				t.Errorf("in the folder (-want +got):\n%s", diff)
			}
		})
	}
}

// What is written after the wrong part of something was resumed is compared, too.
func TestWrongChecksumAfterResume(t *testing.T) {
	w := serving(t, content("abcdefg", 1000))
	source := w.source()
	source.SHA256 = digest([]byte("another"))
	w.left(w.part(source), w.data[:600], 1)
	w.refuses(source, runtime.IsInvalidSpec, "spec.source.sha256", digest(w.data))
	if asked := w.asked(); len(asked) != 2 {
		t.Errorf("asked for %q", asked)
	}
}

// A download that breaks off is gone on with.
func TestBrokenOff(t *testing.T) {
	for name, broken := range map[string]func(http.ResponseWriter, []byte){
		"the size was said": func(out http.ResponseWriter, data []byte) {
			out.Header().Set("Content-Length", strconv.Itoa(len(data)))
			_, _ = out.Write(data[:600])
			out.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		},
		"the size was not said": func(out http.ResponseWriter, data []byte) {
			_, _ = out.Write(data[:600])
			out.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		},
	} {
		t.Run(name, func(t *testing.T) {
			data := content("abcdefg", 1000)
			w := serving(t, data)
			w.answers(func(out http.ResponseWriter, _ *http.Request) { broken(out, data) })
			w.refuses(w.source(), runtime.IsUnavailable, "spec.source.url", "ended the connection too early")
			w.ended()
			if diff := cmp.Diff([]string{w.part(w.source())}, w.folder()); diff != "" {
				t.Errorf("in the folder (-want +got):\n%s", diff)
			}
			w.answers(w.serve)
			w.has(w.source(), data)
			if diff := cmp.Diff([]string{"", "bytes=600-"}, w.asked()); diff != "" {
				t.Errorf("asked for (-want +got):\n%s", diff)
			}
		})
	}
}

// A range may be shorter than what was asked for.
func TestShortRange(t *testing.T) {
	data := content("abcdefg", 1000)
	w := serving(t, data)
	w.left(w.part(w.source()), data[:600], 1)
	w.answers(func(out http.ResponseWriter, request *http.Request) {
		var first int
		_, _ = fmt.Sscanf(request.Header.Get("Range"), "bytes=%d-", &first)
		last := min(first+300, len(data))
		out.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/1000", first, last-1))
		out.WriteHeader(http.StatusPartialContent)
		_, _ = out.Write(data[first:last])
	})
	w.refuses(w.source(), runtime.IsUnavailable, "too early")
	w.has(w.source(), data)
}

func TestStandingStill(t *testing.T) {
	for name, answer := range map[string]func(http.ResponseWriter){
		"nothing comes": func(http.ResponseWriter) {},
		"it stops": func(out http.ResponseWriter) {
			_, _ = out.Write([]byte("abc"))
			out.(http.Flusher).Flush()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := serving(t, content("abcdefg", 1000))
			w.Patience = 20 * time.Millisecond
			w.answers(func(out http.ResponseWriter, request *http.Request) {
				answer(out)
				<-request.Context().Done()
			})
			w.refuses(w.source(), runtime.IsUnavailable, "stalled")
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
