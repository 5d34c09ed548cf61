package engine

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"sallyport.dev/sallyport/webhooks/engine/builtins"
)

// Explanation is the result of a policy for a request, and how it was reached.
type Explanation struct {
	// Decision is the result of Decide or Patch; nil if the policy could not decide. Err is the reason then.
	Decision *Decision
	Err      *Error
	// Facts are all facts that the policy declares, by name.
	Facts []ExplainedFact
	// Asked reports whether valid_input was evaluated, which needs all facts. Invalid is where it does not hold; nil if it does.
	Asked   bool
	Invalid *Unmet
	// Rules are those of the endpoint in the order of the text; none if valid_input does not hold.
	Rules []ExplainedRule
}

// ExplainedFact is a fact and its result.
type ExplainedFact struct {
	Name string
	Place
	// Fact has no query if it is not needed for this request.
	Fact
	// Undefined is where the rule of an undefined fact stopped.
	Undefined *Unmet
	// Err is why the query is invalid, or was not answered.
	Err error
}

// ExplainedRule is a deny, warn, patch or outcome rule.
type ExplainedRule struct {
	// Name is deny, warn, patch, or that of the outcome: "outcome.supersedes".
	Name string
	Place
	// Title and Reason are from its METADATA; only denials have a reason.
	Title, Reason string
	// Values are those of the rule, one for each match. Without any the rule did not apply, and Unmet is where it stopped.
	Values []Value
	Unmet  *Unmet
}

// Place is a place in a module. Row and Col count from one.
type Place struct {
	File     string
	Row, Col int
}

// Unmet is an expression that keeps a rule from applying: the last one that the evaluation reached.
type Unmet struct {
	Place
	// Text is the expression as its author wrote it. Part is the part of it that is undefined; empty if the expression itself does
	// not hold.
	Text, Part string
	Kind       UnmetKind
	// Passed is the number of the rule's expressions that hold before it.
	Passed int
	// Values are those of its variables and references. Others is the number of other values for which it was evaluated.
	Values []NamedValue
	Others int
	// Because is where the rule stopped that the expression refers to; nil if it refers to none.
	Because *Unmet
}

// UnmetKind is why an expression does not hold.
type UnmetKind string

// Kinds of unmet expressions.
const (
	NotTrue  UnmetKind = "NotTrue"  // it does not hold
	Holds    UnmetKind = "Holds"    // it is negated and holds
	Missing  UnmetKind = "Missing"  // it has no value
	NoneSuch UnmetKind = "NoneSuch" // `some`: there is none
)

// NamedValue is a variable, or a reference into input, data or rules, with its text as Name.
type NamedValue struct {
	Name    string
	Value   Value
	Defined bool
}

// Explain decides as Decide or Patch does, and then evaluates facts and rules once more on the same answers with OPA's tracing. It
// takes several times the time of a decision. On an error there is no explanation.
func (p *Policy) Explain(ctx context.Context, in Input, r Reader, patches bool) (x *Explanation, problem error) {
	defer recoverPanic(&problem)
	e, decide := admit, p.Decide
	if patches {
		e, decide = mutate, p.Patch
	}
	decision, err := decide(ctx, in, r)
	x = &Explanation{Decision: decision}
	known := map[string]Fact(nil)
	if err != nil {
		if !errors.As(err, &x.Err) {
			return nil, err
		}
		known = x.Err.Facts
	} else {
		known = decision.Facts
	}
	facts, complete, err := p.explainFacts(ctx, x, in, r, known)
	if err != nil || !complete {
		return x, err
	}
	s := p.explainer(ctx, in.document(facts).orNull())
	x.Asked = true
	valid, err := s.eval(p.pkg.Append(ast.StringTerm(ruleValid)))
	if err != nil {
		return nil, err
	}
	if !ast.Boolean(true).Equal(valid.Value) {
		x.Invalid = s.unmet(p.rulesNamed(ruleValid))
		return x, nil
	}
	if err := s.outcomes(x, e); err != nil {
		return nil, err
	}
	slices.SortStableFunc(x.Rules, func(a, b ExplainedRule) int { return a.compare(b.Place) })
	return x, nil
}

// explainFacts returns the facts, and whether each is known.
func (p *Policy) explainFacts(
	ctx context.Context, x *Explanation, in Input, r Reader, known map[string]Fact,
) (facts map[string]Fact, complete bool, err error) {
	if len(p.facts) == 0 {
		return nil, true, nil
	}
	facts = map[string]Fact{}
	if complete, err = p.explainRound(ctx, p.first.facts, x, in, r, known, facts); err == nil && complete {
		complete, err = p.explainRound(ctx, p.second.facts, x, in, r, known, facts)
	}
	slices.SortFunc(x.Facts, func(a, b ExplainedFact) int { return strings.Compare(a.Name, b.Name) })
	return facts, complete, err
}

// explainRound adds the facts of a round to the known ones, and reports whether each is known now.
func (p *Policy) explainRound(
	ctx context.Context, names []string, x *Explanation, in Input, r Reader, known, facts map[string]Fact,
) (complete bool, err error) {
	var before map[string]Fact // nil in the first round
	if len(facts) > 0 {
		before = facts
	}
	s := p.explainer(ctx, in.document(before).orNull())
	document, err := s.eval(p.pkg.Append(ast.StringTerm(ruleFacts)))
	if err != nil {
		return false, err
	}
	complete = true
	for _, name := range names {
		rules := p.rulesNamed(ruleFacts, name)
		f := ExplainedFact{Name: name}
		if len(rules) > 0 {
			f.Place = placeOf(rules[0].Location)
		}
		query, defined := valueOf(document).member(name)
		if defined {
			f.Fact, f.Err = p.answerTo(ctx, name, query.orNull(), r, known)
		} else {
			f.Undefined = s.unmet(rules)
		}
		complete = complete && defined && f.Err == nil
		facts[name] = f.Fact
		x.Facts = append(x.Facts, f)
	}
	return complete, nil
}

