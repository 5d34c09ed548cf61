package engine

import (
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Most facts only name fields of the request:
//
//	facts.vm := {"kind": "VirtualMachine", "name": input.request.object.spec.virtualMachineName, ...}
//
// They need no evaluation, only to be filled in, which saves a sixth of the time of a decision.

var (
	always  = ast.NewBody(ast.NewExpr(ast.BooleanTerm(true)))
	request = ast.MustParseRef("input.request")
)

// templatesOf returns the templates of a policy's facts, by name, if all facts are templates; else nil.
func (a *accelerated) templatesOf(modules []*ast.Module) map[string]*ast.Term {
	made := map[string]*ast.Term{}
	for _, m := range modules {
		for _, r := range m.Rules {
			if !m.Package.Path.Equal(a.pkg) || headName(r) != ruleFacts {
				continue
			}
			name := text(r.Head.Ref()[1])
			if made[name] != nil || !r.Body.Equal(always) || !isTemplate(r.Head.Value) {
				return nil
			}
			made[name] = r.Head.Value
		}
	}
	return made
}

// isTemplate reports whether a term consists of constants and fields of the request.
func isTemplate(t *ast.Term) bool {
	switch v := t.Value.(type) {
	case ast.Ref:
		return len(v) > len(request) && v.HasPrefix(request) && !slices.ContainsFunc(v[len(request):], func(part *ast.Term) bool {
			_, name := part.Value.(ast.String)
			return !name
		})
	case ast.Object:
		fills := true
		v.Foreach(func(key, member *ast.Term) { fills = fills && ast.IsConstant(key.Value) && isTemplate(member) })
		return fills
	}
	return ast.IsConstant(t.Value)
}

// filled returns a template with the fields of a request filled in; false if one is missing.
func filled(t *ast.Term, in Value) (*ast.Term, bool) {
	switch v := t.Value.(type) {
	case ast.Ref:
		for _, name := range v[len(request):] {
			var there bool
			if in, there = in.member(text(name)); !there {
				return nil, false
			}
		}
		return in.orNull(), true
	case ast.Object:
		made, complete := make([][2]*ast.Term, 0, v.Len()), true
		v.Foreach(func(key, member *ast.Term) {
			member, there := filled(member, in)
			made, complete = append(made, [2]*ast.Term{key, member}), complete && there
		})
		if !complete {
			return nil, false
		}
		return ast.ObjectTerm(made...), true
	}
	return t, true
}

func undefined(fact string) error {
	e := errorf(InputNotUnderstood, "facts.%s is undefined for this request", fact)
	e.fact = fact
	return e
}
