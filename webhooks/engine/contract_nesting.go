package engine

import (
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// mostNested limits the nesting of comprehensions, templates and bodies of every: each level doubles the time of OPA's compiler,
// which cannot be cancelled.
const mostNested = 6

// mostOpen limits how many braces of a text are open at one place. For each template string that does not end, OPA's parser has an error
// that copies a part of the text: 120 KB needed 5 GB of memory.
const mostOpen = 500

// tooManyOpen returns the line in which more than mostOpen braces are open, or 0. It also counts those in strings and comments, which
// usually are closed there.
func tooManyOpen(text string) (line int) {
	open := 0
	for i := range len(text) {
		switch text[i] {
		case '{':
			open++
		case '}':
			open = max(0, open-1)
		}
		if open > mostOpen {
			return 1 + strings.Count(text[:i], "\n")
		}
	}
	return 0
}

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
