package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"sallyport.dev/sallyport/webhooks/engine/plan"
)

// document is a Value that programs read.
type document struct{ Value }

// planned returns a document as a value of programs.
func planned(v Value) any {
	switch kind := v.source().kind(); kind {
	case '{', '[':
		return document{v}
	case '"':
		return v.Text()
	case 't', 'f':
		return kind == 't'
	case '0':
		return plan.Number(string(v.number()))
	}
	return plan.Null{}
}

// IsList implements plan.Document.
func (d document) IsList() bool { return d.from.kind() == '[' }

// Member implements plan.Document.
func (d document) Member(name string) any {
	if v, ok := d.member(name); ok {
		return planned(v)
	}
	return nil
}

// Open implements plan.Document.
func (d document) Open() any {
	if t, ok := d.from.(*jsonText); ok && t.built != nil {
		return t.built.open(t)
	}
	return opened(d.Value)
}

func opened(v Value) any {
	var names, values []any
	v.Each(func(name string, v Value) { names, values = append(names, name), append(values, planned(v)) })
	if v.from.kind() == '[' {
		return plan.NewArray(values)
	}
	return plan.NewObject(names, values)
}

// Term implements plan.Document.
func (d document) Term() *ast.Term { return d.orNull() }

// runProgram runs the program of a query. It returns false if topdown must evaluate the query.
func (p *Policy) runProgram(ctx context.Context, cancel topdown.Cancel, in Input, q *query, input Value) (results topdown.QueryResultSet, done bool) {
	if q.program == nil || in.interpreted || p.interpreted.Load() {
		return nil, false
	}
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *Error: // see termCache
			panic(r)
		default:
			p.noteCheck(in, fmt.Sprintf("the program panics: %v\n%s", r, debug.Stack()))
		}
	}()
	found, err := q.program.Run(ctx, cancel, planned(input))
	if err != nil {
		return nil, false
	}
	return bindings(found), true
}

// bindings returns the results of a program as topdown has them.
func bindings(found []*plan.Object) topdown.QueryResultSet {
	results := make(topdown.QueryResultSet, len(found))
	for i, o := range found {
		results[i] = topdown.QueryResult{}
		plan.Each(o, func(name, v any) bool {
			results[i][ast.Var(name.(string))] = plan.Term(v)
			return true
		})
	}
	return results
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
