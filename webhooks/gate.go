package webhooks

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/fair"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
)

// FactSource gives the reader that answers the facts of one request.
type FactSource interface {
	For(request *admissionv1.AdmissionRequest, subject facts.Subject) engine.Reader
}

// Gate asks the policies. It is safe for use by any number of requests at once.
type Gate struct {
	facts    FactSource
	recorder *Recorder
	now      func() time.Time
	set      atomic.Pointer[catalog.Set]
	// evaluations limits the evaluations that run at once for each user.
	evaluations *fair.Each
	// opened is asked whether the gate is open; nil is never.
	opened func(now time.Time) *Opening
}

// mostEvaluations is how many evaluations run at once for one user in one namespace. Some inputs make an evaluation run until its deadline,
// or longer. Then the next evaluations of the same user wait, but not those of others.
const mostEvaluations = 2

// NewGate makes a gate over a set of policies, or over none yet: until the first Swap nothing is judged then, and nothing
// admitted but what can repair policies. The recorder is given the decisions about requests that are really made; without one they are not recorded, and
// the gate cannot be registered with a server ([Gate.Register]).
func NewGate(set *catalog.Set, source FactSource, recorder *Recorder, now func() time.Time) *Gate {
	g := &Gate{facts: source, recorder: recorder, now: now, evaluations: fair.NewEach(mostEvaluations, math.MaxInt)}
	g.set.Store(set)
	return g
}

// Swap has all requests from here on judged by another set. One that is being judged keeps the set that it began with.
func (g *Gate) Swap(set *catalog.Set) { g.set.Store(set) }

// OpenBy has the gate ask for each request about a kind that is not Sallyport's whether it is open; nil is not. It is for before the first
// request.
func (g *Gate) OpenBy(opened func(now time.Time) *Opening) { g.opened = opened }

// opening returns the opening that a request of an API server meets, or nil. Requests about Sallyport's own kinds meet none: what they
// ask for is carried out on machines.
func (g *Gate) opening(q *Question) *Opening {
	if g.opened == nil || q.Review.Request.Resource.Group == v1alpha1.GroupName {
		return nil
	}
	return g.opened(g.now())
}

// errNoSet means that nothing can be judged yet.
var errNoSet = errors.New("policies not loaded")

// Decide puts a question to the policies, and does nothing with the decision. It is an error that there are no policies yet.
func (g *Gate) Decide(ctx context.Context, q *Question) (*Decision, error) {
	set := g.set.Load()
	if set == nil {
		if !catalog.Repairs(q.Review.Request) {
			return nil, errNoSet
		}
		set = &catalog.Set{}
	}
	d := &Decision{Question: *q, id: uuid.NewUUID(), set: set}
	if d.At.IsZero() {
		d.At = g.now()
	}
	of := q.Facts
	if of == nil {
		own := g.reader(q.Review)
		of = func(string) engine.Reader { return own }
	}
	d.reader = of("")
	in := engine.Input{Request: q.Review.Document, Now: d.At, VerdictOnly: q.Endpoint != Arbitrating}
	share := q.Review.user()
	in.Enter = func(ctx context.Context) (func(), error) { return g.evaluations.Acquire(ctx, share) }
	if g.recorder != nil {
		in.Checked = g.recorder.metrics.checked
	}
	d.ask(ctx, in, of)
	d.join()
	d.conceal()
	d.ease()
	d.hear(ctx)
	return d, nil
}

func (g *Gate) reader(review *Review) engine.Reader {
	return g.facts.For(review.Request, review.Subject())
}

// ask puts the question to the policies, each for itself: a slow or broken one costs the others nothing. All are of the one set that
// there was when it began.
func (d *Decision) ask(ctx context.Context, in engine.Input, of func(policy string) engine.Reader) {
	var selected []catalog.Selected
	for _, s := range d.set.Select(ctx, d.Review.Request, d.noting(d.reader)) {
		if d.asks(s.Policy) {
			selected = append(selected, s)
		}
	}
	d.verdicts = make([]verdict, len(selected))
	var all sync.WaitGroup
	for i, s := range selected {
		reader := of(s.Name())
		decide := func() { d.verdicts[i] = d.verdictOf(ctx, s, in, reader) }
		if i < len(selected)-1 {
			all.Go(decide)
		} else { // this goroutine would only wait
			decide()
		}
	}
	all.Wait()
}

// verdictOf has one policy answer.
func (d *Decision) verdictOf(ctx context.Context, s catalog.Selected, in engine.Input, reader engine.Reader) verdict {
	start := time.Now()
	v := verdict{policy: s.Policy, mode: s.Mode}
	if s.Err != nil { // it is broken and says so, or its match could not be read
		v.fail(engine.FactUnavailable, s.Err)
	} else if decision, err := d.put(ctx, s.Policy.Policy, in, reader); err != nil {
		v.fail(engine.EvaluationFailed, err)
	} else {
		v.decision = decision
	}
	v.took = time.Since(start)
	return v
}
