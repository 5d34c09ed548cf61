package builtins

import (
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
	"github.com/open-policy-agent/opa/v1/types"
)

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
