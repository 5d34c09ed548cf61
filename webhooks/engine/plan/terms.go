package plan

import (
	"github.com/open-policy-agent/opa/v1/ast"
)

// FromTerm returns the value of a ground term.
func FromTerm(t *ast.Term) any {
	switch v := t.Value.(type) {
	case ast.Boolean:
		return bool(v)
	case ast.Number:
		return Number(string(v))
	case ast.String:
		return string(v)
	case *ast.Array:
		elements := make([]any, v.Len())
		for i := range elements {
			elements[i] = FromTerm(v.Elem(i))
		}
		return NewArray(elements)
	case ast.Set:
		made := &Set{}
		v.Foreach(func(e *ast.Term) { made.add(FromTerm(e)) })
		made.sorted = true
		return made
	case ast.Object:
		made := &Object{}
		v.Foreach(func(key, value *ast.Term) { made.put(FromTerm(key), FromTerm(value)) })
		made.sorted = true
		return made
	}
	return Null{}
}

// Term returns the term of a value.
func Term(v any) *ast.Term {
	switch v := v.(type) {
	case bool:
		return ast.InternedTerm(v)
	case int:
		return ast.NewTerm(numberOf(v))
	case ast.Number:
		return ast.NewTerm(v)
	case string:
		return ast.StringTerm(v)
	case *Array:
		return ast.ArrayTerm(termsOf(v.elements)...)
	case *Set:
		return ast.SetTerm(termsOf(v.keys)...)
	case *Object:
		members := make([][2]*ast.Term, len(v.keys))
		for i, k := range v.keys {
			members[i] = [2]*ast.Term{Term(k), Term(v.values[i])}
		}
		return ast.ObjectTerm(members...)
	case Document:
		return v.Term()
	}
	return ast.InternedNullTerm
}

func termsOf(values []any) []*ast.Term {
	terms := make([]*ast.Term, len(values))
	for i, v := range values {
		terms[i] = Term(v)
	}
	return terms
}
