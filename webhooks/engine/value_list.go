package engine

import (
	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"
)

// list is a list of documents.
type list []Value

// List returns a list of documents, which must not change any more.
func List(of []Value) Value { return Value{from: list(of)} }

func (l list) kind() jsontext.Kind { return '[' }

func (l list) member(string) (Value, bool) { return Value{}, false }

func (l list) each(visit func(name string, v Value)) {
	for _, v := range l {
		visit("", v)
	}
}

func (l list) whole() *ast.Term {
	elements := make([]*ast.Term, len(l))
	for i, v := range l {
		elements[i] = v.orNull()
	}
	return ast.ArrayTerm(elements...)
}
