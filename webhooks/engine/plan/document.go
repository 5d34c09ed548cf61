package plan

import "github.com/open-policy-agent/opa/v1/ast"

// Document is a JSON object or list as a value of Rego that is converted only as far as it is read. It does not change. Values that a program
// makes, and operands of most builtins, have the whole of it in its place.
type Document interface {
	ast.Value
	// IsList reports whether it is a list.
	IsList() bool
	// Get returns the member of an object, or the element of a list; nil if there is none.
	Get(key *ast.Term) *ast.Term
	// Until visits keys and values, in the order of Rego, until visit returns true.
	Until(visit func(key, value *ast.Term) bool) bool
	// Len returns the number of members or elements.
	Len() int
	// Whole returns all of it.
	Whole() *ast.Term
}

// whole returns a value without documents in it.
func whole(t *ast.Term) *ast.Term {
	if d, ok := t.Value.(Document); ok {
		return d.Whole()
	}
	return t
}

// equal reports whether two values are the same.
func equal(a, b *ast.Term) bool { return a == b || kindOf(a) == kindOf(b) && whole(a).Equal(whole(b)) }

// kind is a type of values.
type kind int

const (
	scalar kind = iota
	array
	object
	set
)

func kindOf(t *ast.Term) kind {
	switch v := t.Value.(type) {
	case *ast.Array:
		return array
	case ast.Object:
		return object
	case ast.Set:
		return set
	case Document:
		if v.IsList() {
			return array
		}
		return object
	}
	return scalar
}

// size returns the number of elements or members; false if the value has none by its type.
func size(t *ast.Term) (int, bool) {
	if kindOf(t) == scalar {
		return 0, false
	}
	return t.Value.(interface{ Len() int }).Len(), true
}

// until visits the keys and values of a value with parts, in the order of Rego, until visit returns true.
func until(t *ast.Term, visit func(key, value *ast.Term) bool) {
	switch v := t.Value.(type) {
	case *ast.Array:
		for i := range v.Len() {
			if visit(ast.InternedTerm(i), v.Elem(i)) {
				return
			}
		}
	case ast.Set:
		v.Until(func(e *ast.Term) bool { return visit(e, e) })
	case interface {
		Until(func(key, value *ast.Term) bool) bool
	}: // an object or a document
		v.Until(visit)
	}
}

// merged returns two objects in one. Where both have a member that is no object, that of a stays.
func merged(a, b ast.Object) ast.Object {
	made := ast.NewObject()
	b.Foreach(made.Insert)
	a.Foreach(func(k, v *ast.Term) {
		if other := made.Get(k); other != nil {
			mine, isObject := v.Value.(ast.Object)
			if theirs, both := other.Value.(ast.Object); both && isObject {
				v = ast.NewTerm(merged(mine, theirs))
			}
		}
		made.Insert(k, v)
	})
	return made
}
