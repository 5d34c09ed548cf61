package engine

import (
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"
)

// termCache has the terms of a large document, shared by all policies that read it, with a limit on their number; and the members of its parts.
type termCache struct {
	mu     sync.Mutex
	terms  map[span]*ast.Term
	values int // in the terms
	total  int // in the document
	parts  map[span][]part
	split  int // in parts
}

// span is a part of a text.
type span struct {
	first  *byte
	length int
}

func newTermCache(json []byte) *termCache {
	if len(json) < largeText {
		return nil
	}
	return &termCache{terms: map[span]*ast.Term{}, parts: map[span][]part{}}
}

// Values returns the number of values, including names of members, in the text that the document is a part of; 0 if it is no text,
// or a small one, which has at most half as many values as bytes.
func (v Value) Values() int {
	if t, ok := v.from.(*jsonText); ok && t.built != nil {
		return t.built.total
	}
	return 0
}

// term returns the term of a part. Beyond the limit it panics with the error of the policy's decision.
func (b *termCache) term(part *jsonText) *ast.Term {
	b.mu.Lock()
	defer b.mu.Unlock()
	is := span{&part.json[0], len(part.json)}
	term := b.terms[is]
	if term == nil {
		n := part.values()
		if b.values+n > maxRead {
			panic(errorf(EvaluationFailed, "policies would read more than %d values of this request", maxRead))
		}
		b.values += n
		term = part.term()
		b.terms[is] = term
	}
	return term
}

// partsOf returns the members or elements of a part; false if there are too many parts to keep.
func (b *termCache) partsOf(t *jsonText) ([]part, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	is := span{&t.json[0], len(t.json)}
	parts, ok := b.parts[is]
	if !ok && b.split < maxRead {
		t.readParts(func(name []byte, v *jsonText) bool {
			parts = append(parts, part{name, *v})
			return true
		})
		b.split += len(parts)
		b.parts[is], ok = parts, true
	}
	return parts, ok
}

// values counts values as ParseText does.
func (t *jsonText) values() (n int) {
	t.decode(func(dec *jsontext.Decoder) error {
		for {
			token, err := dec.ReadToken()
			if err != nil {
				return err
			}
			if kind := token.Kind(); kind != '}' && kind != ']' {
				n++
			}
			if dec.StackDepth() == 0 {
				return nil
			}
		}
	})
	return n
}
