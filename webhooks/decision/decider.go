package decision

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
	"sallyport.dev/sallyport/fairqueue"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
)

// FactSource returns the reader for the facts of one request.
type FactSource interface {
	For(request *admissionv1.AdmissionRequest, subject facts.Subject) engine.Reader
}

// Recorder keeps the decisions about real requests. It is safe for concurrent use, and must not block.
type Recorder interface {
	// Record keeps a decision and the response made from it.
	Record(d *Decision, response *admissionv1.AdmissionResponse)
	// Checked counts a decision that was evaluated a second time by OPA's interpreter. The difference is "" if both results are the same.
	Checked(policy, difference string)
	// Forget drops what is counted about a policy that was deleted.
	Forget(policy string)
}

// Decider evaluates policies. It is safe for concurrent use.
type Decider struct {
	facts    FactSource
	recorder Recorder
	now      func() time.Time
	set      atomic.Pointer[catalog.Set]
	// evaluations limits concurrent evaluations per user.
	evaluations *fairqueue.Each
	// opened returns the opening in force at now, or nil. If opened itself is nil, the gate never opens.
	opened func(now time.Time) *Opening
}

// maxEvaluations is the number of concurrent evaluations per user and namespace. Some inputs make an evaluation run until its
// deadline or longer. Then further evaluations of the same user wait, but not those of others.
const maxEvaluations = 2

// NewDecider returns a gate with a set of policies. With a nil set nothing is evaluated until the first Swap, and only requests that
// can repair policies are admitted. If the recorder is nil, no decisions are recorded.
func NewDecider(set *catalog.Set, source FactSource, recorder Recorder, now func() time.Time) *Decider {
	g := &Decider{facts: source, recorder: recorder, now: now, evaluations: fairqueue.NewEach(maxEvaluations, math.MaxInt)}
	g.set.Store(set)
	return g
}

// Swap replaces the set of policies. A request in progress keeps the set with which it began.
func (g *Decider) Swap(set *catalog.Set) {
	before := g.set.Swap(set)
	if before == nil || set == nil || g.recorder == nil {
		return
	}
	for _, p := range before.Policies() {
		if set.Policy(p.Name()) == nil {
			g.recorder.Forget(p.Name())
		}
	}
}

// OpenBy sets the function that returns whether the gate is open for kinds that are not Sallyport's; nil means closed. Call it
// before the first request.
func (g *Decider) OpenBy(opened func(now time.Time) *Opening) { g.opened = opened }

// Answer evaluates a request of the API server, records the decision and returns the response; nil if no policies are loaded.
//
// Kinds that are not Sallyport's have a webhook entry for each policy, and the API server calls each entry by itself. So each
// entry has the failurePolicy, timeout and selectors of its policy, and no policy is evaluated twice.
//
// At the mutating endpoint a request is denied only because a policy failed, and no override applies: an object without what the
// policy would have added, such as the requester, would be misread by others.
func (g *Decider) Answer(ctx context.Context, q *Question) *admissionv1.AdmissionResponse {
	open := *q
	open.Open = g.opening(q)
	d, err := g.Decide(ctx, &open)
	if err != nil {
		return nil
	}
	return g.record(ctx, d)
}

// record records and traces a decision that the caller acts on, and returns its response.
func (g *Decider) record(ctx context.Context, d *Decision) *admissionv1.AdmissionResponse {
	response := d.Response()
	d.trace(ctx, response.Allowed)
	if g.recorder != nil {
		g.recorder.Record(d, response)
	}
	return response
}

// opening returns the opening that applies to a request of an API server, or nil. None applies to Sallyport's own kinds: their
// requests are carried out on machines.
func (g *Decider) opening(q *Question) *Opening {
	if g.opened == nil || q.Review.Request.Resource.Group == v1alpha1.GroupName {
		return nil
	}
	return g.opened(g.now())
}

// ErrNoPolicies means that no policies are loaded yet.
var ErrNoPolicies = errors.New("policies not loaded")

// Decide evaluates the policies for a question and has no other effect. It fails if no policies are loaded.
func (g *Decider) Decide(ctx context.Context, q *Question) (*Decision, error) {
	set := g.set.Load()
	if set == nil {
		if !catalog.Repairs(q.Review.Request) {
			return nil, ErrNoPolicies
		}
		set = &catalog.Set{}
	}
	d := evaluation{&Decision{Question: *q, id: uuid.NewUUID()}, set}
	if d.At.IsZero() {
		d.At = g.now()
	}
	readerFor := q.Facts
	if readerFor == nil {
		own := g.reader(q.Review)
		readerFor = func(string) engine.Reader { return own }
	}
	d.reader = readerFor("")
	in := engine.Input{Request: q.Review.Document, Now: d.At, VerdictOnly: q.Endpoint != Arbitrating}
	share := q.Review.User()
	in.Enter = func(ctx context.Context) (func(), error) { return g.evaluations.Acquire(ctx, share) }
	if g.recorder != nil {
		in.Checked = func(policy, difference string) { g.recorder.Checked(policy, d.Review.concealResults(difference)) }
	}
	d.evaluateAll(ctx, in, readerFor)
	d.mergePatches()
	d.redactSecrets()
	d.applyOpening()
	d.applyOverride(ctx)
	return d.Decision, nil
}

func (g *Decider) reader(review *Review) engine.Reader {
	return g.facts.For(review.Request, review.Subject())
}

// patience is how long the policies of a request are evaluated one after the other. Most take less than it takes to wake another thread.
const patience = time.Millisecond

// evaluateAll evaluates the policies, concurrently once it takes longer, so that a slow or broken one does not delay the others. All are
// from the set that was current when the evaluation began.
func (d evaluation) evaluateAll(ctx context.Context, in engine.Input, readerFor func(policy string) engine.Reader) {
	var selected []catalog.Selected
	var readers []engine.Reader
	for _, s := range d.set.Select(ctx, d.Review.Request, d.recording(d.reader)) {
		if d.selects(s.Policy) {
			selected, readers = append(selected, s), append(readers, readerFor(s.Name()))
		}
	}
	d.verdicts = make([]Verdict, len(selected))
	shared(len(selected), func(i int) { d.verdicts[i] = d.verdictOf(ctx, selected[i], in, readers[i]) })
}

// shared calls do for each number below n, in this goroutine, and after a while in one for each of those that have not begun.
func shared(n int, do func(i int)) {
	var next atomic.Int64
	work := func() {
		for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
			do(i)
		}
	}
	if n < 2 {
		work()
		return
	}
	var all sync.WaitGroup
	all.Add(1)
	more := time.AfterFunc(patience, func() {
		defer all.Done()
		for range n - 1 {
			all.Go(work)
		}
	})
	work()
	if more.Stop() {
		all.Done()
	}
	all.Wait()
}

// verdictOf evaluates one policy.
func (d evaluation) verdictOf(ctx context.Context, s catalog.Selected, in engine.Input, reader engine.Reader) Verdict {
	start := time.Now()
	v := Verdict{Policy: s.Policy, Mode: s.Mode}
	if s.Err != nil { // the policy is broken, or its match could not be evaluated
		v.fail(engine.FactUnavailable, s.Err)
	} else if decision, err := d.evaluate(ctx, s.Policy.Policy, in, reader); err != nil {
		v.fail(engine.EvaluationFailed, err)
	} else {
		v.Decision = decision
	}
	v.Took = time.Since(start)
	return v
}
