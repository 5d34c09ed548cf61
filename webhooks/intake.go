package webhooks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/semaphore"

	"sallyport.dev/sallyport/fair"
	"sallyport.dev/sallyport/webhooks/facts"
)

// Any client in the cluster can send reviews, unless clients are verified. All reviews together are bounded here, so that the small
// reviews of API servers are read and decided whatever else is sent. The server of package manager bounds connections.
const (
	// maxBody bounds a review. An object of etcd's largest size (1.5 MiB), twice, with room for its JSON; controller-runtime's
	// own webhooks use the same number.
	maxBody = 7 << 20
	// usualBody and usualValues are the bytes and values up to which a review is not large.
	usualBody, usualValues = 64 << 10, 8_000
	// mostBytes bounds the bytes of all large reviews together.
	mostBytes = 32 << 20
	// mostDecisions is how many reviews are decided at once, mostLarge how many of them are not usual.
	mostDecisions, mostLarge = 256, 4
	// mostOfUser is how many of these places one user in one namespace gets. The rest is for others if its evaluations wait for each other.
	mostOfUser = 192
	// mostWaiting is how many wait for a place in the name of one namespace, or of one user where there is none.
	mostWaiting = 256
	// headBody is how many bytes of a review are searched for that name.
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
	decisions, large *fair.Slots
	users            *fair.Each
}

func newIntake() *intake {
	return &intake{
		bytes:     semaphore.NewWeighted(mostBytes),
		decisions: fair.NewSlots(mostDecisions, mostWaiting), large: fair.NewSlots(mostLarge, mostWaiting),
		users: fair.NewEach(mostOfUser, mostWaiting),
	}
}

// patienceFor returns how long the API server waits for the answer to a request, as its URL says, up to patience.
func patienceFor(r *http.Request) time.Duration {
	if said, err := time.ParseDuration(r.URL.Query().Get("timeout")); err == nil && said > 0 {
		return min(said, patience)
	}
	return patience
}

// read returns the body of a request. A large one waits for its share of mostBytes, which the caller gives back with release when
// nothing refers to the text any more.
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
	_ = control.SetReadDeadline(ends) // only connections of tests have none
	read := bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead))
	if _, err := read.ReadFrom(http.MaxBytesReader(w, r.Body, maxBody)); err != nil {
		release()
		return nil, nil, fmt.Errorf("%w: %w", errUnread, err)
	}
	_ = control.SetReadDeadline(time.Time{}) // or the connection would end while the review is decided
	return read.Bytes(), release, nil
}

// decode makes a review of a text, which has a place until leave is called. A large one has it while it is taken apart, too.
func (in *intake) decode(ctx context.Context, text []byte) (review *Review, leave func(), err error) {
	among, large := in.decisions, len(text) > usualBody
	if large {
		among = in.large
	}
	if leave, err = place(ctx, among, text); err != nil {
		return nil, nil, err
	}
	review, err = Decode(text)
	switch {
	case err != nil || large:
	case review.Document.Values() > usualValues:
		leave()
		leave, err = place(ctx, in.large, text)
	default:
		leave, err = in.limit(ctx, review.user(), leave, text)
	}
	if err != nil && leave != nil {
		leave()
	}
	return review, leave, err
}

// limit takes one of the places of a user, in addition to the place that the review has. While it waits for one, it gives the other back.
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

// place waits for one among others, and gives what frees it. Only those who wait ask whose share it is.
func place(ctx context.Context, among *fair.Slots, text []byte) (leave func(), err error) {
	if !among.TryAcquire() && among.Acquire(ctx, shareOf(text)) != nil {
		return nil, errBusy
	}
	return among.Release, nil
}

// shareOf finds whose share of the places a review takes, in what an API server sends before the objects.
func shareOf(text []byte) string {
	at := map[jsontext.Pointer]string{}
	decoder := jsontext.NewDecoder(bytes.NewReader(text[:min(len(text), headBody)]))
	for token, err := decoder.ReadToken(); err == nil; token, err = decoder.ReadToken() {
		switch p := decoder.StackPointer(); p {
		case "/request/namespace", "/request/userInfo/username": // the name of a member comes first, and its value over it
			at[p] = token.String()
		}
	}
	return facts.Share(at["/request/namespace"], at["/request/userInfo/username"])
}
