package engine

import (
	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"
)

// document returns the input of an evaluation: request, now and, once they are known, facts. Parts that are not read are not built.
func (in Input) document(facts map[string]Fact) Value {
	made := members{"request": in.Request, "now": valueOf(ast.StringTerm(in.Now.UTC().Format(TimeFormat)))}
	if facts != nil {
		answers := members{}
		for name, f := range facts {
			answers[name] = f.Answer.Value
		}
		made["facts"] = Value{from: answers}
	}
	return Value{from: made}
}

// members are the members of an object.
type members map[string]Value

func (m members) kind() jsontext.Kind { return '{' }

func (m members) member(name string) (Value, bool) {
	v, ok := m[name]
	return v, ok
}

func (m members) each(visit func(name string, v Value)) {
	for name, v := range m {
		visit(name, v)
	}
}

func (m members) whole() *ast.Term {
	object := ast.NewObject()
	m.each(func(name string, v Value) { object.Insert(ast.StringTerm(name), v.orNull()) })
	return ast.NewTerm(object)
}
