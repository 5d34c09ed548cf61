package install

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// pace is how often each client of a load asks at most, and share the part of its time that it waits for replies: however slow the
	// machine is, most of it is left for what the load looks at.
	pace  = 50 * time.Millisecond
	share = 6
	// loadPatience is how long is waited for replies; it only matters if something is wrong.
	loadPatience = 3 * time.Minute
	// mostTold is of how many wrong replies an error tells.
	mostTold = 5
)

// Question is a request that one client makes again and again, without leaving anything behind.
type Question struct {
	Name   string
	Object func() *unstructured.Unstructured
	// Changed tells whether the mutating webhook has done its part of an object that was admitted. It may be nil.
	Changed func(*unstructured.Unstructured) bool
}

// Reply is what came of it.
type Reply struct {
	Question     string
	Began, Ended time.Time
	// Answer is Admitted, or what the user reads.
	Answer string
	// Err is set if nobody decided.
	Err error
}

// Load is the requests of several clients at once, all through the API server.
type Load struct {
	questions []Question
	stop      context.CancelFunc
	work      sync.WaitGroup

	mu      sync.Mutex
	replies []Reply
	grown   chan struct{} // closed with the next reply
}

// NewLoad starts a client for each question. They ask until End, or until the context ends.
func NewLoad(ctx context.Context, config *rest.Config, questions ...Question) (*Load, error) {
	var clients []client.Client
	for range questions {
		c, err := Client(config)
		if err != nil {
			return nil, err
		}
		clients = append(clients, c)
	}
	return newLoad(ctx, clients, questions), nil
}

func newLoad(ctx context.Context, clients []client.Client, questions []Question) *Load {
	l := &Load{questions: questions, grown: make(chan struct{})}
	ctx, l.stop = context.WithCancel(ctx)
	for i := range questions {
		l.work.Go(func() { l.keepAsking(ctx, clients[i], &questions[i]) })
	}
	return l
}

func (l *Load) keepAsking(ctx context.Context, c client.Client, q *Question) {
	for {
		r := q.ask(ctx, c)
		if ctx.Err() != nil {
			return // the reply may be that
		}
		l.mu.Lock()
		l.replies = append(l.replies, r)
		close(l.grown)
		l.grown = make(chan struct{})
		l.mu.Unlock()
		select {
		case <-time.After(max(pace, (share-1)*r.Ended.Sub(r.Began))):
		case <-ctx.Done():
			return
		}
	}
}

// ask makes the request once.
func (q *Question) ask(ctx context.Context, c client.Client) Reply {
	object := q.Object()
	r := Reply{Question: q.Name, Began: time.Now(), Answer: Admitted}
	err := c.Create(ctx, object, client.DryRunAll)
	r.Ended = time.Now()
	_, refused, judged := strings.Cut(fmt.Sprint(err), " denied the request: ")
	switch {
	case err == nil && q.Changed != nil && !q.Changed(object):
		r.Err = errors.New("admitted, but the mutating webhook was not asked")
	case err == nil:
	case judged && apierrors.ReasonForError(err) != "":
		r.Answer = refused
	default:
		r.Err = err
	}
	return r
}

// Now is a moment, as the number of replies so far.
func (l *Load) Now() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.replies)
}

// Since gives the replies to requests that were made after a moment.
func (l *Load) Since(mark int, moment time.Time) (found []Reply) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.replies[mark:] {
		if r.Began.After(moment) {
			found = append(found, r)
		}
	}
	return found
}

// More waits until each question was asked and answered a few times more, from now on, and gives those replies.
func (l *Load) More(ctx context.Context, few int) ([]Reply, error) {
	mark, moment := l.Now(), time.Now()
	ctx, cancel := context.WithTimeout(ctx, loadPatience)
	defer cancel()
	for {
		l.mu.Lock()
		grown := l.grown
		l.mu.Unlock()
		found := l.Since(mark, moment)
		counts := map[string]int{}
		for _, r := range found {
			counts[r.Question]++
		}
		enough := true
		for _, q := range l.questions {
			enough = enough && counts[q.Name] >= few
		}
		if enough {
			return found, nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return found, fmt.Errorf("waiting for replies: %w; there are %v", context.Cause(ctx), counts)
		}
	}
}

// End ends all clients and gives how many replies there were.
func (l *Load) End() int {
	l.stop()
	l.work.Wait()
	return l.Now()
}

// Answers is what may be answered to each question: any of these texts is in the answer.
type Answers map[string][]string

// With gives other answers to one question.
func (a Answers) With(question string, texts ...string) Answers {
	other := Answers{question: texts}
	for q, t := range a {
		if q != question {
			other[q] = t
		}
	}
	return other
}

// Check tells of replies that are not as they may be, and of requests that were lost.
func (a Answers) Check(replies []Reply) (err error) {
	wrong := 0
	for _, r := range replies {
		if r.Err == nil && a.has(r) {
			continue
		}
		if wrong++; wrong > mostTold {
			continue
		}
		if r.Err != nil {
			err = errors.Join(err, fmt.Errorf("%s was not decided within %v: %w", r.Question, r.Ended.Sub(r.Began), r.Err))
		} else {
			err = errors.Join(err, fmt.Errorf("%s was answered %q, want one of %q", r.Question, r.Answer, a[r.Question]))
		}
	}
	if wrong > 0 {
		err = errors.Join(err, fmt.Errorf("%d of %d replies were wrong", wrong, len(replies)))
	}
	return err
}

func (a Answers) has(r Reply) bool {
	for _, text := range a[r.Question] {
		if strings.Contains(r.Answer, text) {
			return true
		}
	}
	return false
}
