package engine

import "github.com/open-policy-agent/opa/v1/ast"

// Most facts name fields of the request and do nothing else:
//
//	facts.vm := {"kind": "VirtualMachine", "name": input.request.object.spec.virtualMachineName, ...}
//
// They need no evaluation, only to be filled in.

// templates gives what a policy's facts are made from, by name, if all of them only need to be filled in; else nil.
func templates(pkg ast.Ref, modules []*ast.Module) map[string]*ast.Term {
	found := map[string]*ast.Term{}
	for _, m := range modules {
		for _, r := range m.Rules {
			if !m.Package.Path.Equal(pkg) || headName(r) != ruleFacts {
				continue
			}
			name := string(r.Head.Ref()[1].Value.(ast.String))
			if found[name] != nil || !r.Body.Equal(always) || !fillable(r.Head.Value) {
				return nil
			}
			found[name] = r.Head.Value
		}
	}
	return found
}

var (
	always  = ast.NewBody(ast.NewExpr(ast.BooleanTerm(true)))
	request = ast.MustParseRef("input.request")
)

// fillable tells whether a term consists of constants and of fields of the request that are named by constants.
func fillable(t *ast.Term) bool {
	switch v := t.Value.(type) {
	case ast.Ref:
		if len(v) <= len(request) || !v.HasPrefix(request) {
			return false
		}
		for _, part := range v[1:] {
			if _, constant := part.Value.(ast.String); !constant {
				return false
			}
		}
		return true
	case ast.Object:
		return !v.Until(func(key, value *ast.Term) bool { return !ast.IsConstant(key.Value) || !fillable(value) })
	default:
		return ast.IsConstant(v)
	}
}

// fill gives a template as it is for a request; nil if something that it names is not there.
func fill(t *ast.Term, in Value) *ast.Term {
	switch v := t.Value.(type) {
	case ast.Ref:
		return field(in, v[len(request):])
	case ast.Object:
		filled := make([][2]*ast.Term, 0, v.Len())
		missing := v.Until(func(key, value *ast.Term) bool {
			value = fill(value, in)
			filled = append(filled, [2]*ast.Term{key, value})
			return value == nil
		})
		if missing {
			return nil
		}
		return ast.ObjectTerm(filled...)
	default:
		return t
	}
}

// field gives what is at a path of names, nil if there is nothing.
func field(in Value, path ast.Ref) *ast.Term {
	for _, name := range path {
		var ok bool
		if in, ok = in.member(text(name)); !ok {
			return nil
		}
	}
	return in.orNull()
}

// fillAll makes the facts document; a fact that is undefined is not in it.
func fillAll(templates map[string]*ast.Term, in Value) *ast.Term {
	document := ast.NewObject()
	for name, t := range templates {
		if fact := fill(t, in); fact != nil {
			document.Insert(ast.StringTerm(name), fact)
		}
	}
	return ast.NewTerm(document)
}
