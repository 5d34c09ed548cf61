package plan

import (
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"sallyport.dev/sallyport/webhooks/engine/builtins"
)

// builtin returns the result of a call; nil if it is undefined.
type builtin func(m *machine, operands []any) (any, error)

// errOperand means that an operand has a type that the builtin does not take.
var errOperand = errors.New("an operand of the wrong type")

// builtinNamed returns a builtin; nil if there is none of that name.
func builtinNamed(name string) builtin {
	if call := native[name]; call != nil {
		return call
	}
	if call, declared := topdown.GetBuiltin(name), ast.BuiltinMap[name]; call != nil && declared != nil {
		return foreign(call, declared)
	}
	return nil
}

// foreign returns a builtin of topdown.
func foreign(call topdown.BuiltinFunc, declared *ast.Builtin) builtin {
	return func(m *machine, operands []any) (any, error) {
		var all []any
		ctx := topdown.BuiltinContext{Context: m.ctx, Cancel: m.cancel}
		err := call(ctx, termsOf(operands), func(t *ast.Term) error {
			if t == nil { // it has no result
				t = ast.InternedTerm(true)
			}
			all = append(all, FromTerm(t))
			return nil
		})
		switch {
		case errors.As(err, &topdown.BuiltinEmpty{}):
			return nil, nil
		case err != nil:
			return nil, err
		case declared.Relation:
			return NewArray(all), nil
		case len(all) == 0:
			return nil, nil
		}
		return all[0], nil
	}
}

// native are the builtins that policies call often, without conversion of operands. They fail where topdown's fail.
var native map[string]builtin

func init() {
	native = map[string]builtin{
		"equal": test(func(a, b any) bool { return equal(a, b) }),
		"neq":   test(func(a, b any) bool { return !equal(a, b) }),
		"lt":    test(func(a, b any) bool { return compare(a, b) < 0 }),
		"lte":   test(func(a, b any) bool { return compare(a, b) <= 0 }),
		"gt":    test(func(a, b any) bool { return compare(a, b) > 0 }),
		"gte":   test(func(a, b any) bool { return compare(a, b) >= 0 }),

		"is_null": hasRank(rankNull), "is_boolean": hasRank(rankBoolean), "is_number": hasRank(rankNumber), "is_string": hasRank(rankString),
		"is_array": hasRank(rankArray), "is_object": hasRank(rankObject), "is_set": hasRank(rankSet),

		"startswith": ofTexts(strings.HasPrefix), "endswith": ofTexts(strings.HasSuffix), "contains": ofTexts(strings.Contains),
		"concat": concat, "internal.template_string": templateString, "count": count,
		"plus":              arithmetic("plus", func(a, b int) int { return a + b }),
		"minus":             arithmetic("minus", func(a, b int) int { return a - b }),
		"object.get":        objectGet,
		"object.keys":       objectKeys,
		"or":                union,
		"internal.member_2": member,
		"internal.member_3": func(_ *machine, operands []any) (any, error) {
			is := dot(operands[2], operands[0])
			return is != nil && equal(is, operands[1]), nil
		},
		builtins.Made.String(): charge,
	}
}

func test(holds func(a, b any) bool) builtin {
	return func(_ *machine, operands []any) (any, error) { return holds(operands[0], operands[1]), nil }
}

func hasRank(wanted int) builtin {
	return func(_ *machine, operands []any) (any, error) { return rank(operands[0]) == wanted, nil }
}

func ofTexts(holds func(a, b string) bool) builtin {
	return func(_ *machine, operands []any) (any, error) {
		a, ok := operands[0].(string)
		b, both := operands[1].(string)
		if !ok || !both {
			return nil, errOperand
		}
		return holds(a, b), nil
	}
}

// mostExact limits the integers that are added here: their sum is an int.
const mostExact = 1 << 62

// arithmetic is exact for integers. For anything else, as for sets, it calls topdown's.
func arithmetic(name string, of func(a, b int) int) builtin {
	other := foreign(topdown.GetBuiltin(name), ast.BuiltinMap[name])
	return func(m *machine, operands []any) (any, error) {
		a, ok := operands[0].(int)
		b, both := operands[1].(int)
		if !ok || !both || a >= mostExact || a <= -mostExact || b >= mostExact || b <= -mostExact {
			return other(m, operands)
		}
		return of(a, b), nil
	}
}

func count(_ *machine, operands []any) (any, error) {
	if text, ok := operands[0].(string); ok {
		return utf8.RuneCountInString(text), nil
	}
	if n, ok := size(operands[0]); ok {
		return n, nil
	}
	return nil, errOperand
}

func concat(m *machine, operands []any) (any, error) {
	separator, ok := operands[0].(string)
	if r := rank(operands[1]); !ok || r != rankArray && r != rankSet {
		return nil, errOperand
	}
	var texts []string
	length := 0
	Each(operands[1], func(_, e any) bool {
		var text string
		text, ok = e.(string)
		texts, length = append(texts, text), length+len(text)+len(separator)
		return ok
	})
	if !ok {
		return nil, errOperand
	}
	if err := m.meter.Charge(float64(length)); err != nil {
		return nil, err
	}
	return strings.Join(texts, separator), nil
}

func templateString(m *machine, operands []any) (any, error) {
	var b strings.Builder
	for _, part := range operands[0].(*Array).elements {
		if s, ok := part.(*Set); ok {
			if len(s.keys) == 0 {
				b.WriteString("<undefined>")
				continue
			}
			part = s.keys[0]
		}
		switch v := part.(type) {
		case string:
			b.WriteString(v)
		case int:
			b.WriteString(strconv.Itoa(v))
		default:
			b.WriteString(Term(v).String())
		}
		if err := m.meter.Charge(float64(b.Len())); err != nil {
			return nil, err
		}
	}
	return b.String(), nil
}

func objectGet(_ *machine, operands []any) (any, error) {
	if rank(operands[0]) != rankObject {
		return nil, errOperand
	}
	found := operands[0]
	if path := operands[1]; rank(path) == rankArray {
		Each(path, func(_, k any) bool {
			found = dot(found, k)
			return found != nil
		})
	} else {
		found = dot(found, path)
	}
	if found == nil {
		return operands[2], nil
	}
	return found, nil
}

func objectKeys(m *machine, operands []any) (any, error) {
	object, ok := open(operands[0]).(*Object)
	if !ok {
		return nil, errOperand
	}
	made := &Set{}
	for _, k := range object.keys {
		made.add(k)
	}
	return made, m.meter.Charge(float64(64 * len(made.keys)))
}

func union(m *machine, operands []any) (any, error) {
	a, ok := operands[0].(*Set)
	b, both := operands[1].(*Set)
	if !ok || !both {
		return nil, errOperand
	}
	made := &Set{}
	for _, e := range a.keys {
		made.add(e)
	}
	for _, e := range b.keys {
		made.add(e)
	}
	return made, m.meter.Charge(float64(64 * len(made.keys)))
}

func member(_ *machine, operands []any) (any, error) {
	if s, ok := operands[1].(*Set); ok {
		return s.has(operands[0]), nil
	}
	found := false
	Each(operands[1], func(_, v any) bool {
		found = equal(v, operands[0])
		return !found
	})
	return found, nil
}

// charge is the call that the engine adds for the elements of a comprehension.
func charge(m *machine, operands []any) (any, error) {
	n := 1
	if parts, ok := size(operands[1]); ok {
		n = parts
	}
	return true, m.meter.Charge(float64(operands[0].(int) * n))
}
