package engine

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"
)

// Value is an immutable JSON document. The zero Value is null.
type Value struct{ from source }

// source is a document in some representation. Only the parts that are read are converted to terms.
type source interface {
	kind() jsontext.Kind
	member(name string) (Value, bool)
	each(visit func(name string, v Value))
	whole() *ast.Term
}

// ParseValue parses one JSON document as [ParseText] does, and keeps nothing of the text.
func ParseValue(data []byte) (Value, error) {
	text, err := ParseText(data)
	if err != nil {
		return Value{}, err
	}
	return valueOf(text.all()), nil
}

// ValueOf converts decoded JSON: maps, slices, strings, numbers, booleans and nil.
func ValueOf(decoded any) (Value, error) {
	v, err := ast.InterfaceToValue(decoded)
	if err != nil {
		return Value{}, err
	}
	return valueOf(ast.NewTerm(v)), nil
}

// MarshalJSON returns the document as JSON.
func (v Value) MarshalJSON() ([]byte, error) {
	decoded, err := v.Decode()
	if err != nil {
		return nil, err
	}
	return json.Marshal(decoded)
}

// UnmarshalJSON parses one document, as [ParseValue] does.
func (v *Value) UnmarshalJSON(data []byte) error {
	parsed, err := ParseValue(data)
	*v = parsed
	return err
}

// Get returns the member key of an object; null if there is none.
func (v Value) Get(key string) Value {
	found, _ := v.member(key)
	return found
}

func (v Value) member(key string) (Value, bool) { return v.source().member(key) }

// IsNull reports whether the document is null.
func (v Value) IsNull() bool { return v.source().kind() == 'n' }

// IsText reports whether the document is a string.
func (v Value) IsText() bool { return v.source().kind() == '"' }

// IsList reports whether the document is a list.
func (v Value) IsList() bool { return v.source().kind() == '[' }

// IsBoolean reports whether the document is true or false.
func (v Value) IsBoolean() bool { return v.IsTrue() || v.source().kind() == 'f' }

// IsTrue reports whether the document is true.
func (v Value) IsTrue() bool { return v.source().kind() == 't' }

// IsObject reports whether the document is an object.
func (v Value) IsObject() bool { return v.source().kind() == '{' }

// Equal reports whether two documents are equal.
func (v Value) Equal(other Value) bool { return v.all().Value.Compare(other.all().Value) == 0 }

// Text returns the string of a string document; "" for others.
func (v Value) Text() string {
	if t, ok := v.from.(*jsonText); ok {
		return t.text()
	}
	if v.source().kind() != '"' {
		return ""
	}
	return text(v.orNull())
}

// number returns the text of a number.
func (v Value) number() ast.Number {
	if t, ok := v.from.(*jsonText); ok {
		return ast.Number(bytes.TrimSpace(t.json))
	}
	return v.orNull().Value.(ast.Number)
}

// Elements returns the elements of a list, or of a set that a policy made; none for other documents.
func (v Value) Elements() (all []Value) {
	if v.source().kind() == '[' {
		v.Each(func(_ string, element Value) { all = append(all, element) })
	}
	return all
}

// Texts returns the strings of a list, or of a set that a policy made.
func (v Value) Texts() (all []string) {
	for _, element := range v.Elements() {
		all = append(all, element.Text())
	}
	return all
}

// Each visits the members of an object, in no order, and the elements of a list, whose names are "".
func (v Value) Each(visit func(name string, v Value)) { v.source().each(visit) }

// Raw returns the text of a document that was made from text; nil for others. The caller must not change it.
func (v Value) Raw() []byte {
	if t, ok := v.from.(*jsonText); ok {
		return t.json
	}
	return nil
}

// Decode returns the document as maps, slices, strings, [json.Number], booleans and nil, for the caller to change.
func (v Value) Decode() (any, error) { return ast.JSON(v.all().Value) }

