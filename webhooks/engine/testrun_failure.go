package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// A failed test is run again with a trace, to report for each of its rules or rows the expression that was false, and its operands.

// plugged returns the expression with values for its variables.
func (at *stop) plugged() *ast.Expr {
	p := at.expr.Copy()
	value := func(t *ast.Term) *ast.Term {
		ref, ok := t.Value.(ast.Ref)
		if !ok {
			return at.plug(t)
		}
		made := make(ast.Ref, len(ref))
		for i, part := range ref {
			made[i] = at.plug(part)
		}
		if _, local := ref[0].Value.(ast.Var); local && ast.IsConstant(made[0].Value) && made[1:].IsGround() {
			if found, err := made[0].Value.Find(made[1:]); err == nil {
				return ast.NewTerm(found)
			}
		}
		return at.plug(t)
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

// plug returns the term with the values that its variables have.
func (at *stop) plug(t *ast.Term) *ast.Term {
	plugged, err := ast.TransformVars(t.Copy().Value, func(v ast.Var) (ast.Value, error) {
		if value := at.vars[v]; value != nil {
			return value.Value, nil
		}
		return v, nil
	})
	if value, ok := plugged.(ast.Value); ok && err == nil {
		return ast.NewTerm(value)
	}
	return t
}

// Limits of the message for a test: lines, and bytes of each value and statement.
const (
	maxDifferences = 5
	maxGot         = 400
	maxStatement   = 120
)

// differences returns lines that say what a test got and wanted.
func (s *suite) differences(ctx context.Context, t test, fallen []string) string {
	seen := newTrace()
	if _, err := s.evaluate(ctx, t, &printer{}, &rows{}, seen, s.heard.option(new([]error))); err != nil {
		return ""
	}
	var lines []string
	for _, r := range s.compiler.GetRulesWithPrefix(ast.MustParseRef(t.query)) {
		for _, f := range seen.rules[r] {
			if len(f.stops) == 0 || t.table && !slices.Contains(fallen, f.row) {
				continue
			}
			if len(lines) == maxDifferences {
				return strings.Join(append(lines, "...\n"), "")
			}
			line := s.difference(ctx, r.Body, f.stops[0].plugged()) + "\n"
			if f.row != "" {
				line = fmt.Sprintf("%q: %s", f.row, line)
			}
			if !slices.Contains(lines, line) {
				lines = append(lines, line)
			}
		}
	}
	return strings.Join(lines, "")
}

// difference returns a line about an expression of a test that was false, with values for its variables.
func (s *suite) difference(ctx context.Context, body ast.Body, e *ast.Expr) string {
	statement := enclosing(body, e)
	line := fmt.Sprintf("%s: %s: ", statement.Location.String(), cutAt(firstLine(written(statement)), maxStatement))
	value := func(t *ast.Term) string { return s.valueOf(ctx, t, e.With) }
	operands := e.Operands()
	sign, compares := "", false
	if e.IsCall() {
		sign, compares = comparisons[e.Operator().String()]
	}
	switch {
	case e.Negated:
		return line + "it holds"
	case e.IsEvery():
		return line + "does not hold for each value"
	case e.IsEquality() && isGeneratedVar(operands[0]):
		return line + "got undefined"
	case len(operands) == 2 && compares:
		return line + fmt.Sprintf("got %s, want %s%s", value(operands[0]), sign, value(operands[1]))
	case e.IsCall() && e.Operator().String() == ast.Member.Name && len(operands) >= 2:
		return line + fmt.Sprintf("got %s, want %s in it", value(operands[1]), value(operands[0]))
	case e.IsCall():
		return line + s.called(ctx, e)
	}
	if term, ok := e.Terms.(*ast.Term); ok {
		return line + "got " + value(term)
	}
	return line + "does not hold"
}

// comparisons has the words before the right operand, by operator.
var comparisons = map[string]string{
	"eq": "", "equal": "", "neq": "anything but ", "lt": "less than ", "lte": "at most ", "gt": "more than ", "gte": "at least ",
}

// called describes the result of a call whose last operand is the wanted result.
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

// valueOf returns the value of a term as text.
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

// query returns the value of the variable got as text.
func (s *suite) query(ctx context.Context, e *ast.Expr) string {
	check := func(_ topdown.BuiltinContext, operands []*ast.Term, next func(*ast.Term) error) error {
		said, _ := s.heard.checkCall(operands) // the first run has reported the error
		return next(said)
	}
	found, err := topdown.NewQuery(ast.NewBody(e)).WithCompiler(s.compiler).WithStore(s.store).WithTransaction(s.txn).
		WithBuiltins(map[string]*topdown.Builtin{saidName: {Decl: saidBuiltin[saidName], Func: check}}).Run(ctx)
	switch {
	case err != nil:
		return "an error: " + err.Error()
	case len(found) == 0:
		return "undefined"
	}
	return brief(found[0][ast.Var(reserved+"got")])
}

// brief returns a value in Rego syntax, cut to maxGot bytes.
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

func firstLine(text string) string {
	first, _, more := strings.Cut(text, "\n")
	if more {
		first += " ..."
	}
	return first
}
