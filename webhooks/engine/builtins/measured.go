package builtins

import (
	"fmt"
	"math"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
	"github.com/open-policy-agent/opa/v1/types"
)

// Measured is a builtin that ends the evaluation if a value is too large. Only the engine adds calls of it.
var Measured = ast.MustParseRef("internal.sallyport_measured")

// mostParts limits the parts of a value that an evaluation makes, counted with repetition, in addition to twice the parts of its
// input: values are compared part by part, and a comparison cannot be cancelled.
const mostParts = 1 << 18

// joins are the builtins whose result can have as many parts as all operands together, so that repeated calls double it. The first
// freeJoins calls of an evaluation are not measured.
const freeJoins = 8

var joins = map[string]bool{"array.concat": true, "object.union": true, "object.union_n": true, "or": true, "union": true}

func init() {
	ast.RegisterBuiltin(&ast.Builtin{Name: Measured.String(), Decl: types.NewFunction(types.Args(types.A), nil)})
	topdown.RegisterBuiltinFunc(Measured.String(), func(ctx topdown.BuiltinContext, operands []*ast.Term, iter func(*ast.Term) error) error {
		if err := checkParts(ctx, operands[0]); err != nil {
			return err
		}
		return iter(nil)
	})
}

// Made is a builtin that charges an evaluation for elements of a comprehension or a rule. Its operands are the size of an element,
// in bytes, and the value with the elements, or a scalar for one element. Only the engine adds calls of it.
var Made = ast.MustParseRef("internal.sallyport_made")

func init() {
	ast.RegisterBuiltin(&ast.Builtin{Name: Made.String(), Decl: types.NewFunction(types.Args(types.N, types.A), nil)})
	topdown.RegisterBuiltinFunc(Made.String(), func(ctx topdown.BuiltinContext, operands []*ast.Term, iter func(*ast.Term) error) error {
		each, _ := operands[0].Value.(ast.Number).Int()
		if err := charge(ctx.Context, cost{made: float64(each) * size(operands[1])}); err != nil {
			return stop(ctx, "", err)
		}
		return iter(nil)
	})
}

// scalar is the size of a number or a short text, in bytes.
const scalar = 64

// Element returns the size of an element of a comprehension or a rule, in bytes: its place and its value. The terms are the head of
// the comprehension or rule. of is nil for a rule.
func Element(of ast.Value, terms ...*ast.Term) int {
	place := inSet
	switch of.(type) {
	case *ast.ArrayComprehension:
		place = inList
	case *ast.ObjectComprehension:
		place = inObject
	}
	for _, t := range terms {
		place += scalar + Built(t)
	}
	return place
}

// Built returns the size of the lists, sets and objects in a term that each evaluation of the term makes, in bytes. The values of
// its variables and closures do not count.
func Built(t *ast.Term) (bytes int) {
	if t.IsGround() {
		return 0
	}
	switch v := t.Value.(type) {
	case *ast.Array:
		bytes = single + inList*v.Len()
		v.Foreach(func(part *ast.Term) { bytes += Built(part) })
	case ast.Set:
		bytes = single + inSet*v.Len()
		v.Foreach(func(part *ast.Term) { bytes += Built(part) })
	case ast.Object:
		bytes = single + inObject*v.Len()
		v.Foreach(func(key, value *ast.Term) { bytes += Built(key) + Built(value) })
	}
	return bytes
}

func checkParts(ctx topdown.BuiltinContext, value *ast.Term) error {
	if partsLeft(value, mostParts) >= 0 {
		return nil
	}
	most := meterOf(ctx.Context).mostParts()
	if partsLeft(value, most) >= 0 {
		return nil
	}
	return haltEvaluation(ctx, topdown.BuiltinErr, fmt.Sprintf("a value would have more than %d parts, because it repeats others", most))
}

// join checks the result of a joining builtin.
func (m *meter) join(ctx topdown.BuiltinContext, value *ast.Term) error {
	if m.joined++; m.joined <= freeJoins {
		return nil
	}
	return checkParts(ctx, value)
}

// mostParts returns the limit of this evaluation.
func (m *meter) mostParts() int {
	if m.most == 0 {
		m.most = mostParts
		if m.input != nil {
			m.most += 2 * (math.MaxInt32 - partsLeft(m.input, math.MaxInt32))
		}
	}
	return m.most
}

// haltEvaluation ends an evaluation: after an ordinary error it would continue and collect further results.
func haltEvaluation(ctx topdown.BuiltinContext, code, message string) error {
	return topdown.Halt{Err: &topdown.Error{Code: code, Location: ctx.Location, Message: message}}
}

// partsLeft subtracts the parts of a value from left; a negative result means too many.
func partsLeft(t *ast.Term, left int) int {
	left--
	part := func(t *ast.Term) bool {
		left = partsLeft(t, left)
		return left < 0
	}
	switch v := t.Value.(type) {
	case *ast.Array:
		for i := 0; i < v.Len() && left >= 0; i++ {
			left = partsLeft(v.Elem(i), left)
		}
	case ast.Set:
		v.Until(part)
	case ast.Object:
		v.Until(func(key, value *ast.Term) bool { return part(key) || part(value) })
	}
	return left
}
