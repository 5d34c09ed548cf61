package engine

import "github.com/open-policy-agent/opa/v1/ast"

// mostNested limits the nesting of comprehensions, templates and bodies of every: each level doubles the time of OPA's compiler,
// which cannot be cancelled.
const mostNested = 6

// tooDeep returns the place of an expression that is nested too deeply, or nil.
func tooDeep(module *ast.Module) *ast.Location { return findTooDeep(module, nil, mostNested) }

func findTooDeep(outer any, at *ast.Location, left int) (found *ast.Location) {
	ast.NewGenericVisitor(func(inner any) bool {
		switch inner := inner.(type) {
		case *ast.Term:
			at = inner.Location
		case *ast.Expr:
			at = inner.Location
		}
		switch {
		case found != nil:
			return true
		case inner == outer || !encloses(inner):
			return false
		case left == 0:
			found = at
		default:
			found = findTooDeep(inner, at, left-1)
		}
		return true
	}).Walk(outer)
	return found
}

func encloses(node any) bool {
	switch node.(type) {
	case *ast.ArrayComprehension, *ast.SetComprehension, *ast.ObjectComprehension, *ast.Every, *ast.TemplateString:
		return true
	}
	return false
}
