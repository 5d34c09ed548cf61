package engine

import (
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"

	"sallyport.dev/sallyport/webhooks/engine/plan"
)

// termCache has what a large document was converted to, shared by all policies that read it, with a limit on the values.
type termCache struct {
	mu     sync.Mutex
	terms  map[span]*ast.Term
	opened map[span]any // for programs
	values int          // in both
	total  int          // in the document
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
	return &termCache{terms: map[span]*ast.Term{}, opened: map[span]any{}}
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
	return converted(b, b.terms, part, part.values, part.term)
}

// open returns what programs read of a part, with the same limit.
func (b *termCache) open(part *jsonText) any {
	return converted(b, b.opened, part, part.size, func() any {
		v := opened(Value{part})
		plan.Freeze(v)
		return v
	})
}

func converted[T any](b *termCache, known map[span]T, part *jsonText, values func() int, convert func() T) T {
	b.mu.Lock()
	defer b.mu.Unlock()
	is := span{&part.json[0], len(part.json)}
	made, ok := known[is]
	if !ok {
		n := values()
		if b.values+n > maxRead {
			panic(errorf(EvaluationFailed, "policies would read more than %d values of this request", maxRead))
		}
		b.values += n
		made = convert()
		known[is] = made
	}
	return made
}

// size returns the number of members or elements.
func (t *jsonText) size() (n int) {
	t.walk(func([]byte, *jsonText) bool {
		n++
		return true
	})
	return n
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
