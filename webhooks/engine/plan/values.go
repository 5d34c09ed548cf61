package plan

import (
	"cmp"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// A value is nil (undefined), [Null], bool, string, int, [ast.Number] (of other numbers), *[Array], *[Object], *[Set] or [Document].
type (
	// Null is JSON's null.
	Null struct{}
	// Array is a list.
	Array struct{ elements []any }
	// Object maps values to values.
	Object struct{ table }
	// Set has each value once.
	Set struct{ table }
)

// Document is a JSON object or list that is converted only as far as it is read. It does not change.
type Document interface {
	// IsList reports whether it is a list.
	IsList() bool
	// Member returns the member of an object; nil if there is none.
	Member(name string) any
	// Open returns the object or list, whose members may be Documents.
	Open() any
	// Term returns all of it.
	Term() *ast.Term
}

// open returns a document as a value with members or elements, and other values as they are.
func open(v any) any {
	if d, ok := v.(Document); ok {
		return d.Open()
	}
	return v
}

// NewArray returns a list of values.
func NewArray(elements []any) *Array { return &Array{elements} }

// NewObject returns an object. Its keys must be different.
func NewObject(keys, values []any) *Object { return &Object{table{keys: keys, values: values}} }

// Get returns a member; nil if there is none.
func (o *Object) Get(key any) any {
	if i := o.find(key); i >= 0 {
		return o.values[i]
	}
	return nil
}

func (s *Set) add(v any) { s.put(v, nil) }

func (s *Set) has(v any) bool { return s.find(v) >= 0 }

// table has the keys of an object with their values, or the elements of a set.
type table struct {
	keys   []any
	values []any       // nil in a set
	at     map[key]int // once there are more than few
	sorted bool
}

const few = 8

func (t *table) find(k any) int {
	if len(t.keys) > few && t.at == nil {
		t.index()
	}
	if t.at == nil {
		return slices.IndexFunc(t.keys, func(other any) bool { return equal(other, k) })
	}
	if i, ok := t.at[keyOf(k)]; ok {
		return i
	}
	return -1
}

func (t *table) put(k, v any) {
	i := t.find(k)
	if i < 0 {
		i = len(t.keys)
		t.keys, t.sorted = append(t.keys, k), false
		if v != nil {
			t.values = append(t.values, v)
		}
		if t.at != nil {
			t.at[keyOf(k)] = i
		}
	} else if v != nil {
		t.values[i] = v
	}
}

func (t *table) index() {
	t.at = make(map[key]int, len(t.keys))
	for i, k := range t.keys {
		t.at[keyOf(k)] = i
	}
}

// sort orders the keys as Rego does.
func (t *table) sort() {
	if t.sorted {
		return
	}
	order := make([]int, len(t.keys))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return compare(t.keys[a], t.keys[b]) })
	t.keys = permuted(t.keys, order)
	if t.values != nil {
		t.values = permuted(t.values, order)
	}
	if t.sorted = true; t.at != nil {
		t.index()
	}
}

// freeze prepares a table for concurrent reading.
func (t *table) freeze() {
	t.sort()
	t.find(Null{}) // makes the index
}

func permuted(of []any, order []int) []any {
	made := make([]any, len(of))
	for i, j := range order {
		made[i] = of[j]
	}
	return made
}

// key identifies a value: equal values have the same.
type key struct {
	rank int
	text string
}

func keyOf(v any) key {
	v = open(v)
	k := key{rank: rank(v)}
	switch v := v.(type) {
	case string:
		k.text = v
	default:
		k.text = string(appendKey(nil, v))
	}
	return k
}

func appendKey(b []byte, v any) []byte {
	v = open(v)
	b = append(b, byte('0'+rank(v)))
	switch v := v.(type) {
	case bool:
		return strconv.AppendBool(b, v)
	case int:
		return strconv.AppendInt(b, int64(v), 10)
	case ast.Number:
		if exact, ok := new(big.Rat).SetString(string(v)); ok { // 1.0 is 1
			return append(b, exact.RatString()...)
		}
		return append(b, v...)
	case string:
		return strconv.AppendQuote(b, v)
	case *Array:
		for _, e := range v.elements {
			b = append(appendKey(b, e), ',')
		}
	case *Object:
		v.sort()
		for i, k := range v.keys {
			b = append(appendKey(append(appendKey(b, k), ':'), v.values[i]), ',')
		}
	case *Set:
		v.sort()
		for _, e := range v.keys {
			b = append(appendKey(b, e), ',')
		}
	}
	return append(b, ';')
}

// Ranks of types in the order of Rego.
const (
	rankNull = iota
	rankBoolean
	rankNumber
	rankString
	rankArray
	rankObject
	rankSet
)

