package engine

import (
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
)

// `not f(input.x)` does not hold when input.x is missing: Rego evaluates arguments before the negation, and an argument
// without a value makes the whole body undefined. A denial written that way disappears for exactly the requests that lack
// what it asks about, and its instrumented rule with it. Only a plain reference, or a comparison of plain references with ==, is
// negated as it reads.

// negationCheck refuses negated calls on data that may be missing.
type negationCheck struct {
	authored ast.VarSet // rules of the package and imports: what the author wrote, as opposed to variables
	errs     *CompileErrors
}

// checkNegations looks at a module, of those that it has rules together with.
func checkNegations(m *ast.Module, beside []*ast.Module, errs *CompileErrors) {
	n := negationCheck{authored: knownIn(m, ruleNames(m.Package.Path, beside)), errs: errs}
	ast.WalkExprs(m, func(e *ast.Expr) bool {
		if e.Negated && n.silentIfMissing(e) {
			n.errs.add(e.Location, "`%s` is undefined, not true, if an argument is missing: "+
				"put the condition into a rule and negate that rule", e)
		}
		return false
	})
}

func (n negationCheck) silentIfMissing(e *ast.Expr) bool {
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

// insideMayBeMissing looks at what stands inside a reference; that it is missing itself is what is asked.
func (n negationCheck) insideMayBeMissing(t *ast.Term) bool {
	if ref, ok := t.Value.(ast.Ref); ok {
		return slices.ContainsFunc(ref[1:], n.mayBeMissing)
	}
	return n.mayBeMissing(t)
}

// mayBeMissing tells whether a term needs something that request, facts or parameters may lack. Comprehensions and template
// strings have a value in any case.
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

// fromOutside tells references to rules from those into data that the author did not write: input, parameters, and the
// members of a variable.
func (n negationCheck) fromOutside(ref ast.Ref) bool {
	if ref.HasPrefix(ast.InputRootRef) || ref.HasPrefix(dataParameters) {
		return true
	}
	head, ok := ref[0].Value.(ast.Var)
	return ok && head != ast.DefaultRootDocument.Value && !n.authored.Contains(head)
}
