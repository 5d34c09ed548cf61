package engine

import (
	"bytes"
	"sync"
	"sync/atomic"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"
)

// unread is JSON text that is put into terms where somebody asks for something in it, and nowhere else: most of a review is
// read by nobody. It was checked before, for syntax and for duplicate names.
type unread struct {
	json []byte
	// parts and term are made when they are asked for; if two ask at once, both make them.
	parts atomic.Pointer[[]part]
	term  atomic.Pointer[ast.Term]
}

// part is a member of an object or, without a name, an element of a list.
type part struct {
	name  []byte
	value unread
}

// Text gives a document out of JSON text, which must be one document without duplicate object keys and must not change any
// more. It is read when it is asked for.
func Text(json []byte) Value { return Value{from: &unread{json: json}} }

// lenient is for what was checked before.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

var decoders = sync.Pool{New: func() any { return new(jsontext.Decoder) }}

func (t *unread) decode(read func(*jsontext.Decoder) error) {
	dec := decoders.Get().(*jsontext.Decoder)
	defer decoders.Put(dec)
	dec.Reset(bytes.NewBuffer(t.json), lenient) // a buffer is read in place
	if err := read(dec); err != nil {
		panic(err) // it was checked before
	}
}

// eagerly is how many levels of objects are taken apart at once: those of a review down to the fields of metadata and spec.
const eagerly = 4

func (t *unread) takenApart() []part {
	if parts := t.parts.Load(); parts != nil {
		return *parts
	}
	if kind := t.kind(); kind == '{' || kind == '[' {
		t.decode(func(dec *jsontext.Decoder) error {
			_, err := t.takeApart(dec, t.json, eagerly)
			return err
		})
		return *t.parts.Load()
	}
	return nil
}

// takeApart reads the text out of a longer one, with the objects in it to some depth, and gives it.
func (t *unread) takeApart(dec *jsontext.Decoder, from []byte, depth int) (raw []byte, err error) {
	opening, err := dec.ReadToken()
	if err != nil {
		return nil, err
	}
	start := int(dec.InputOffset()) - 1
	parts := make([]part, 0, 8)
	for dec.PeekKind() != '}' && dec.PeekKind() != ']' {
		parts = append(parts, part{})
		p := &parts[len(parts)-1]
		if opening.Kind() == '{' {
			if p.name, err = readName(dec, from); err != nil {
				return nil, err
			}
		}
		if depth > 1 && dec.PeekKind() == '{' {
			p.value.json, err = p.value.takeApart(dec, from, depth-1)
		} else {
			p.value.json, err = readRaw(dec, from)
		}
		if err != nil {
			return nil, err
		}
	}
	t.parts.Store(&parts)
	_, err = dec.ReadToken()
	end := int(dec.InputOffset())
	return from[start:end:end], err
}

// readRaw gives the next value as it stands in the text.
func readRaw(dec *jsontext.Decoder, from []byte) ([]byte, error) {
	value, err := dec.ReadValue()
	end := int(dec.InputOffset())
	return from[end-len(value) : end : end], err
}

func readName(dec *jsontext.Decoder, from []byte) ([]byte, error) {
	quoted, err := readRaw(dec, from)
	if err != nil {
		return nil, err
	}
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1], nil
	}
	return jsontext.AppendUnquote(nil, quoted)
}

func (t *unread) kind() jsontext.Kind { return jsontext.Value(t.json).Kind() }

func (t *unread) member(name string) (Value, bool) {
	if t.kind() != '{' {
		return Value{}, false
	}
	parts := t.takenApart()
	for i := range parts {
		if string(parts[i].name) == name {
			return Value{from: &parts[i].value}, true
		}
	}
	return Value{}, false
}

func (t *unread) each(visit func(name string, v Value)) {
	parts := t.takenApart()
	for i := range parts {
		visit(string(parts[i].name), Value{from: &parts[i].value})
	}
}

func (t *unread) whole() *ast.Term {
	if term := t.term.Load(); term != nil {
		return term
	}
	t.decode(func(dec *jsontext.Decoder) error {
		term, err := readTerm(dec)
		t.term.Store(term)
		return err
	})
	return t.term.Load()
}
