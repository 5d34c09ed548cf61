// Package decoding has clients of the API server survive objects that they cannot decode: one of them would otherwise fail the list, and
// the watch, of its kind. A [Filter] looks at the JSON that the API server sends, object by object, before client-go decodes all of it
// at once. Objects that clients receive as protobuf cannot be nested too deep, and were decoded into the same types by the API server.
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

// Filter makes the transports of clients. In what they read, objects and lists that are nested too deep in an object are null, and
// managedFields with such are left out. An object that does not decode into its type is an error that names its field, or is left out.
type Filter struct {
	// Scheme has the types that objects are decoded into, and no others. Clients that read unstructured objects decode into none.
	Scheme *runtime.Scheme
	// DropManagedFields has the managedFields left out of lists and watches.
	DropManagedFields bool
	// Left is told of each object that is left out of a list, or reduced. If it is nil, objects that do not decode are errors.
	Left func(*Error)
	// Fine is told of the others, and of those that are deleted. It may be nil.
	Fine func(types.UID)
	// Watches has objects left out of watches as well: one that cannot be decoded any more is deleted there.
	Watches bool
	// Reduce tells for which kinds an object that does not decode is not left out, but comes without its status, and if that does not
	// decode either, with nothing but its metadata.
	Reduce func(kind string) bool
}

// Wrap is for [rest.Config.Wrap].
func (f Filter) Wrap(behind http.RoundTripper) http.RoundTripper { return transport{f, behind} }

type transport struct {
	Filter
	behind http.RoundTripper
}

// WrappedRoundTripper is for client-go, which looks for what can be cancelled.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.behind }

// RoundTrip sends a request, and filters objects out of the answer to a read.
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
	if request.Header.Get("Accept") == runtime.ContentTypeJSON { // as only clients for unstructured objects have it
		p.Scheme = nil
	}
	pass := p.answer
	if follows, _ := strconv.ParseBool(request.URL.Query().Get("watch")); follows {
		pass = p.events
	}
	response.Body = &body{reader, response.Body}
	response.Header.Del("Content-Length")
	response.ContentLength = -1
	go func() { writer.CloseWithError(pass()) }()
	return response, nil
}

// body is what is left of an answer.
type body struct {
	*io.PipeReader
	from io.Closer
}

// Close ends the reader of the answer, too.
func (b *body) Close() error { return errors.Join(b.PipeReader.Close(), b.from.Close()) }
