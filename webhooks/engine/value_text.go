package engine

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"
)

// jsonText is JSON text whose parts are converted to terms when they are read: most of a review, and of a cached object, is never
// read. Its syntax and the uniqueness of names were checked, and it never changes.
type jsonText struct {
	json []byte
	// parts are the members of an object that was split when it was checked; nil otherwise.
	parts []part
	// built has the terms of the document that it is a part of, if that is large.
	built *termCache
}

// part is a member of an object.
type part struct {
	name  []byte
	value jsonText
}

// Text returns a document for JSON text, which must be one document without duplicate object keys and must not change any more. The
// text is parsed at every read, and nothing else is stored.
func Text(json []byte) Value { return Value{from: &jsonText{json: json}} }

// ParseText parses one JSON document within the limits of value_limits.go, and converts nothing to terms yet. Duplicate object keys
// and trailing data are errors, because two parsers could read them differently. The text must not change any more.
func ParseText(json []byte) (Value, error) {
	dec := decoders.Get().(*jsontext.Decoder)
	defer decoders.Put(dec)
	dec.Reset(bytes.NewBuffer(json)) // a buffer is read in place
	open := stacks.Get().(*[]part)
	t := splitter{dec: dec, from: json, built: newTermCache(json), open: (*open)[:0]}
	defer func() {
		clear(t.open[:cap(t.open)])
		*open = t.open
		stacks.Put(open)
	}()
	document, err := t.read(eagerly)
	if err != nil {
		return Value{}, err
	}
	if _, err := t.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return Value{}, fmt.Errorf("data after the end of the JSON document at byte %d", t.dec.InputOffset())
	}
	if t.built != nil {
		t.built.total = t.values
	}
	return Value{from: &document}, nil
}

// split returns a text with its objects split to some depth, for more than one look at it.
func (v Value) split() Value {
	if l, ok := v.from.(list); ok {
		made := make(list, len(l))
		for i, element := range l {
			made[i] = element.split()
		}
		return Value{made}
	}
	t, ok := v.from.(*jsonText)
	if !ok || t.parts != nil {
		return v
	}
	made := *t
	t.decode(func(dec *jsontext.Decoder) (err error) {
		s := splitter{dec: dec, from: t.json, built: t.built}
		made, err = s.read(eagerly)
		return err
	})
	return Value{&made}
}

// eagerly is the depth to which objects are split at once: in a review, down to the fields of metadata and spec.
const eagerly = 4

// splitter splits a text.
type splitter struct {
	dec    *jsontext.Decoder
	from   []byte
	values int // that have begun
	built  *termCache
	open   []part // the members so far of all objects that are being read
	room   []part // for those of objects that are complete
}

// complete returns the members of an object, of which the first is at an index of open.
func (t *splitter) complete(first int) []part {
	members := t.open[first:]
	if len(t.room) < len(members) {
		t.room = make([]part, max(len(members), min(64, len(t.from)/16)))
	}
	made := t.room[:len(members):len(members)]
	t.room = t.room[len(members):]
	copy(made, members)
	t.open = t.open[:first]
	return made
}

// read reads the next value, and splits the objects in it to some depth.
func (t *splitter) read(depth int) (value jsonText, err error) {
	value.built = t.built
	if depth == 0 || t.dec.PeekKind() != '{' {
		value.json, err = t.readWhole()
		return value, err
	}
	if err := t.token(); err != nil {
		return value, err
	}
	start := int(t.dec.InputOffset()) - 1
	first := len(t.open)
	for t.dec.PeekKind() != '}' {
		name, err := t.scalar('"')
		if err != nil {
			return value, err
		}
		member, err := t.read(depth - 1)
		if err != nil {
			return value, err
		}
		t.open = append(t.open, part{unquoted(name), member})
	}
	value.parts = t.complete(first)
	err = t.token()
	end := int(t.dec.InputOffset())
	value.json = t.from[start:end:end]
	return value, err
}

// readWhole reads the next value without splitting it.
func (t *splitter) readWhole() ([]byte, error) {
	if kind := t.dec.PeekKind(); kind != '{' && kind != '[' {
		return t.scalar(kind)
	}
	around := t.dec.StackDepth()
	if err := t.token(); err != nil {
		return nil, err
	}
	start := t.dec.InputOffset() - 1
	for t.dec.StackDepth() > around {
		if err := t.token(); err != nil {
			return nil, err
		}
	}
	end := t.dec.InputOffset()
	return t.from[start:end:end], nil
}

