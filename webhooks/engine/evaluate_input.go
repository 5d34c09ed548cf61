package engine

import (
	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"
)

// document is the input of an evaluation: request, now and, once they are known, facts. What is not read of it is not made.
type document struct {
	in    Input
	facts answers // nil: not asked yet
}

// answers are the facts in the input.
type answers map[string]Fact

func (in Input) document(facts map[string]Fact) Value { return Value{from: &document{in, facts}} }

// term is the whole input.
func (in Input) term(facts map[string]Fact) *ast.Term { return in.document(facts).orNull() }

func (d *document) kind() jsontext.Kind { return '{' }

func (d *document) member(name string) (Value, bool) {
	switch name {
	case "request":
		return d.in.Request, true
	case "now":
		return Value{term: ast.StringTerm(d.in.Now.UTC().Format(TimeFormat))}, true
	case "facts":
		return Value{from: d.facts}, d.facts != nil
	}
	return Value{}, false
}

func (d *document) each(visit func(name string, v Value)) {
	for _, name := range []string{"request", "now", "facts"} {
		if v, ok := d.member(name); ok {
			visit(name, v)
		}
	}
}

func (d *document) whole() *ast.Term { return wholeObject(d) }

func (a answers) kind() jsontext.Kind { return '{' }

func (a answers) member(name string) (Value, bool) {
	f, ok := a[name]
	return f.Answer.Value, ok
}

func (a answers) each(visit func(name string, v Value)) {
	for name, f := range a {
		visit(name, f.Answer.Value)
	}
}

func (a answers) whole() *ast.Term { return wholeObject(a) }

func wholeObject(of source) *ast.Term {
	object := ast.NewObject()
	of.each(func(name string, v Value) { object.Insert(ast.StringTerm(name), v.orNull()) })
	return ast.NewTerm(object)
}
