package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"sallyport.dev/sallyport/webhooks/engine/builtins"
	"sallyport.dev/sallyport/webhooks/engine/plan"
)

// document is a Value as a term that programs read.
type document struct{ Value }

// planned returns the term of a document. What has parts is converted when programs read them.
func planned(v Value) *ast.Term {
	if _, isTerm := v.source().(*inTerms); isTerm {
		return v.orNull()
	}
	switch v.from.kind() {
	case '{', '[':
		return ast.NewTerm(document{v})
	case '"':
		return ast.StringTerm(v.Text())
	case '0':
		return ast.NewTerm(v.number())
	}
	return v.orNull()
}

// Get implements plan.Document.
func (d document) Get(key *ast.Term) (found *ast.Term) {
	switch k := key.Value.(type) {
	case ast.String:
		if v, ok := d.member(string(k)); ok {
			return planned(v)
		}
	case ast.Number:
		if at, ok := k.Int(); ok && at >= 0 && d.IsList() {
			d.Until(func(i, element *ast.Term) bool {
				found = element
				at--
				return at < 0
			})
			if at >= 0 {
				return nil
			}
		}
	}
	return found
}

// Until implements plan.Document.
func (d document) Until(visit func(key, value *ast.Term) bool) bool {
	var names []string
	var values []Value
	d.Each(func(name string, v Value) { names, values = append(names, name), append(values, v) })
	if d.IsList() {
		for i, v := range values {
			if visit(ast.InternedTerm(i), planned(v)) {
				return true
			}
		}
		return false
	}
	order := make([]int, len(names))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(names[a], names[b]) })
	return slices.ContainsFunc(order, func(i int) bool { return visit(ast.StringTerm(names[i]), planned(values[i])) })
}

// Len implements plan.Document.
func (d document) Len() (n int) {
	d.Each(func(string, Value) { n++ })
	return n
}

// Whole implements plan.Document.
func (d document) Whole() *ast.Term { return d.orNull() }

// Compare implements ast.Value, as the methods below do.
func (d document) Compare(other ast.Value) int { return d.orNull().Value.Compare(other) }

func (d document) Find(path ast.Ref) (ast.Value, error) { return d.orNull().Value.Find(path) }

func (d document) Hash() int { return d.orNull().Hash() }

func (d document) IsGround() bool { return true }

func (d document) String() string { return d.orNull().String() }

func (d document) StringLength() int { return d.orNull().Value.StringLength() }

// runProgram runs the program of a query. It returns false if topdown must evaluate the query.
func (p *Policy) runProgram(ctx context.Context, in Input, q *query, input Value) (results topdown.QueryResultSet, done bool) {
	if q.program == nil || in.interpreted || p.interpreted.Load() {
		return nil, false
	}
	defer func() {
		switch r := recover().(type) {
		case nil, *Error: // see termCache; topdown stops there, too
		default:
			p.noteCheck(in, fmt.Sprintf("the program panics: %v\n%s", r, debug.Stack()))
		}
	}()
	metered, release := builtins.Metered(ctx)
	defer release()
	found, err := q.program.Run(metered, planned(input))
	return found, err == nil
}

// Interpreted returns the places because of which queries of the policy have no program, so that they take longer.
func (p *Policy) Interpreted() (places CompileErrors) {
	for _, q := range []*query{p.first.ask, p.second.ask, p.queries[admit], p.queries[mutate], p.outcome} {
		if q == nil || q.lacks == nil {
			continue
		}
		place := CompileError{File: p.name, Message: firstLine(q.lacks.Error())}
		var at *plan.Unsupported
		if errors.As(q.lacks, &at) {
			place = CompileError{File: at.File, Row: at.Row, Col: at.Col, Message: at.What}
		}
		if !slices.Contains(places, place) {
			places = append(places, place)
		}
	}
	return places
}
