// Package decoding keeps objects that do not decode from failing the lists and watches of their kind. client-go decodes a list as a whole.
// A [Filter] checks each object in the JSON from the API server before client-go decodes the list. Objects in protobuf need no check: the
// API server has decoded them into the same types, and their nesting is bounded.
package decoding

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Filter wraps the transports of clients. It replaces values that are nested too deeply with null, and leaves out managedFields that contain
// such values. For an object that does not decode into its type, the client gets an [Error], or the object is left out.
type Filter struct {
	// Scheme has the types that are checked. Objects for clients of unstructured objects are not checked.
	Scheme *runtime.Scheme
	// DropManagedFields leaves managedFields out of lists and watches.
	DropManagedFields bool
	// ShortenAnnotations leaves the copy of an object that kubectl apply keeps in its annotations out, and puts null in the place of the
	// annotations beyond mostAnnotations.
	ShortenAnnotations bool
	// Left is called for each object that is left out or reduced. If it is nil, the client gets an error for an object that does not decode.
	Left func(*Error)
	// Fine is called for each object that decodes, and for each that is deleted. It may be nil.
	Fine func(types.UID)
	// Watches leaves objects out of watches, too. If an object no longer decodes, the watch reports it as deleted.
	Watches bool
	// Reduce reports whether objects of a kind that do not decode are reduced instead of left out: to the object without its status, or to
	// its metadata if that does not decode either.
	Reduce func(kind string) bool
}

// Wrap returns a transport that filters responses, for [rest.Config.Wrap].
func (f Filter) Wrap(behind http.RoundTripper) http.RoundTripper { return transport{f, behind} }

type transport struct {
	Filter
	behind http.RoundTripper
}

// WrappedRoundTripper returns the inner transport, through which client-go cancels requests.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.behind }

// RoundTrip sends a request and filters the response to a read.
func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.behind.RoundTrip(request)
	if err != nil || request.Method != http.MethodGet || response.StatusCode != http.StatusOK {
		return response, err
	}
	if kind, _, err := mime.ParseMediaType(response.Header.Get("Content-Type")); err != nil || kind != runtime.ContentTypeJSON {
		return response, nil
	}
	reader, writer := io.Pipe()
	p := &passing{Filter: t.Filter, scanner: newScanner(response.Body), to: writer}
	if request.Header.Get("Accept") == runtime.ContentTypeJSON { // only clients of unstructured objects accept nothing but JSON
		p.Scheme = nil
	}
	pass := p.response
	if follows, _ := strconv.ParseBool(request.URL.Query().Get("watch")); follows {
		pass = p.events
	}
	response.Body = &body{reader, response.Body}
	response.Header.Del("Content-Length")
	response.ContentLength = -1
	go func() { writer.CloseWithError(pass()) }()
	return response, nil
}

type body struct {
	*io.PipeReader
	from io.Closer
}

// Close also closes the body of the original response.
func (b *body) Close() error { return errors.Join(b.PipeReader.Close(), b.from.Close()) }
