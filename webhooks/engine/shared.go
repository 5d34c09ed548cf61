package engine

import (
	"reflect"

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

// same tells whether two documents are known to be the same. Objects of others are compared by which they are, and lists of
// them one by one; everything else by what it is.
func same(a, b Value) bool {
	x, isShared := a.from.(*shared)
	y, areShared := b.from.(*shared)
	if isShared && areShared {
		return sameObjects(x.decoded, y.decoded)
	}
	return a.from == nil && b.from == nil && a.orNull().Equal(b.orNull())
}

func sameObjects(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !sameObjects(a[i], b[i]) {
				return false
			}
		}
		return true
	default:
		return false
	}
}

// length of a list of others' objects; 1 for everything else.
func (v Value) length() int {
	if s, ok := v.from.(*shared); ok {
		if list, ok := s.decoded.([]any); ok {
			return len(list)
		}
	}
	return 1
}
