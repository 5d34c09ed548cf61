package engine

import (
	"encoding/json"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

// Part is what a policy reads of each object of a list. As JSON, it is an object with the members that are read; true stands for
// all of a member, and the member [] for each element of a list.
type Part struct{ reads *projection }

// eachElement stands for the elements of a list in the JSON of a part.
const eachElement = "[]"

// identity is always part of an object: records and explanations name objects by it.
var identity = []string{"name", "namespace", "uid", "resourceVersion", "creationTimestamp"}

// parts returns what is read of each object of the facts of those names, without facts that may be read as a whole.
func (r *projection) parts(names []string) map[string]*Part {
	facts := r.members[ruleFacts]
	if r.all || r.every != nil || facts == nil || facts.all || facts.every != nil {
		return nil
	}
	parts := map[string]*Part{}
	for _, name := range names {
		of := facts.members[name]
		if of == nil || of.all || len(of.members) > 0 || of.every == nil || of.every.all || of.every.every != nil {
			continue
		}
		each := &projection{}
		each.include(of.every)
		for _, name := range []string{"apiVersion", "kind"} {
			each.member(name).all = true
		}
		if metadata := each.member("metadata"); !metadata.all && metadata.every == nil {
			for _, name := range identity {
				metadata.member(name).all = true
			}
		}
		parts[name] = &Part{each}
	}
	return parts
}

// include adds what another projection reads.
func (r *projection) include(other *projection) {
	r.all = r.all || other.all
	if other.every != nil {
		r.element().include(other.every)
	}
	for name, m := range other.members {
		r.member(name).include(m)
	}
}

// Of returns the part of an object.
func (p *Part) Of(object Value) Value {
	written, ok := object.from.(*jsonText)
	if p == nil || !ok {
		return object
	}
	return Text(p.reads.write(make([]byte, 0, 512), written))
}

// write appends the part of an encoded document that is read.
func (r *projection) write(b []byte, w *jsonText) []byte {
	kind := w.kind()
	if !r.partly(kind) {
		return append(b, w.json...)
	}
	b = append(b, byte(kind))
	first := true
	w.walk(func(name []byte, v *jsonText) bool {
		m := r.every
		if m == nil {
			if m = r.members[string(name)]; m == nil {
				return true
			}
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		if kind == '{' {
			b, _ = jsontext.AppendQuote(b, name) // replaces invalid UTF-8, for which it returns an error
			b = append(b, ':')
		}
		b = m.write(b, v)
		return true
	})
	if kind == '{' {
		return append(b, '}')
	}
	return append(b, ']')
}

// Covers reports whether p contains all of other. Nil is the whole of an object.
func (p *Part) Covers(other *Part) bool {
	return p == nil || other != nil && p.reads.covers(other.reads)
}

func (r *projection) covers(other *projection) bool {
	switch {
	case r.all:
		return true
	case other.all, other.every != nil && (r.every == nil || !r.every.covers(other.every)):
		return false
	}
	for name, m := range other.members {
		of := r.members[name]
		if of == nil {
			of = r.every
		}
		if of == nil || !of.covers(m) {
			return false
		}
	}
	return true
}

// MarshalJSON returns the members that are read.
func (p *Part) MarshalJSON() ([]byte, error) { return json.Marshal(p.reads.asJSON()) }

func (r *projection) asJSON() any {
	if r.all || r.members[eachElement] != nil {
		return true
	}
	members := make(map[string]any, len(r.members)+1)
	for name, m := range r.members {
		members[name] = m.asJSON()
	}
	if r.every != nil {
		members[eachElement] = r.every.asJSON()
	}
	return members
}

// UnmarshalJSON decodes the result of MarshalJSON.
func (p *Part) UnmarshalJSON(text []byte) error {
	var members any
	if err := json.Unmarshal(text, &members); err != nil {
		return err
	}
	p.reads = &projection{}
	return p.reads.fromJSON(members)
}

func (r *projection) fromJSON(members any) error {
	switch members := members.(type) {
	case bool:
		r.all = members
	case map[string]any:
		for name, m := range members {
			of := r.element
			if name != eachElement {
				of = func() *projection { return r.member(name) }
			}
			if err := of().fromJSON(m); err != nil {
				return err
			}
		}
	default:
		return fmt.Errorf("%v is not a part of an object", members)
	}
	return nil
}

// Equal reports whether two parts are the same.
func (p *Part) Equal(other *Part) bool { return p.Covers(other) && other.Covers(p) }