// token reads the next token and checks it against the limits.
func (t *splitter) token() error {
	kind := t.dec.PeekKind()
	switch kind {
	case '{', '[', '}', ']':
	default:
		_, err := t.scalar(kind)
		return err
	}
	if _, err := t.dec.ReadToken(); err != nil {
		return err
	}
	if t.dec.StackDepth() > maxNesting {
		return fmt.Errorf("nested deeper than %d levels at byte %d", maxNesting, t.dec.InputOffset())
	}
	return t.count(kind == '{' || kind == '[')
}

// scalar reads the next string, number, true, false or null.
func (t *splitter) scalar(kind jsontext.Kind) ([]byte, error) {
	literal, err := readRaw(t.dec, t.from)
	if err == nil && kind == '0' {
		err = checkNumber(literal)
	}
	if err == nil {
		err = t.count(true)
	}
	return literal, err
}

// count counts values, including names of members: each becomes a term when a policy reads it.
func (t *splitter) count(begun bool) error {
	if begun {
		t.values++
	}
	if t.values > maxValues {
		return fmt.Errorf("more than %d values", maxValues)
	}
	return nil
}

// lenient is for text that was checked before.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// stacks are for splitters.
var stacks = sync.Pool{New: func() any { return new([]part) }}

var decoders = sync.Pool{New: func() any { return new(jsontext.Decoder) }}

func (t *jsonText) decode(read func(*jsontext.Decoder) error) {
	dec := decoders.Get().(*jsontext.Decoder)
	defer decoders.Put(dec)
	dec.Reset(bytes.NewBuffer(t.json), lenient)
	if err := read(dec); err != nil {
		panic(err) // it was checked before
	}
}

// readRaw returns the text of the next value.
func readRaw(dec *jsontext.Decoder, from []byte) ([]byte, error) {
	value, err := dec.ReadValue()
	end := int(dec.InputOffset())
	return from[end-len(value) : end : end], err
}

// unquoted returns the string of a checked literal, in place if possible.
func unquoted(quoted []byte) []byte {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1]
	}
	text, err := jsontext.AppendUnquote(nil, quoted)
	if err != nil {
		panic(err) // it was checked before
	}
	return text
}

// text returns the string of a string; "" for others.
func (t *jsonText) text() string {
	if t.kind() != '"' {
		return ""
	}
	return string(unquoted(bytes.TrimSpace(t.json)))
}

func (t *jsonText) kind() jsontext.Kind { return jsontext.Value(t.json).Kind() }

func (t *jsonText) member(name string) (found Value, ok bool) {
	t.walk(func(is []byte, v *jsonText) (more bool) {
		if ok = is != nil && string(is) == name; ok {
			found = Value{from: v}
		}
		return !ok
	})
	return found, ok
}

func (t *jsonText) each(visit func(name string, v Value)) {
	t.walk(func(name []byte, v *jsonText) bool {
		visit(string(name), Value{from: v})
		return true
	})
}

// walk visits the members of an object, or the elements of a list, as text; elements have no name.
func (t *jsonText) walk(visit func(name []byte, v *jsonText) (more bool)) {
	if kind := t.kind(); kind != '{' && kind != '[' {
		return
	}
	parts, known := t.parts, t.parts != nil
	if !known && t.built != nil {
		parts, known = t.built.partsOf(t)
	}
	if !known {
		t.readParts(visit)
		return
	}
	for i := range parts {
		if !visit(parts[i].name, &parts[i].value) {
			return
		}
	}
}

// readParts is walk for a text that is not split.
func (t *jsonText) readParts(visit func(name []byte, v *jsonText) (more bool)) {
	t.decode(func(dec *jsontext.Decoder) error {
		opening, err := dec.ReadToken()
		for more := true; err == nil && more && dec.PeekKind() != '}' && dec.PeekKind() != ']'; {
			var name []byte
			if opening.Kind() == '{' {
				if name, err = readRaw(dec, t.json); err != nil {
					return err
				}
				name = unquoted(name)
			}
			v := &jsonText{built: t.built}
			v.json, err = readRaw(dec, t.json)
			more = visit(name, v)
		}
		return err
	})
}

func (t *jsonText) whole() *ast.Term {
	if t.built == nil {
		return t.term()
	}
	return t.built.term(t)
}

func (t *jsonText) term() (term *ast.Term) {
	t.decode(func(dec *jsontext.Decoder) (err error) {
		term, err = readTerm(dec)
		return err
	})
	return term
}