// all returns the whole document as a term, without the limits for policies: see termCache.
func (v Value) all() *ast.Term {
	if t, ok := v.from.(*jsonText); ok {
		return t.term()
	}
	return v.orNull()
}

func (v Value) orNull() *ast.Term { return v.source().whole() }

func (v Value) source() source {
	if v.from == nil {
		return (*inTerms)(ast.InternedNullTerm)
	}
	return v.from
}

// inTerms is a document as a term.
type inTerms ast.Term

// valueOf returns null if t is nil.
func valueOf(t *ast.Term) Value {
	if t == nil {
		return Value{}
	}
	return Value{from: (*inTerms)(t)}
}

func (t *inTerms) kind() jsontext.Kind {
	switch v := t.Value.(type) {
	case ast.Null:
		return 'n'
	case ast.Object:
		return '{'
	case *ast.Array, ast.Set:
		return '['
	case ast.String:
		return '"'
	case ast.Boolean:
		if v {
			return 't'
		}
		return 'f'
	default:
		return '0'
	}
}

func (t *inTerms) member(name string) (Value, bool) {
	object, ok := t.Value.(ast.Object)
	if !ok {
		return Value{}, false
	}
	member := object.Get(ast.StringTerm(name))
	return valueOf(member), member != nil
}

func (t *inTerms) each(visit func(name string, v Value)) {
	element := func(element *ast.Term) { visit("", valueOf(element)) }
	switch of := t.Value.(type) {
	case ast.Object:
		of.Foreach(func(name, member *ast.Term) { visit(text(name), valueOf(member)) })
	case *ast.Array:
		of.Foreach(element)
	case ast.Set:
		of.Foreach(element)
	}
}

func (t *inTerms) whole() *ast.Term { return (*ast.Term)(t) }

func readTerm(dec *jsontext.Decoder) (*ast.Term, error) {
	tok, err := dec.ReadToken()
	if err != nil {
		return nil, err
	}
	switch tok.Kind() {
	case 'n':
		return ast.InternedNullTerm, nil
	case 't', 'f':
		return ast.InternedTerm(tok.Bool()), nil
	case '"':
		return ast.StringTerm(tok.String()), nil
	case '0':
		return ast.NumberTerm(json.Number(tok.String())), nil
	case '[':
		elements, err := readTerms(dec)
		return ast.ArrayTerm(elements...), err
	default: // '{': the decoder lets no closing delimiter through where a value is due
		both, err := readTerms(dec)
		members := make([][2]*ast.Term, 0, len(both)/2)
		for member := range slices.Chunk(both, 2) {
			members = append(members, [2]*ast.Term(member))
		}
		return ast.ObjectTerm(members...), err
	}
}

// readTerms reads what follows an opening delimiter: elements, or alternating names and values.
func readTerms(dec *jsontext.Decoder) (all []*ast.Term, err error) {
	for kind := dec.PeekKind(); kind != ']' && kind != '}'; kind = dec.PeekKind() {
		t, err := readTerm(dec)
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	_, err = dec.ReadToken()
	return all, err
}

// Size returns the size of the document as text, in bytes: exact if it was made from text, otherwise approximate.
func (v Value) Size() int { return math.MaxInt - v.less(math.MaxInt) }

// Within reports whether the document as text has about that many bytes at most. It stops counting when it exceeds them.
func (v Value) Within(bytes int) bool {
	return v.less(bytes) >= 0
}

// less subtracts the document's size from bytes; negative if it is larger.
func (v Value) less(bytes int) int {
	if t, ok := v.from.(*jsonText); ok {
		return bytes - len(t.json)
	}
	switch v.source().kind() {
	case '{', '[':
		bytes -= 2
		v.Each(func(name string, v Value) {
			if bytes >= 0 {
				bytes = v.less(bytes - len(name) - 4)
			}
		})
		return bytes
	case '"':
		return bytes - len(v.Text())
	default:
		return bytes - 8
	}
}
