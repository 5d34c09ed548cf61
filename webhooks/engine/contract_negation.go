package engine

import (
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
)

// `not f(input.x)` does not hold when input.x is missing: Rego evaluates arguments before the negation, and an undefined argument
// makes the whole body undefined. A denial with such a body vanishes for the very requests that lack the field, and its
// instrumented rule with it. Only a plain reference, or a comparison of plain references with ==, can be negated safely.

// negationCheck rejects negated calls on data that may be missing.
type negationCheck struct {
	authored ast.VarSet // rules of the package and imports, as opposed to variables
	errs     *CompileErrors
}

// checkNegations checks a module. beside are the modules of the same package.
func checkNegations(m *ast.Module, beside []*ast.Module, errs *CompileErrors) {
	n := negationCheck{authored: knownIn(m, ruleNames(m.Package.Path, beside)), errs: errs}
	ast.WalkExprs(m, func(e *ast.Expr) bool {
		if e.Negated && n.undefinedIfMissing(e) {
			n.errs.add(e.Location, "`%s` is undefined, not true, if an argument is missing: "+
				"put the condition into a rule and negate that rule", e)
		}
		return false
	})
}

func (n negationCheck) undefinedIfMissing(e *ast.Expr) bool {
	if t, ok := e.Terms.(*ast.Term); ok {
		return n.insideMayBeMissing(t)
	}
	if !e.IsCall() {
		return false
	}
	look := n.mayBeMissing
	if e.IsEquality() || e.Operator().Equal(ast.Equal.Ref()) {
		look = n.insideMayBeMissing
	}
	return slices.ContainsFunc(e.Operands(), look)
}

// insideMayBeMissing checks the operands inside a reference; a missing reference itself is what the negation tests.
func (n negationCheck) insideMayBeMissing(t *ast.Term) bool {
	if ref, ok := t.Value.(ast.Ref); ok {
		return slices.ContainsFunc(ref[1:], n.mayBeMissing)
	}
	return n.mayBeMissing(t)
}

// mayBeMissing reports whether a term needs something that request, facts or parameters may lack. Comprehensions and template
// strings always have a value.
func (n negationCheck) mayBeMissing(t *ast.Term) bool {
	missing := false
	look := func(part *ast.Term) { missing = missing || n.mayBeMissing(part) }
	switch v := t.Value.(type) {
	case ast.Ref:
		return n.fromOutside(v) || slices.ContainsFunc(v[1:], n.mayBeMissing)
	case ast.Call:
		return slices.ContainsFunc(v[1:], n.mayBeMissing)
	case ast.Set:
		v.Foreach(look)
	case *ast.Array:
		v.Foreach(look)
	case ast.Object:
		v.Foreach(func(key, value *ast.Term) { look(key); look(value) })
	}
	return missing
}

// fromOutside reports whether a reference is to data that the author did not write (input, parameters, members of a variable)
// rather than to a rule.
func (n negationCheck) fromOutside(ref ast.Ref) bool {
	if ref.HasPrefix(ast.InputRootRef) || ref.HasPrefix(dataParameters) {
		return true
	}
	head, ok := ref[0].Value.(ast.Var)
	return ok && head != ast.DefaultRootDocument.Value && !n.authored.Contains(head)
}