// answerTo returns the answer to one fact: the one of the decision, if there is one.
func (p *Policy) answerTo(ctx context.Context, name string, query *ast.Term, r Reader, known map[string]Fact) (Fact, error) {
	if f, ok := known[name]; ok {
		return f, nil
	}
	q, err := decodeQuery(name, query)
	if q == nil || err != nil {
		return Fact{}, err
	}
	answer, err := p.read(ctx, q, r)
	return Fact{Query: q, Answer: answer}, err
}

// outcomes explains the rules of an endpoint.
func (s *explainer) outcomes(x *Explanation, e endpoint) error {
	p := s.policy
	if _, err := s.eval(p.pkg.Append(ast.StringTerm(e.fires()))); err != nil {
		return err
	}
	yields, err := s.eval(p.pkg.Append(ast.StringTerm(e.yields())))
	if err != nil {
		return err
	}
	values := map[int][]Value{}
	for _, t := range set(yields).Slice() {
		match := t.Value.(*ast.Array)
		i, _ := match.Elem(0).Value.(ast.Number).Int()
		match.Elem(2).Value.(*ast.Array).Foreach(func(v *ast.Term) { values[i] = append(values[i], valueOf(v)) })
	}
	instrumented := p.rulesNamed(e.fires())
	for i, r := range p.rules {
		if endpointOf(r.name) != e {
			continue
		}
		rule := ExplainedRule{Name: r.name, Place: placeOf(r.location), Reason: r.reason, Title: r.title, Values: values[i]}
		if len(rule.Values) == 0 {
			rule.Unmet = s.unmet(at(instrumented, r.location))
		}
		x.Rules = append(x.Rules, rule)
	}
	if e != admit {
		return nil
	}
	if _, err := s.eval(p.pkg.Append(ast.StringTerm(ruleOutcome))); err != nil {
		return err
	}
	for _, r := range p.rulesNamed(ruleOutcome) {
		rule := ExplainedRule{Name: r.Head.Ref().GroundPrefix().String(), Place: placeOf(r.Location), Title: titleIn(r), Values: s.trace.said(r)}
		if len(rule.Values) == 0 {
			rule.Unmet = s.unmet([]*ast.Rule{r})
		}
		x.Rules = append(x.Rules, rule)
	}
	return nil
}

// rulesNamed returns the rules of the policy's own package whose name begins with name.
func (p *Policy) rulesNamed(name ...string) []*ast.Rule {
	ref := p.pkg
	for _, part := range name {
		ref = ref.Append(ast.StringTerm(part))
	}
	return p.compiler.GetRulesWithPrefix(ref)
}

// at returns the rules at a place. Instrumented rules have the places of their originals.
func at(rules []*ast.Rule, l *ast.Location) []*ast.Rule {
	return slices.DeleteFunc(slices.Clone(rules), func(r *ast.Rule) bool { return r.Location.Compare(l) != 0 })
}

func placeOf(l *ast.Location) Place {
	if l == nil {
		return Place{}
	}
	return Place{File: l.File, Row: l.Row, Col: l.Col}
}

func (p Place) compare(other Place) int {
	return cmp.Or(strings.Compare(p.File, other.File), cmp.Compare(p.Row, other.Row), cmp.Compare(p.Col, other.Col))
}

// explainer evaluates a policy's rules on one input with a tracer.
type explainer struct {
	policy *Policy
	ctx    context.Context //nolint:containedctx // an explainer lives for one call
	input  *ast.Term
	trace  *trace
}

func (p *Policy) explainer(ctx context.Context, input *ast.Term) *explainer {
	return &explainer{policy: p, ctx: ctx, input: input, trace: newTrace()}
}

// eval evaluates a document and returns its value, null if it is undefined. Optimizations are off: rules that an index excludes are
// entered, so that their trace shows why they do not apply. An error of a builtin, which ends a decision, only makes the expression
// fail here.
func (s *explainer) eval(ref ast.Ref) (*ast.Term, error) {
	value, _, err := s.value(ref, s.trace)
	return value, err
}

func (s *explainer) value(ref ast.Ref, tracers ...topdown.QueryTracer) (value *ast.Term, defined bool, err error) {
	cancel := topdown.NewCancel()
	defer context.AfterFunc(s.ctx, cancel.Cancel)()
	s.trace.end = cancel.Cancel
	q := topdown.NewQuery(ast.NewBody(ast.Equality.Expr(ast.VarTerm("value"), ast.NewTerm(ref)))).
		WithCompiler(s.policy.compiler).WithStore(s.policy.store).WithTransaction(s.policy.txn).
		WithInput(s.input).WithCancel(cancel).WithIndexing(false).WithEarlyExit(false)
	for _, t := range tracers {
		q = q.WithQueryTracer(t)
	}
	metered, release := builtins.Metered(s.ctx)
	defer release()
	result, err := q.Run(metered)
	switch {
	case err != nil:
		return nil, false, evaluationError(err)
	case len(result) == 0:
		return ast.InternedNullTerm, false, nil
	}
	return result[0]["value"], true, nil
}
