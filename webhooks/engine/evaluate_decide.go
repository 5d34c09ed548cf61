package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"golang.org/x/sync/errgroup"
)

// Input is the input of a decision except facts.
type Input struct {
	// Request is the AdmissionRequest.
	Request Value
	// Now is the time of the decision; the policy sees it in UTC with nine digits of a second.
	Now time.Time
	// Checked is called, if set, with "" if a program gave the same result as topdown, and otherwise with both results. Few decisions are
	// checked.
	Checked func(policy, difference string)
	// VerdictOnly skips the outcome, for callers that do not act on it.
	VerdictOnly bool
	interpreted bool // without programs

	// Enter waits for a place among the evaluations of the same user. The engine calls leave when an evaluation has ended, which
	// can be after the deadline of the decision. The error is that of the context. Enter can be nil.
	Enter func(context.Context) (leave func(), err error)
}

// enter waits for a place for one evaluation.
func (in Input) enter(ctx context.Context) (leave func(), err error) {
	if in.Enter == nil {
		return func() {}, nil
	}
	if leave, err = in.Enter(ctx); err == nil {
		return leave, nil
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil, deadlineError(ctx, "")
	}
	return nil, errorf(StillRunning, "earlier evaluations for the same user and namespace did not end in time: %w", err)
}

// TimeFormat is the format of Input.Now for policies: RFC 3339 in UTC, always with nine digits, so that texts sort as times do.
const TimeFormat = "2006-01-02T15:04:05.000000000Z"

// Decide evaluates deny and warn. A denial that is based on cached facts is evaluated once more with live ones, because a stale
// cache must not deny what has become possible. The error is always an [*Error].
func (p *Policy) Decide(ctx context.Context, in Input, r Reader) (*Decision, error) {
	return p.bounded(ctx, func(ctx context.Context) (*Decision, error) {
		decision, err := p.decide(ctx, admit, in, r)
		if err != nil || len(decision.Denials) == 0 || !fromCache(decision.Facts) {
			return decision, err
		}
		return p.confirm(ctx, in, r, decision), nil
	})
}

// Patch evaluates patch, with facts and valid_input only. The error is always an [*Error].
func (p *Policy) Patch(ctx context.Context, in Input, r Reader) (*Decision, error) {
	return p.bounded(ctx, func(ctx context.Context) (*Decision, error) { return p.decide(ctx, mutate, in, r) })
}

// bounded applies the policy's timeout and turns panics into errors.
func (p *Policy) bounded(ctx context.Context, decide func(context.Context) (*Decision, error)) (decision *Decision, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	defer recoverPanic(&err)
	return decide(ctx)
}

func (p *Policy) decide(ctx context.Context, e endpoint, in Input, r Reader) (*Decision, error) {
	facts, err := p.readFacts(ctx, in, r)
	if err != nil {
		return nil, p.named(ctx, in, nil, p.mistypedRequest(e, in, err))
	}
	decision, err := p.decideOn(ctx, e, in, facts)
	return decision, withFacts(facts, p.named(ctx, in, facts, err))
}

// named adds what is wrong to an error that does not say it.
func (p *Policy) named(ctx context.Context, in Input, facts map[string]Fact, err error) error {
	var wrong *typeError
	if errors.As(err, &wrong) {
		return err
	}
	return p.nameField(ctx, in, facts, err)
}

// mistypedRequest returns, for facts that a value of the wrong type in the request broke, an error that names the value.
func (p *Policy) mistypedRequest(e endpoint, in Input, err error) error {
	var broken *Error
	if !errors.As(err, &broken) || broken.Cause != InputNotUnderstood && broken.Cause != EvaluationFailed {
		return err
	}
	return cmp.Or(p.types.request(e, in), err)
}

