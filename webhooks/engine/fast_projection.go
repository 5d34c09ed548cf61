package engine

import (
	"encoding/binary"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"
)

// projection is what is read of a document: all of it, or some members of an object. Whether it exists, and its value if it is no
// object, always count as read.
type projection struct {
	all     bool
	members map[string]*projection
	// every is what is read of each element of a list, or of each value of an object, besides its keys.
	every *projection

	keys  []*ast.Term // of members, in order
	depth int
}

// deepest limits the length of paths; Kubernetes objects are not nested deeper.
const deepest = 12

// member returns the projection of a member, and adds it if necessary.
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

// element returns the projection of each element, and adds it if necessary.
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

// partly reports whether a projection of a document of this kind is worth building. A scalar is small.
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

// project returns the part of a document that is read, as a term.
func (r *projection) project(v Value) *ast.Term {
	if _, made := v.source().(*inTerms); made || !r.partly(v.from.kind()) {
		return v.orNull()
	}
	if r.every == nil {
		members := make([][2]*ast.Term, 0, len(r.keys))
		for _, key := range r.keys {
			if m, ok := v.from.member(text(key)); ok {
				members = append(members, [2]*ast.Term{key, r.members[text(key)].project(m)})
			}
		}
		return ast.ObjectTerm(members...)
	}
	if v.from.kind() == '[' {
		var elements []*ast.Term
		v.from.each(func(_ string, element Value) { elements = append(elements, r.every.project(element)) })
		return ast.ArrayTerm(elements...)
	}
	var members [][2]*ast.Term
	v.from.each(func(name string, m Value) {
		members = append(members, [2]*ast.Term{ast.StringTerm(name), r.every.project(m)})
	})
	return ast.ObjectTerm(members...)
}

// key appends to b the part of an encoded document that is read, such that different parts give different keys.
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
