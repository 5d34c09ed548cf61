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

// Input is what a decision is about, facts aside.
type Input struct {
	// Request is the AdmissionRequest.
	Request Value
	// Now is the time of the decision; the policy sees it in UTC with nine digits of a second.
	Now time.Time
	// Checked hears, if it is set, whether the fast way to decide gave what evaluating the whole input gives. Few decisions are
	// checked so.
	Checked func(policy string, same bool)
	// VerdictOnly leaves out the outcome, for who does not act on it.
	VerdictOnly bool
	// Enter waits for a place among the evaluations of the same user. The engine calls leave when an evaluation has ended, which can be after
	// the deadline of the decision. The error is that of the context. Enter can be nil.
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
		return nil, tooLate(ctx, "")
	}
	return nil, errorf(StillRunning, "earlier evaluations for the same user and namespace did not end in time: %w", err)
}

// TimeFormat is how policies see Input.Now: RFC 3339 in UTC, always with nine digits, so that texts sort as times do.
const TimeFormat = "2006-01-02T15:04:05.000000000Z"

// Decide says whether the request is admitted. A denial that rests on cached facts is confirmed once with live ones,
// because a cache that is a moment behind must not refuse what has become possible. The error is always an [*Error].
func (p *Policy) Decide(ctx context.Context, in Input, r Reader) (*Decision, error) {
	return p.bounded(ctx, func(ctx context.Context) (*Decision, error) {
		decision, err := p.decide(ctx, admit, in, r)
		if err != nil || len(decision.Denials) == 0 || !fromCache(decision.Facts) {
			return decision, err
		}
		return p.confirm(ctx, in, r, decision), nil
	})
}

// Patch says what to change in the object: only facts, valid_input and patch are evaluated. The error is always an [*Error].
func (p *Policy) Patch(ctx context.Context, in Input, r Reader) (*Decision, error) {
	return p.bounded(ctx, func(ctx context.Context) (*Decision, error) { return p.decide(ctx, mutate, in, r) })
}

// bounded gives a decision the policy's time and keeps its panics to itself.
func (p *Policy) bounded(ctx context.Context, decide func(context.Context) (*Decision, error)) (decision *Decision, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	defer contain(&err)
	return decide(ctx)
}

func (p *Policy) decide(ctx context.Context, e endpoint, in Input, r Reader) (*Decision, error) {
	facts, err := p.gather(ctx, in, r)
	if err != nil {
		return nil, p.nameField(ctx, in, nil, err)
	}
	decision, err := p.fast.judge(ctx, e, in, facts)
	return decision, on(facts, p.nameField(ctx, in, facts, err))
}