func rank(v any) int {
	switch v := v.(type) {
	case bool:
		return rankBoolean
	case int, ast.Number:
		return rankNumber
	case string:
		return rankString
	case *Array:
		return rankArray
	case *Object:
		return rankObject
	case *Set:
		return rankSet
	case Document:
		if v.IsList() {
			return rankArray
		}
		return rankObject
	}
	return rankNull
}

// equal reports whether two values are the same.
func equal(a, b any) bool {
	switch x := a.(type) {
	case string:
		y, ok := b.(string)
		return ok && x == y
	case bool:
		y, ok := b.(bool)
		return ok && x == y
	case int:
		if y, ok := b.(int); ok {
			return x == y
		}
	}
	if rank(a) != rank(b) {
		return false
	}
	switch x := open(a).(type) {
	case *Array:
		return slices.EqualFunc(x.elements, open(b).(*Array).elements, equal)
	case *Object:
		y := open(b).(*Object)
		if len(x.keys) != len(y.keys) {
			return false
		}
		for i, k := range x.keys {
			if v := y.Get(k); v == nil || !equal(x.values[i], v) {
				return false
			}
		}
		return true
	case *Set:
		y := b.(*Set)
		return len(x.keys) == len(y.keys) && !slices.ContainsFunc(x.keys, func(e any) bool { return !y.has(e) })
	}
	return compare(a, b) == 0
}

// compare orders values as Rego does.
func compare(a, b any) int {
	a, b = open(a), open(b)
	if c := cmp.Compare(rank(a), rank(b)); c != 0 {
		return c
	}
	switch x := a.(type) {
	case bool:
		return cmp.Compare(truth(x), truth(b.(bool)))
	case string:
		return strings.Compare(x, b.(string))
	case int:
		if y, ok := b.(int); ok {
			return cmp.Compare(x, y)
		}
		return ast.NumberCompare(numberOf(a), numberOf(b))
	case ast.Number:
		return ast.NumberCompare(x, numberOf(b))
	case *Array:
		return slices.CompareFunc(x.elements, b.(*Array).elements, compare)
	case *Set:
		return compareKeys(&x.table, &b.(*Set).table)
	case *Object:
		return compareKeys(&x.table, &b.(*Object).table)
	}
	return 0
}

func compareKeys(a, b *table) int {
	a.sort()
	b.sort()
	for i := range min(len(a.keys), len(b.keys)) {
		if c := compare(a.keys[i], b.keys[i]); c != 0 {
			return c
		}
		if a.values != nil {
			if c := compare(a.values[i], b.values[i]); c != 0 {
				return c
			}
		}
	}
	return cmp.Compare(len(a.keys), len(b.keys))
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Number returns the number with a text.
func Number(text string) any {
	if n, err := strconv.Atoi(text); err == nil && text != "-0" {
		return n
	}
	return ast.Number(text)
}

func numberOf(v any) ast.Number {
	if n, ok := v.(int); ok {
		return ast.Number(strconv.Itoa(n))
	}
	return v.(ast.Number)
}

// dot returns the member of a value under a key; nil if there is none.
func dot(in, key any) any {
	switch x := in.(type) {
	case Document:
		if name, ok := key.(string); ok {
			return x.Member(name)
		}
		if !x.IsList() {
			return nil
		}
		return dot(x.Open(), key)
	case *Object:
		return x.Get(key)
	case *Array:
		if i, ok := key.(int); ok && i >= 0 && i < len(x.elements) {
			return x.elements[i]
		}
	case *Set:
		if i := x.find(key); i >= 0 {
			return x.keys[i]
		}
	}
	return nil
}

// size returns the number of elements or members.
func size(v any) (n int, ok bool) {
	switch x := open(v).(type) {
	case *Array:
		return len(x.elements), true
	case *Object:
		return len(x.keys), true
	case *Set:
		return len(x.keys), true
	}
	return 0, false
}

// Each visits the keys and values of a value with parts, in Rego's order, until visit returns false.
func Each(v any, visit func(key, value any) bool) {
	switch x := open(v).(type) {
	case *Array:
		for i, e := range x.elements {
			if !visit(i, e) {
				return
			}
		}
	case *Object:
		x.sort()
		for i, k := range x.keys {
			if !visit(k, x.values[i]) {
				return
			}
		}
	case *Set:
		x.sort()
		for _, e := range x.keys {
			if !visit(e, e) {
				return
			}
		}
	}
}

// merged returns two objects in one. Where both have a member that is no object, that of a stays.
func merged(a, b *Object) *Object {
	made := &Object{}
	Each(b, func(k, v any) bool {
		made.put(k, v)
		return true
	})
	Each(a, func(k, v any) bool {
		mine, isObject := open(v).(*Object)
		if other, both := open(made.Get(k)).(*Object); both && isObject {
			v = merged(mine, other)
		}
		made.put(k, v)
		return true
	})
	return made
}
