package engine

import (
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// projection is what is read of a document: all of it, or some members of an object. Whether it exists, and its value if it is no
// object, always count as read.
type projection struct {
	all     bool
	members map[string]*projection
	// every is what is read of each element of a list, or of each value of an object, besides its keys.
	every *projection

	names []string // of members, in order
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
		r.names = append(r.names, name)
		slices.Sort(r.names)
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