// confirm decides again on live facts. If that cannot be done the denial stands.
func (p *Policy) confirm(ctx context.Context, in Input, r Reader, denial *Decision) *Decision {
	live, err := p.refresh(ctx, in, denial.Facts, r)
	var second *Decision
	if err == nil {
		second, err = p.evaluateRules(ctx, admit, in, live, p.fast.input)
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

// contain turns a panic, which can only be a bug of ours or of a library, into an error of this one policy.
func contain(err *error) {
	switch r := recover().(type) {
	case nil:
	case *Error: // see termCache
		*err = r
	default:
		*err = errorf(Panicked, "panic: %v\n%s", r, debug.Stack())
	}
}

// gather asks the policy what it wants to know, and the reader for the answers.
func (p *Policy) gather(ctx context.Context, in Input, r Reader) (map[string]Fact, error) {
	if p.first.ask == nil {
		return nil, nil
	}
	facts, err := p.fast.wanted(ctx, in)
	if err != nil {
		return nil, err
	}
	if err := p.answer(ctx, facts, r); err != nil {
		return nil, err
	}
	return facts, p.gatherSecond(ctx, in, facts, r, false)
}

// gatherSecond adds the facts of the second round to those of the first.
func (p *Policy) gatherSecond(ctx context.Context, in Input, facts map[string]Fact, r Reader, live bool) error {
	if p.second.ask == nil {
		return nil
	}
	second, err := p.evaluateFacts(ctx, p.second, in, facts, p.fast.input)
	if err != nil {
		return err
	}
	for _, f := range second {
		if f.Query != nil {
			f.Query.Live = f.Query.Live || live
		}
	}
	err = p.answer(ctx, second, r)
	maps.Copy(facts, second)
	return err
}

// evaluateFacts returns the facts of a round without their answers, by what is made of the input with the facts that are known.
func (p *Policy) evaluateFacts(
	ctx context.Context, of round, in Input, known map[string]Fact, input func(Value) *ast.Term,
) (map[string]Fact, error) {
	result, err := p.evaluate(ctx, in, of.ask, input(in.document(known)))
	if err != nil {
		return nil, err
	}
	if len(result) != 1 {
		return nil, errorf(EvaluationFailed, "facts gave %d results", len(result))
	}
	return p.decodeFacts(of.facts, cmp.Or(only(result[0]["facts"]), ast.ObjectTerm())) // without members if no fact is defined
}

// refresh reads again, live, what came from a cache; the rest is kept. What the second round asks for is made of what was read now.
func (p *Policy) refresh(ctx context.Context, in Input, facts map[string]Fact, r Reader) (map[string]Fact, error) {
	live := make(map[string]Fact, len(facts))
	for _, name := range p.first.facts {
		f := facts[name]
		if f.Query != nil && !f.Answer.Live {
			q := *f.Query
			q.Live = true
			f = Fact{Query: &q}
		}
		live[name] = f
	}
	if err := p.answer(ctx, live, r); err != nil {
		return nil, err
	}
	return live, p.gatherSecond(ctx, in, live, r, true)
}

// mostReads is how many facts of one policy are read at once.
const mostReads = 16

// answer has the reader answer what has no answer yet side by side: a policy that asks for much waits for its slowest answer, not for all of
// them in turn. Of several errors that of the first name counts, so that the same trouble is always told by the same words.
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
		all.Go(func() error {
			defer contain(&errs[i])
			answers[i], errs[i] = p.answerOne(ctx, name, facts[name].Query, r)
			return nil
		})
	}
	_ = all.Wait() // which has the first error by time
	for i, name := range names {
		if errs[i] != nil {
			return errs[i]
		}
		facts[name] = Fact{Query: facts[name].Query, Answer: answers[i]}
	}
	return nil
}

// answerOne gives an error that says which fact it is about.
func (p *Policy) answerOne(ctx context.Context, name string, q *Query, r Reader) (Answer, error) {
	a, err := p.read(ctx, q, r)
	var mine *Error
	switch {
	case ctx.Err() != nil:
		return Answer{}, tooLate(ctx, fmt.Sprintf("facts.%s was not read in time", name))
	case err == nil || errors.As(err, &mine):
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

// evaluateRules evaluates valid_input and then the rules of one endpoint, by what is made of the input.
func (p *Policy) evaluateRules(
	ctx context.Context, e endpoint, in Input, facts map[string]Fact, input func(Value) *ast.Term,
) (*Decision, error) {
	query := p.judges[e]
	if query == nil {
		return &Decision{Facts: facts}, nil
	}
	terms := input(in.document(facts))
	result, err := p.evaluate(ctx, in, query, terms)
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
		decision.Outcome, err = p.act(ctx, in, terms)
	}
	return decision, err
}

// act gives what reconcilers act on.
func (p *Policy) act(ctx context.Context, in Input, input *ast.Term) (Value, error) {
	if p.outcome == nil {
		return Value{}, nil
	}
	result, err := p.evaluate(ctx, in, p.outcome, input)
	if err != nil {
		return Value{}, err
	}
	said := only(result[0]["outcome"])
	if said == nil {
		return Value{}, nil
	}
	if err := p.outcomeShape.check(ruleOutcome, said); err != nil {
		return Value{}, errorf(ContractViolated, "%w", err)
	}
	return valueOf(said), nil
}

// only gives the element of [x | x = rule], or nil if the rule is undefined.
func only(t *ast.Term) *ast.Term {
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
