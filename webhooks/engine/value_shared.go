package engine

import (
	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"
)

// shared is decoded JSON that belongs to somebody else, as to a cache, and is never changed.
type shared struct{ decoded any }

// Shared gives a document out of decoded JSON that nobody ever changes: it is read when it is asked for. An object that is in
// several documents is known to be the same in all of them, which the engine remembers decisions by.
func Shared(decoded any) Value { return Value{from: &shared{decoded}} }

func (s *shared) kind() jsontext.Kind {
	switch v := s.decoded.(type) {
	case map[string]any:
		return '{'
	case []any:
		return '['
	case string:
		return '"'
	case nil:
		return 'n'
	case bool:
		if v {
			return 't'
		}
		return 'f'
	default:
		return '0'
	}
}

func (s *shared) member(name string) (Value, bool) {
	object, _ := s.decoded.(map[string]any)
	value, ok := object[name]
	return Shared(value), ok
}

func (s *shared) each(visit func(name string, v Value)) {
	switch v := s.decoded.(type) {
	case map[string]any:
		for name, value := range v {
			visit(name, Shared(value))
		}
	case []any:
		for _, value := range v {
			visit("", Shared(value))
		}
	}
}

func (s *shared) whole() *ast.Term { return ast.NewTerm(ast.MustInterfaceToValue(s.decoded)) }

// list is one of documents.
type list []Value

// List gives a list of documents, which must not change any more.
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
