package engine

import (
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
)

// A rule has one value: if its definitions, or the solutions of a body, give several, OPA compares them as a whole and fails if two
// differ, even in a member that is not read. So such values count as read as a whole.

// compared reports whether the values of the rules of one name may be compared with each other.
func compared(compiled *ast.Compiler, rule *ast.Rule) bool {
	switch {
	case rule.Head.RuleKind() == ast.MultiValue:
		return false
	case len(rule.Head.Ref()) > 1: // a member of an object that other rules have members in
		return true
	}
	composite := 0
	for _, first := range compiled.GetRulesExact(rule.Ref()) {
		scalar := true
		for r := first; r != nil; r = r.Else {
			if severalSolutions(r) {
				return true
			}
			scalar = scalar && isScalar(r.Head.Value)
		}
		if !scalar && !first.Default {
			composite++
		}
	}
	return composite > 1
}

// severalSolutions reports whether the body of a compiled rule may hold in several ways: it looks up members by unbound variables,
// or calls a builtin with several results.
func severalSolutions(r *ast.Rule) (found bool) {
	known := followed{bound: ast.NewVarSet()}
	for _, parameter := range r.Head.Args {
		known.bind(parameter)
	}
	unknown := func(part *ast.Term) bool {
		vars := ast.NewVarVisitor()
		vars.Walk(part)
		return len(vars.Vars().Diff(known.bound)) > 0
	}
	for _, e := range r.Body {
		builtin := ast.BuiltinMap[e.Operator().String()]
		found = found || builtin != nil && builtin.Relation
		ast.NewGenericVisitor(func(node any) bool {
			if ref, ok := node.(ast.Ref); ok && !e.IsCall() || ok && !ref.Equal(e.Operator()) {
				found = found || slices.ContainsFunc(ref[1:], unknown)
			}
			return found || encloses(node)
		}).Walk(e)
		known.bind(e)
	}
	return found
}
