package engine

import (
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
)

// literals are the modules, of a policy and its libraries, that are searched for the literal value of a term: the term itself, or
// the value of a local variable, a rule or a function.
type literals []*ast.Module

// resolve returns the literals that a term of a rule may stand for. The list may be incomplete.
func (l literals) resolve(r *ast.Rule, t *ast.Term) []*ast.Term {
	return l.follow(r, t, map[*ast.Term]bool{})
}

// follow visits each term once: the number of paths to it is the product of the rules on the way.
func (l literals) follow(r *ast.Rule, t *ast.Term, followed map[*ast.Term]bool) (found []*ast.Term) {
	if followed[t] {
		return nil
	}
	followed[t] = true
	if isLiteral(t) {
		return []*ast.Term{t}
	}
	var name ast.Ref
	switch v := t.Value.(type) {
	case ast.Var:
		if given := assigned(r, v); given != nil {
			return l.follow(r, given, followed)
		}
		name = ast.Ref{t}
	case ast.Ref:
		name = v
	case ast.Call:
		name, _ = v[0].Value.(ast.Ref)
	}
	for _, named := range l.rules(r.Module, name) {
		for ; named != nil; named = named.Else {
			if named.Head.Value != nil && named.Head.RuleKind() == ast.SingleValue {
				found = append(found, l.follow(named, named.Head.Value, followed)...)
			}
		}
	}
	return found
}

// assigned returns the value of a local variable, if the rule's body assigns it at the top level.
func assigned(r *ast.Rule, v ast.Var) *ast.Term {
	for _, e := range r.Body {
		if !e.Negated && (e.IsAssignment() || e.IsEquality()) && e.Operand(0).Value.Compare(v) == 0 {
			return e.Operand(1)
		}
	}
	return nil
}

// rules returns the rules that a name in a module refers to.
func (l literals) rules(in *ast.Module, name ast.Ref) (found []*ast.Rule) {
	if in == nil || len(name) == 0 || !name.IsGround() && len(name) > 1 {
		return nil
	}
	first, _ := name[0].Value.(ast.Var)
	full := in.Package.Path.Append(ast.StringTerm(string(first))).Concat(name[1:])
	if name.HasPrefix(ast.DefaultRootRef) {
		full = name
	}
	for _, i := range in.Imports {
		if i.Name() == first {
			path, _ := i.Path.Value.(ast.Ref) // as every import is
			full = path.Concat(name[1:])
		}
	}
	for _, m := range l {
		if len(full) != len(m.Package.Path)+1 || !full.HasPrefix(m.Package.Path) {
			continue
		}
		found = append(found, slices.DeleteFunc(slices.Clone(m.Rules), func(r *ast.Rule) bool {
			return len(r.Head.Ref()) != 1 || headName(r) != text(full[len(full)-1])
		})...)
	}
	return found
}
