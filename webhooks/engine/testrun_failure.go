package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// A test that fails is run once more, to tell of each of its rules, or rows, the expression that did not hold, and what stood on its sides.

// failureTracer looks how far the rules of one test get.
type failureTracer struct {
	tracer
	test   test
	bodies map[uint64]*attempt
	all    []*attempt
}

// attempt is one run through the body of a test, or one row of a table.
type attempt struct {
	row  string
	rule *ast.Rule
	expr *ast.Expr // that did not hold, with values for its variables; nil if all did
	at   int
}

// TraceEvent takes down an event.
func (f *failureTracer) TraceEvent(e topdown.Event) {
	a := f.bodies[e.QueryID]
	switch expr, _ := e.Node.(*ast.Expr); {
	case e.Op == topdown.EnterOp:
		if r, ok := e.Node.(*ast.Rule); ok && f.test.is(r) {
			f.begin(e.QueryID, &attempt{rule: r})
		}
	case a == nil:
	case e.Op == topdown.TestCaseOp:
		f.begin(e.QueryID, &attempt{rule: a.rule, row: rowOf(expr.Operand(0))})
	case e.Op == topdown.FailOp && expr != nil && (a.expr == nil || expr.Index > a.at):
		a.expr, a.at = plugged(expr, e), expr.Index
	}
}

// maxAttempts bounds what is looked at.
const maxAttempts = 2000

func (f *failureTracer) begin(query uint64, a *attempt) {
	if len(f.all) == maxAttempts {
		delete(f.bodies, query)
		return
	}
	f.bodies[query] = a
	f.all = append(f.all, a)
}

// is tells whether a rule is one of a test's.
func (t test) is(r *ast.Rule) bool {
	ref, ok := testRef(r)
	return ok && r.Module != nil && r.Module.Package.Path.Extend(ref).String() == t.query
}

// plugged is an expression with values for its variables.
func plugged(expr *ast.Expr, e topdown.Event) *ast.Expr {
	p := expr.Copy()
	value := func(t *ast.Term) *ast.Term {
		ref, ok := t.Value.(ast.Ref)
		if !ok {
			return e.Plug(t)
		}
		made := make(ast.Ref, len(ref))
		for i, part := range ref {
			made[i] = e.Plug(part)
		}
		if _, local := ref[0].Value.(ast.Var); local && ast.IsConstant(made[0].Value) && made[1:].IsGround() {
			if found, err := made[0].Value.Find(made[1:]); err == nil {
				return ast.NewTerm(found)
			}
		}
		return e.Plug(t)
	}
	switch terms := p.Terms.(type) {
	case *ast.Term:
		p.Terms = value(terms)
	case []*ast.Term:
		for i := 1; i < len(terms); i++ {
			terms[i] = value(terms[i])
		}
	}
	for _, w := range p.With {
		w.Value = value(w.Value)
	}
	return p
}

// most of what is told of a test: lines, and bytes of each value.
const (
	maxDifferences = 5
	maxGot         = 400
	maxStatement   = 120
)

// differences are lines that say what a test got and wanted.
func (s *suite) differences(ctx context.Context, t test, rows []string) string {
	f := &failureTracer{test: t, bodies: map[uint64]*attempt{}}
	if _, err := s.evaluate(ctx, t, &printer{}, f, s.heard.option(new([]error))); err != nil {
		return ""
	}
	var lines []string
	for _, a := range f.all {
		if a.expr == nil || t.table && !slices.Contains(rows, a.row) {
			continue
		}
		if len(lines) == maxDifferences {
			lines = append(lines, "...\n")
			break
		}
		line := s.difference(ctx, a) + "\n"
		if a.row != "" {
			line = fmt.Sprintf("%q: %s", a.row, line)
		}
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

func (s *suite) difference(ctx context.Context, a *attempt) string {
	statement := enclosing(a.rule.Body, a.expr)
	line := fmt.Sprintf("%s: %s: ", statement.Location.String(), cutAt(firstLine(written(statement)), maxStatement))
	value := func(t *ast.Term) string { return s.valueOf(ctx, t, a.expr.With) }
	operands := a.expr.Operands()
	sign, compares := "", false
	if a.expr.IsCall() {
		sign, compares = comparisons[a.expr.Operator().String()]
	}
	switch {
	case a.expr.Negated:
		return line + "it holds"
	case a.expr.IsEvery():
		return line + "does not hold for each value"
	case a.expr.IsEquality() && isGeneratedVar(operands[0]):
		return line + "got undefined"
	case len(operands) == 2 && compares:
		return line + fmt.Sprintf("got %s, want %s%s", value(operands[0]), sign, value(operands[1]))
	case a.expr.IsCall() && a.expr.Operator().String() == ast.Member.Name && len(operands) >= 2:
		return line + fmt.Sprintf("got %s, want %s in it", value(operands[1]), value(operands[0]))
	case a.expr.IsCall():
		return line + s.called(ctx, a.expr)
	}
	if term, ok := a.expr.Terms.(*ast.Term); ok {
		return line + "got " + value(term)
	}
	return line + "does not hold"
}

// comparisons are what is said before the right side of one, which is not just what was wanted.
var comparisons = map[string]string{
	"eq": "", "equal": "", "neq": "anything but ", "lt": "less than ", "lte": "at most ", "gt": "more than ", "gte": "at least ",
}

// called tells what a call gives that was to give its last operand.
func (s *suite) called(ctx context.Context, e *ast.Expr) string {
	terms := e.Terms.([]*ast.Term)
	call := slices.Clone(terms)
	if arity := s.compiler.GetArity(e.Operator()); arity >= 0 && len(terms) > arity+1 {
		call = terms[:arity+1]
	}
	result := ast.VarTerm(reserved + "got")
	got := s.query(ctx, &ast.Expr{Terms: append(slices.Clone(call), result), With: e.With})
	if len(call) == len(terms) {
		return "got " + got
	}
	return fmt.Sprintf("got %s, want %s", got, s.valueOf(ctx, terms[len(terms)-1], e.With))
}

// valueOf gives the value of a term, as text.
func (s *suite) valueOf(ctx context.Context, t *ast.Term, with []*ast.With) string {
	if ast.IsConstant(t.Value) {
		return brief(t)
	}
	if _, unbound := t.Value.(ast.Var); unbound {
		return "undefined"
	}
	e := ast.Equality.Expr(ast.VarTerm(reserved+"got"), t)
	e.With = with
	return s.query(ctx, e)
}

// query gives what the variable got becomes.
func (s *suite) query(ctx context.Context, e *ast.Expr) string {
	hear := func(_ topdown.BuiltinContext, operands []*ast.Term, next func(*ast.Term) error) error {
		said, _ := s.heard.hear(operands) // what is wrong has been told
		return next(said)
	}
	found, err := topdown.NewQuery(ast.NewBody(e)).WithCompiler(s.compiler).WithStore(s.store).WithTransaction(s.txn).
		WithBuiltins(map[string]*topdown.Builtin{saidName: {Decl: saidBuiltin[saidName], Func: hear}}).Run(ctx)
	switch {
	case err != nil:
		return "an error: " + err.Error()
	case len(found) == 0:
		return "undefined"
	}
	return brief(found[0][ast.Var(reserved+"got")])
}

// brief is a value as Rego has it, cut if it is long.
func brief(t *ast.Term) string { return cutAt(t.String(), maxGot) }

func cutAt(text string, most int) string {
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}

func isGeneratedVar(t *ast.Term) bool {
	v, ok := t.Value.(ast.Var)
	return ok && v.IsGenerated()
}
