package webhooks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"sallyport.dev/sallyport/fair"
	"sallyport.dev/sallyport/webhooks/facts"
)

// Anybody in the cluster can send reviews, unless clients are verified. What all of them together can take is bounded here, so that the
// small ones of API servers are read and decided whatever else is sent.
const (
	// maxBody bounds a review. An object of etcd's largest size (1.5 MiB), twice, with room for its JSON; controller-runtime's
	// own webhooks use the same number.
	maxBody = 7 << 20
	// usualBody is how many bytes of each review, and usualValues how many values, are nothing special.
	usualBody, usualValues = 64 << 10, 8_000
	// mostBytes is how many bytes beyond usualBody all reviews may have together, but for the one whose turn it is.
	mostBytes = 32 << 20
	// mostReaders is how many bodies are read at once. Whoever has taken longest gives way to one more.
	mostReaders = 512
	// mostDecisions is how many reviews are decided at once, mostLarge how many of them are not usual.
	mostDecisions, mostLarge = 256, 4
	// mostOfUser is how many of these places one user in one namespace gets. The rest is for others if its evaluations wait for each other.
	mostOfUser = 192
	// mostWaiting is how many wait for a place in the name of one namespace, or of one user where there is none.
	mostWaiting = 256
	// headBody is how many bytes of a review are searched for that name.
	headBody = 16 << 10
	// patience is how long a body may take, or else as long as the API server waits; largePatience how long the rest of one may take
	// that is beyond usualBody, turnPatience the rest of the one whose turn it is.
	patience, largePatience, turnPatience = 10 * time.Second, 3 * time.Second, time.Second
)

// errBusy is what a review gets that would be too much beside the others.
var errBusy = errors.New("too many concurrent reviews")

// errUnread is that of a body that did not come as a whole.
var errUnread = errors.New("reading the body")

// intake has the reviews of all endpoints.
type intake struct {
	mu      sync.Mutex
	reading []*body       // the oldest first
	left    int           // of mostBytes
	turn    chan struct{} // of the one that reads beyond mostBytes

	decisions, large *fair.Slots
	users            *fair.Each
}

func newIntake() *intake {
	return &intake{
		left: mostBytes, turn: make(chan struct{}, 1),
		decisions: fair.NewSlots(mostDecisions, mostWaiting), large: fair.NewSlots(mostLarge, mostWaiting),
		users: fair.NewEach(mostOfUser, mostWaiting),
	}
}

// patienceFor is how long an answer to a request is waited for, as API servers say in its URL.
func patienceFor(r *http.Request) time.Duration {
	if said, err := time.ParseDuration(r.URL.Query().Get("timeout")); err == nil && said > 0 {
		return min(said, patience)
	}
	return patience
}

// body is what was read of a request, or is being read.
type body struct {
	intake  *intake
	text    []byte
	taken   int  // of mostBytes
	hasTurn bool // then nothing more is taken
	control *http.ResponseController
	ends    time.Time // the reading; it never becomes later
}

// read reads the body of a request. The caller gives it back when nothing refers to its text any more.
func (in *intake) read(ctx context.Context, w http.ResponseWriter, r *http.Request) (*body, error) {
	b := &body{intake: in, text: make([]byte, 0, min(max(r.ContentLength, 0), usualBody)+bytes.MinRead), control: http.NewResponseController(w)}
	b.ends, _ = ctx.Deadline()
	defer in.enter(b)()
	from := http.MaxBytesReader(w, r.Body, maxBody)
	for {
		if len(b.text) == cap(b.text) {
			if err := b.grow(ctx, int(r.ContentLength)); err != nil {
				b.giveBack()
				return nil, err
			}
		}
		n, err := from.Read(b.text[len(b.text):cap(b.text)])
		b.text = b.text[:len(b.text)+n]
		switch {
		case errors.Is(err, io.EOF):
			return b, nil
		case err != nil:
			b.giveBack()
			return nil, fmt.Errorf("%w: %w", errUnread, err)
		}
	}
}

// enter notes a body that is being read, and ends the reading of the oldest if there are too many.
func (in *intake) enter(b *body) (leave func()) {
	in.mu.Lock()
	defer in.mu.Unlock()
	b.until(b.ends)
	if len(in.reading) >= mostReaders {
		in.reading[0].until(time.Now())
		in.reading = slices.Delete(in.reading, 0, 1)
	}
	in.reading = append(in.reading, b)
	return func() {
		in.mu.Lock()
		defer in.mu.Unlock()
		if i := slices.Index(in.reading, b); i >= 0 {
			in.reading = slices.Delete(in.reading, i, i+1)
		}
		if time.Now().Before(b.ends) { // or the connection would end while the review is decided
			_ = b.control.SetReadDeadline(time.Time{})
		}
	}
}

// until ends the reading then, if it does not end before. The intake is locked.
func (b *body) until(at time.Time) {
	if !at.After(b.ends) {
		b.ends = at
		_ = b.control.SetReadDeadline(at) // a connection that has none is a test's
	}
}

// within ends the reading after that time.
func (b *body) within(d time.Duration) {
	b.intake.mu.Lock()
	defer b.intake.mu.Unlock()
	b.until(time.Now().Add(d))
}

// grow makes room for more, twice as much or what was announced. From usualBody on that is taken from what all have together; if
// nothing is left, one after the other reads to its end. So nobody waits for somebody who waits, too.
func (b *body) grow(ctx context.Context, announced int) error {
	room := 2 * cap(b.text)
	if announced >= cap(b.text) && announced < room {
		room = announced + bytes.MinRead
	}
	if room > usualBody+bytes.MinRead && !b.hasTurn {
		if b.taken == 0 {
			b.within(largePatience)
		}
		if more := room - usualBody - b.taken; b.intake.take(more) {
			b.taken += more
		} else {
			select {
			case b.intake.turn <- struct{}{}:
				b.hasTurn = true
				b.within(turnPatience)
			case <-ctx.Done():
				return errBusy
			}
		}
	}
	text := make([]byte, len(b.text), room)
	copy(text, b.text)
	b.text = text
	return nil
}

func (in *intake) take(n int) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.left < n {
		return false
	}
	in.left -= n
	return true
}

// giveBack is for when the text is not needed any more.
func (b *body) giveBack() {
	b.intake.mu.Lock()
	b.intake.left += b.taken
	b.intake.mu.Unlock()
	b.taken, b.text = 0, nil
	if b.hasTurn {
		<-b.intake.turn
		b.hasTurn = false
	}
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