// confirm evaluates a denial again with live facts. If they cannot be read, the denial stands.
func (p *Policy) confirm(ctx context.Context, in Input, r Reader, denial *Decision) *Decision {
	some := p.existential
	if p.outcome != nil && !in.VerdictOnly {
		some = nil
	}
	second, err := p.decideLive(ctx, in, denial.Facts, r, some)
	if err != nil && len(some) > 0 { // as from valid_input, which may miss an object
		second, err = p.decideLive(ctx, in, denial.Facts, r, nil)
	}
	switch {
	case err != nil:
		denial.Confirmation = Unconfirmed
		return denial
	case len(second.Denials) == 0:
		second.Confirmation = Refuted
	default:
		second.Confirmation = Confirmed
	}
	return second
}

// decideLive evaluates a denial again with live facts, of which those that are some need only the objects that the cache has.
func (p *Policy) decideLive(ctx context.Context, in Input, facts map[string]Fact, r Reader, some map[string]bool) (*Decision, error) {
	live, err := p.refresh(ctx, in, facts, r, some)
	if err != nil {
		return nil, err
	}
	return p.evaluateRules(ctx, admit, in, live)
}

// recoverPanic turns a panic, which is a bug of Sallyport or a library, into an error of this policy.
func recoverPanic(err *error) {
	switch r := recover().(type) {
	case nil:
	case *Error: // see termCache
		*err = r
	default:
		*err = errorf(Panicked, "panic: %v\n%s", r, debug.Stack())
	}
}

// readFacts evaluates the policy's queries and reads the facts.
func (p *Policy) readFacts(ctx context.Context, in Input, r Reader) (map[string]Fact, error) {
	if p.first.ask == nil {
		return nil, nil
	}
	facts, err := p.evaluateFacts(ctx, p.first, in, nil)
	if err != nil {
		return nil, err
	}
	if err := p.answer(ctx, facts, r); err != nil {
		return nil, err
	}
	return facts, p.gatherSecond(ctx, in, facts, r, func(*Query) {})
}

// gatherSecond adds the facts of the second round to those of the first.
func (p *Policy) gatherSecond(ctx context.Context, in Input, facts map[string]Fact, r Reader, adjust func(*Query)) error {
	if p.second.ask == nil {
		return nil
	}
	second, err := p.evaluateFacts(ctx, p.second, in, facts)
	if err != nil {
		return err
	}
	for _, f := range second {
		if f.Query != nil {
			adjust(f.Query)
		}
	}
	err = p.answer(ctx, second, r)
	maps.Copy(facts, second)
	return err
}

// evaluateFacts returns the queries of a round, of which the known facts are input.
func (p *Policy) evaluateFacts(ctx context.Context, of round, in Input, known map[string]Fact) (map[string]Fact, error) {
	result, err := p.evaluate(ctx, in, of.ask, in.document(known))
	if err != nil {
		return nil, err
	}
	if len(result) != 1 {
		return nil, errorf(EvaluationFailed, "facts gave %d results", len(result))
	}
	return p.decodeFacts(of.facts, cmp.Or(onlyElement(result[0]["facts"]), ast.ObjectTerm())) // without members if no fact is defined
}

// refresh reads live what came from a cache, and keeps the rest. The second round is evaluated again with the new facts.
func (p *Policy) refresh(ctx context.Context, in Input, facts map[string]Fact, r Reader, some map[string]bool) (map[string]Fact, error) {
	toLive := func(q *Query) { q.Live, q.Some = true, some[q.Fact] && !q.Live }
	live := make(map[string]Fact, len(facts))
	for _, name := range p.first.facts {
		f := facts[name]
		if f.Query != nil && !f.Answer.Live {
			q := *f.Query
			toLive(&q)
			f = Fact{Query: &q}
		}
		live[name] = f
	}
	if err := p.answer(ctx, live, r); err != nil {
		return nil, err
	}
	return live, p.gatherSecond(ctx, in, live, r, toLive)
}

// mostReads limits the concurrent reads of one policy.
const mostReads = 16

