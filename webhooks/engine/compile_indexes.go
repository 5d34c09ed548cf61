package engine

import (
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Unindexed are the places at which a rule compares a field of the objects of a fact that is a whole list with something of the request: with
// an index of the field, only the objects that have the value would be read. The messages are the names of the facts and the fields, such as
// "facts.all data.host". Comparisons in functions that get the object, and with what a rule has made of the request, are not found.
func (p *Policy) Unindexed() CompileErrors { return p.unindexed }

// findUnindexed finds the places in the modules as they were written.
func (p *Policy) findUnindexed(modules []*ast.Module) {
	lists := p.wholeLists(modules)
	if len(lists) == 0 {
		return
	}
	for _, m := range modules {
		ast.WalkBodies(m, func(b ast.Body) bool {
			for _, e := range b {
				for _, place := range unindexedIn(e, elementsIn(b), lists) {
					if !slices.Contains(p.unindexed, place) {
						p.unindexed = append(p.unindexed, place)
					}
				}
			}
			return false
		})
	}
}

// wholeLists returns the names of the facts that are lists of all objects of a kind, as far as their queries are written as objects.
func (p *Policy) wholeLists(modules []*ast.Module) map[string]bool {
	lists := map[string]bool{}
	for _, m := range modules {
		for _, r := range m.Rules {
			if !m.Package.Path.Equal(p.pkg) || headName(r) != ruleFacts {
				continue
			}
			if query, ok := r.Head.Value.Value.(ast.Object); ok && query.Get(ast.StringTerm("fields")) == nil && query.Get(ast.StringTerm("name")) == nil {
				lists[text(r.Head.Ref()[1])] = true
			}
		}
	}
	return lists
}

// elementsIn returns the variables of a body that iterate over a fact, with its name.
func elementsIn(b ast.Body) map[ast.Var]string {
	elements := map[ast.Var]string{}
	for _, e := range b {
		var element, list *ast.Term
		switch t := e.Terms.(type) {
		case *ast.SomeDecl: // some x in list
			if call, ok := t.Symbols[0].Value.(ast.Call); ok && len(call) == 3 {
				element, list = call[1], call[2]
			}
		case []*ast.Term: // x := list[_]
			if len(t) == 3 && e.IsAssignment() {
				element, list = t[1], t[2]
			}
		}
		if element == nil {
			continue
		}
		x, isVar := element.Value.(ast.Var)
		ref, isRef := list.Value.(ast.Ref)
		if isVar && isRef && ref.HasPrefix(inputFacts) && len(ref) > 2 {
			elements[x] = text(ref[2])
		}
	}
	return elements
}

// unindexedIn returns the places of an expression, which is an equality of a field with something else.
func unindexedIn(e *ast.Expr, elements map[ast.Var]string, lists map[string]bool) (places CompileErrors) {
	if e.Negated || !e.IsEquality() && e.Operator().String() != ast.Equal.Name {
		return nil
	}
	for i, side := range e.Operands() {
		ref, ok := side.Value.(ast.Ref)
		if !ok {
			continue
		}
		x, _ := ref[0].Value.(ast.Var)
		name, is := elements[x]
		field, constant := fieldOf(ref[1:])
		if is && constant && lists[name] && ofRequest(e.Operand(1-i)) {
			places = append(places, CompileError{
				File: e.Location.File, Row: e.Location.Row, Col: e.Location.Col, Message: ruleFacts + "." + name + " " + field,
			})
		}
	}
	return places
}

// fieldOf returns a path of constants as that of an index.
func fieldOf(path ast.Ref) (string, bool) {
	var names []string
	for _, t := range path {
		name, ok := t.Value.(ast.String)
		if !ok {
			return "", false
		}
		names = append(names, string(name))
	}
	field := strings.Join(names, ".")
	return field, isPath(field) && strings.Count(field, ".") == len(names)-1
}

// ofRequest reports whether a term is of the request, or made of it in place.
func ofRequest(t *ast.Term) (is bool) {
	ast.WalkRefs(t, func(r ast.Ref) bool {
		is = is || r.HasPrefix(request)
		return is
	})
	return is
}
