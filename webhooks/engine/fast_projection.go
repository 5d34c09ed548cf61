package engine

import (
	"encoding/binary"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"
)

// projection is what is read of a document: all of it, or some members of an object. That it is there, and what it is if it is no
// object, is read in any case.
type projection struct {
	all     bool
	members map[string]*projection
	// every is what is read of each element of a list, or of each value of an object, besides its keys.
	every *projection

	keys  []*ast.Term // of members, in order
	depth int
}

// deepest is how far a path is followed; objects of Kubernetes are not nested further.
const deepest = 12

// member gives what is read of a member, and has it read.
func (r *projection) member(name string) *projection {
	if r.all || r.depth == deepest {
		r.all = true
		return r
	}
	m := r.members[name]
	if m == nil {
		m = &projection{depth: r.depth + 1}
		if r.members == nil {
			r.members = map[string]*projection{}
		}
		r.members[name] = m
		r.keys = append(r.keys, ast.StringTerm(name))
		slices.SortFunc(r.keys, ast.TermValueCompare)
	}
	return m
}

// element gives what is read of each element, and has them all read.
func (r *projection) element() *projection {
	if r.all || r.depth == deepest {
		r.all = true
		return r
	}
	if r.every == nil {
		r.every = &projection{depth: r.depth + 1}
	}
	return r.every
}

// partly tells whether no more than a projection of a document needs to be made. What is neither an object nor a list is small.
func (r *projection) partly(kind jsontext.Kind) bool {
	if r.all {
		return false
	}
	switch kind {
	case '{':
		return r.every == nil || len(r.members) == 0
	case '[':
		return r.every != nil
	}
	return false
}

// of gives the part of a document that is read, as terms. What reads no more cannot tell it from the whole.
func (r *projection) of(v Value) *ast.Term {
	if _, made := v.source().(*inTerms); made || !r.partly(v.from.kind()) {
		return v.orNull()
	}
	if r.every == nil {
		members := make([][2]*ast.Term, 0, len(r.keys))
		for _, key := range r.keys {
			if m, ok := v.from.member(text(key)); ok {
				members = append(members, [2]*ast.Term{key, r.members[text(key)].of(m)})
			}
		}
		return ast.ObjectTerm(members...)
	}
	if v.from.kind() == '[' {
		var elements []*ast.Term
		v.from.each(func(_ string, element Value) { elements = append(elements, r.every.of(element)) })
		return ast.ArrayTerm(elements...)
	}
	var members [][2]*ast.Term
	v.from.each(func(name string, m Value) {
		members = append(members, [2]*ast.Term{ast.StringTerm(name), r.every.of(m)})
	})
	return ast.ObjectTerm(members...)
}

// key appends to b the part of a written document that is read, so that no two parts that differ give the same.
func (r *projection) key(b []byte, w *jsonText) []byte {
	if r.all || w.kind() != '{' || r.every != nil {
		b = binary.AppendUvarint(append(b, '='), uint64(len(w.json)))
		return append(b, w.json...)
	}
	b = append(b, '{')
	for _, key := range r.keys {
		if m, ok := w.member(text(key)); ok {
			b = r.members[text(key)].key(b, m.from.(*jsonText))
		} else {
			b = append(b, '-')
		}
	}
	return b
}