// answer reads the facts that have no answer yet, concurrently unless they are in a cache. Of several errors it returns that of the
// first name, so that the message does not depend on timing.
func (p *Policy) answer(ctx context.Context, facts map[string]Fact, r Reader) error {
	var names []string
	for name, f := range facts {
		if f.Query != nil && f.Answer == (Answer{}) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	answers, errs := make([]Answer, len(names)), make([]error, len(names))
	var all errgroup.Group
	all.SetLimit(mostReads)
	for i, name := range names {
		q := facts[name].Query
		read := func() error {
			defer recoverPanic(&errs[i])
			answers[i], errs[i] = p.answerOne(ctx, name, q, r)
			return nil
		}
		if len(names) == 1 || q.cached() {
			_ = read() // its error is in errs
			continue
		}
		all.Go(read)
	}
	_ = all.Wait() // the first error in time, not by name
	for i, name := range names {
		if errs[i] != nil {
			return errs[i]
		}
		facts[name] = Fact{Query: facts[name].Query, Answer: answers[i]}
	}
	return nil
}

// answerOne reads one fact. Its error names the fact.
func (p *Policy) answerOne(ctx context.Context, name string, q *Query, r Reader) (Answer, error) {
	a, err := p.read(ctx, q, r)
	var mine *Error
	switch {
	case ctx.Err() != nil:
		return Answer{}, deadlineError(ctx, fmt.Sprintf("facts.%s was not read in time", name))
	case err == nil || errors.As(err, &mine):
		a.Value = a.Value.split()
		return a, err
	}
	return Answer{}, errorf(FactUnavailable, "facts.%s: %w", name, err)
}

func fromCache(facts map[string]Fact) bool {
	for _, f := range facts {
		if f.Query != nil && !f.Answer.Live {
			return true
		}
	}
	return false
}

// evaluateRules evaluates valid_input and then the rules of one endpoint.
func (p *Policy) evaluateRules(ctx context.Context, e endpoint, in Input, facts map[string]Fact) (*Decision, error) {
	query := p.queries[e]
	if query == nil {
		return &Decision{Facts: facts}, nil
	}
	if err := cmp.Or(p.types.request(e, in), p.types.facts(p.facts, in, facts)); err != nil {
		return nil, err
	}
	document := in.document(facts)
	result, err := p.evaluate(ctx, in, query, document)
	if err != nil {
		return nil, err
	}
	if len(result) == 0 {
		return nil, errorf(InputNotUnderstood, "valid_input does not hold for this request, its facts and the policy's parameters")
	}
	decision, err := p.rules.decision(set(result[0]["yields"]))
	if err != nil {
		return nil, err
	}
	decision.Facts = facts
	if e == admit && !in.VerdictOnly {
		decision.Outcome, err = p.evaluateOutcome(ctx, in, document)
	}
	return decision, err
}

// evaluateOutcome returns the outcome for reconcilers.
func (p *Policy) evaluateOutcome(ctx context.Context, in Input, input Value) (Value, error) {
	if p.outcome == nil {
		return Value{}, nil
	}
	result, err := p.evaluate(ctx, in, p.outcome, input)
	if err != nil {
		return Value{}, err
	}
	said := onlyElement(result[0]["outcome"])
	if said == nil {
		return Value{}, nil
	}
	if err := p.outcomeShape.check(ruleOutcome, said); err != nil {
		return Value{}, errorf(ContractViolated, "%w", err)
	}
	return valueOf(said), nil
}

// onlyElement returns the element of [x | x = rule], or nil if the rule is undefined.
func onlyElement(t *ast.Term) *ast.Term {
	if array, ok := t.Value.(*ast.Array); ok && array.Len() > 0 {
		return array.Elem(0)
	}
	return nil
}

func set(t *ast.Term) ast.Set {
	if t != nil {
		if s, ok := t.Value.(ast.Set); ok {
			return s
		}
	}
	return ast.NewSet()
}
