package chart

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// pace is how often each client asks at most.
const pace = 10 * time.Millisecond

// admitted is the answer to a request that nobody refused. That to one that was refused is what the user reads.
const admitted = "(admitted)"

// question is a request that one client makes again and again, without leaving anything behind.
type question struct {
	name   string
	object func() *unstructured.Unstructured
	// changed tells whether the mutating webhook has done its part of an object that was admitted.
	changed func(*unstructured.Unstructured) bool
}

// reply is what came of it.
type reply struct {
	question     string
	began, ended time.Time
	answer       string
	err          error // set if nobody decided
}

// load is the requests of several clients at once, all through the API server.
type load struct {
	stop context.CancelFunc
	work sync.WaitGroup

	mu      sync.Mutex
	replies []reply
	grown   chan struct{} // closed with the next reply
}

// begin starts a client for each question.
func begin(ctx context.Context, clients func() client.Client, questions ...question) *load {
	l := &load{grown: make(chan struct{})}
	ctx, l.stop = context.WithCancel(ctx)
	for _, q := range questions {
		c := clients()
		l.work.Go(func() { l.keepAsking(ctx, c, q) })
	}
	return l
}

func (l *load) keepAsking(ctx context.Context, c client.Client, q question) {
	paced := time.NewTicker(pace)
	defer paced.Stop()
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
		<-paced.C
	}
}

// ask makes the request once.
func (q *question) ask(ctx context.Context, c client.Client) reply {
	object := q.object()
	r := reply{question: q.name, began: time.Now(), answer: admitted}
	err := c.Create(ctx, object, client.DryRunAll)
	r.ended = time.Now()
	_, refused, judged := strings.Cut(fmt.Sprint(err), " denied the request: ")
	switch {
	case err == nil && q.changed != nil && !q.changed(object):
		r.err = errors.New("admitted, but the mutating webhook was not asked")
	case err == nil:
	case judged && apierrors.ReasonForError(err) != "":
		r.answer = refused
	default:
		r.err = err
	}
	return r
}

// now is a moment, as the number of replies so far.
func (l *load) now() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.replies)
}

// since gives the replies to requests that were made after a moment.
func (l *load) since(mark int, moment time.Time) (found []reply) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.replies[mark:] {
		if r.began.After(moment) {
			found = append(found, r)
		}
	}
	return found
}

// more waits until each question was asked and answered a few times more, from now on, and gives those replies.
func (l *load) more(t *testing.T, few int, questions []question) []reply {
	t.Helper()
	mark, moment := l.now(), time.Now()
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		l.mu.Lock()
		grown := l.grown
		l.mu.Unlock()
		found := l.since(mark, moment)
		counts := map[string]int{}
		for _, r := range found {
			counts[r.question]++
		}
		enough := true
		for _, q := range questions {
			enough = enough && counts[q.name] >= few
		}
		if enough {
			return found
		}
		select {
		case <-grown:
		case <-late.C:
			t.Fatalf("waiting for replies: there are %v", counts)
		}
	}
}

// end ends all clients and gives how many replies there were.
func (l *load) end() int {
	l.stop()
	l.work.Wait()
	return l.now()
}

// answers is what may be answered to each question: any of these texts is in the answer.
type answers map[string][]string

// check reports each reply that is not as it may be, and each request that was lost.
func (a answers) check(t *testing.T, during string, replies []reply) {
	t.Helper()
	wrong := 0
	for _, r := range replies {
		if r.err == nil && a.has(r) {
			continue
		}
		if wrong++; wrong <= 5 {
			t.Errorf("during %s: %s was answered after %v with %q (%v), want one of %q", during, r.question, r.ended.Sub(r.began), r.answer, r.err, a[r.question])
		}
	}
	if wrong > 0 {
		t.Errorf("during %s: %d of %d replies were wrong", during, wrong, len(replies))
	}
}

func (a answers) has(r reply) bool {
	for _, text := range a[r.question] {
		if strings.Contains(r.answer, text) {
			return true
		}
	}
	return false
}

// with gives other answers to one question.
func (a answers) with(question string, texts ...string) answers {
	other := answers{}
	for q, t := range a {
		other[q] = t
	}
	other[question] = texts
	return other
}
