package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/semaphore"

	"sallyport.dev/sallyport/fairqueue"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/facts"
)

// Unless clients are verified, any client in the cluster can send reviews. These limits ensure that the small reviews of API servers are
// read and decided whatever else is sent. The server of package manager limits connections.
const (
	// maxBody limits the bytes of a review: two objects of etcd's largest size (1.5 MiB), and room for their JSON. controller-runtime's
	// webhooks have the same limit.
	maxBody = 7 << 20
	// usualBody and usualValues are the bytes and values above which a review is large.
	usualBody, usualValues = 64 << 10, 8_000
	// mostBytes limits the bytes of all large reviews together.
	mostBytes = 32 << 20
	// mostDecisions limits concurrent decisions, mostLarge those of large reviews.
	mostDecisions, mostLarge = 256, 4
	// mostOfUser limits concurrent decisions of one user in one namespace, so that others proceed while these wait for each other.
	mostOfUser = 192
	// mostWaiting limits the reviews of one namespace, or of one user where there is none, that wait for a place.
	mostWaiting = 256
	// headBody is the number of bytes of a review that are searched for the namespace and user.
	headBody = 16 << 10
	// patience limits the reading of a body, unless the API server waits for less; largePatience that of a large one.
	patience, largePatience = 10 * time.Second, 3 * time.Second
)

// errBusy rejects a review if too many others are in progress.
var errBusy = errors.New("too many concurrent reviews")

// errUnread wraps an error of reading a body.
var errUnread = errors.New("reading the body")

// intake reads and decodes the reviews of all endpoints within common limits.
type intake struct {
	bytes            *semaphore.Weighted // of large bodies
	decisions, large *fairqueue.Slots
	users            *fairqueue.Each
}

func newIntake() *intake {
	return &intake{
		bytes:     semaphore.NewWeighted(mostBytes),
		decisions: fairqueue.NewSlots(mostDecisions, mostWaiting), large: fairqueue.NewSlots(mostLarge, mostWaiting),
		users: fairqueue.NewEach(mostOfUser, mostWaiting),
	}
}

// patienceFor returns the timeout in the URL of an API server's request, at most patience.
func patienceFor(r *http.Request) time.Duration {
	if said, err := time.ParseDuration(r.URL.Query().Get("timeout")); err == nil && said > 0 {
		return min(said, patience)
	}
	return patience
}

// read returns the body of a request. For a large one it waits for bytes of mostBytes; the caller calls release once it no longer uses the
// text.
func (in *intake) read(ctx context.Context, w http.ResponseWriter, r *http.Request) (text []byte, release func(), err error) {
	size, release := min(r.ContentLength, maxBody), func() {}
	if size < 0 {
		size = maxBody // the client did not announce a length
	}
	ends, _ := ctx.Deadline()
	if size > usualBody {
		if in.bytes.Acquire(ctx, size) != nil {
			return nil, nil, errBusy
		}
		release = func() { in.bytes.Release(size) }
		if large := time.Now().Add(largePatience); large.Before(ends) {
			ends = large
		}
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(ends) // fails only for connections in tests
	read := bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead))
	if _, err := read.ReadFrom(http.MaxBytesReader(w, r.Body, maxBody)); err != nil {
		release()
		return nil, nil, fmt.Errorf("%w: %w", errUnread, err)
	}
	_ = control.SetReadDeadline(time.Time{}) // otherwise it would close the connection during the decision
	return read.Bytes(), release, nil
}

// decode decodes a review and takes a place for its decision, which leave releases. The place of a large one also covers its decoding.
func (in *intake) decode(ctx context.Context, text []byte) (review *decision.Review, leave func(), err error) {
	among, large := in.decisions, len(text) > usualBody
	if large {
		among = in.large
	}
	if leave, err = place(ctx, among, text); err != nil {
		return nil, nil, err
	}
	review, err = decision.Decode(text)
	switch {
	case err != nil || large:
	case review.Document.Values() > usualValues:
		leave()
		leave, err = place(ctx, in.large, text)
	default:
		leave, err = in.limit(ctx, review.User(), leave, text)
	}
	if err != nil && leave != nil {
		leave()
	}
	return review, leave, err
}

// limit takes one of the user's places, in addition to the place that leave releases. It does not hold that one while it waits.
func (in *intake) limit(ctx context.Context, user string, leave func(), text []byte) (func(), error) {
	release := in.users.TryAcquire(user)
	if release == nil {
		leave()
		var err error
		if release, err = in.users.Acquire(ctx, user); err != nil {
			return nil, errBusy
		}
		if leave, err = place(ctx, in.decisions, text); err != nil {
			release()
			return nil, err
		}
	}
	return func() {
		leave()
		release()
	}, nil
}

// place waits for a place and returns the function that releases it. It parses the share only if it has to wait, because that is slow.
func place(ctx context.Context, among *fairqueue.Slots, text []byte) (leave func(), err error) {
	if !among.TryAcquire() && among.Acquire(ctx, shareOf(text)) != nil {
		return nil, errBusy
	}
	return among.Release, nil
}

// shareOf returns the share that a review counts toward, from the fields that API servers send before the objects.
func shareOf(text []byte) string {
	at := map[jsontext.Pointer]string{}
	decoder := jsontext.NewDecoder(bytes.NewReader(text[:min(len(text), headBody)]))
	for token, err := decoder.ReadToken(); err == nil; token, err = decoder.ReadToken() {
		switch p := decoder.StackPointer(); p {
		case "/request/namespace", "/request/userInfo/username": // the member's name, then its value, which overwrites it
			at[p] = token.String()
		}
	}
	return facts.Share(at["/request/namespace"], at["/request/userInfo/username"])
}
