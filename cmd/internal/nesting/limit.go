// Package nesting keeps objects that are nested too deeply from failing the lists and watches of their kind. The API server stores an object
// that is nested as deeply as JSON libraries decode, 10,000 levels, and whoever may update an object can give it such managedFields. client-go
// decodes a list as a whole, in which the object is two levels deeper.
package nesting

import (
	"io"
	"mime"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
)

// levels is how deeply objects and lists can be nested in a response. A review is limited likewise (webhooks/engine).
const levels = 200

// Limit returns a transport, for [k8s.io/client-go/rest.Config.Wrap], that empties the objects and lists in a JSON response that are nested
// 200 levels deep. Responses in protobuf need no limit: the API server has decoded their objects into types of bounded nesting.
func Limit(behind http.RoundTripper) http.RoundTripper { return transport{behind} }

type transport struct{ behind http.RoundTripper }

// WrappedRoundTripper returns the inner transport, through which client-go cancels requests.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.behind }

// RoundTrip sends a request and limits the nesting of the response.
func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.behind.RoundTrip(request)
	if err != nil || response.StatusCode == http.StatusSwitchingProtocols {
		return response, err
	}
	if kind, _, err := mime.ParseMediaType(response.Header.Get("Content-Type")); err != nil || kind != runtime.ContentTypeJSON {
		return response, nil
	}
	response.Body = &body{ReadCloser: response.Body}
	response.Header.Del("Content-Length")
	response.ContentLength = -1
	return response, nil
}

// body reads JSON texts, one after another, and leaves out what is in objects and lists that are nested too deeply.
type body struct {
	io.ReadCloser
	depth          int
	quoted, escape bool
}

// Read reads the next part of the response. What is left out makes it shorter.
func (b *body) Read(p []byte) (int, error) {
	for {
		n, err := b.ReadCloser.Read(p)
		if kept := b.keep(p[:n]); kept > 0 || n == 0 || err != nil {
			return kept, err
		}
	}
}

// keep moves the bytes to keep to the front, and returns how many they are.
func (b *body) keep(text []byte) (kept int) {
	for _, c := range text {
		outer := b.depth
		switch {
		case b.escape:
			b.escape = false
		case b.quoted:
			b.escape, b.quoted = c == '\\', c != '"'
		case c == '"':
			b.quoted = true
		case c == '{' || c == '[':
			b.depth++
		case c == '}' || c == ']':
			b.depth--
		}
		if min(outer, b.depth) < levels {
			text[kept] = c
			kept++
		}
	}
	return kept
}
