package engine

import (
	"github.com/open-policy-agent/opa/v1/ast"

	"sallyport.dev/sallyport/webhooks/engine/builtins"
)

// The size of a value that grows with the input is not known at compile time: a comprehension that puts a value beside each element
// of a list, a function that does so with its argument, a rule with many values. So the compiler adds calls that measure such
// values as soon as they exist. A value that is too large ends the evaluation.
//
//	x := [input.request | some _ in input.request.list]
//
// is followed by
//
//	internal.sallyport_measured(x)
//
// The elements of comprehensions and of rules with many values count against the memory limit of the evaluation, like the results
// of builtins. A comprehension that only picks from one list is charged when it is complete. Any other comprehension can have
// nested iterations, which only the deadline would limit. So it is charged element by element. The comprehension above becomes
//
//	x := [input.request | some _ in input.request.list; internal.sallyport_made(80, null)]

// instrument adds measuring calls to a rule for each value that can grow, where a variable is bound to it.
func (s *sizes) instrument(r *ast.Rule) {
	bound := variables(r.Head.Args)
	if many := r.Head.RuleKind() == ast.MultiValue || !r.Head.Ref().IsGround(); many {
		r.Body = s.charging(r.Body, bound, nil, headOf(r)...)
	} else {
		r.Body = s.measuring(r.Body, bound)
	}
	if len(r.Head.Args) > 0 && s.rules[r] > 1+float64(len(r.Head.Args)) && !r.Head.Value.IsGround() {
		r.Body.Append(measure(r.Head.Value, r.Location))
	}
}

// headOf returns the terms of each value of a rule.
func headOf(r *ast.Rule) (terms []*ast.Term) {
	terms = append(terms, r.Head.Ref()[1:]...)
	for _, t := range []*ast.Term{r.Head.Key, r.Head.Value} {
		if t != nil {
			terms = append(terms, t)
		}
	}
	return terms
}

// charging returns a body with measuring calls and, unless the body only picks, a call that charges for each element. The heads
// belong to the comprehension of, or to a rule if that is nil.
func (s *sizes) charging(body ast.Body, bound ast.VarSet, of ast.Value, heads ...*ast.Term) ast.Body {
	made := s.measuring(body, bound)
	if !picks(body, bound, heads...) {
		made.Append(charge(builtins.Element(of, heads...), ast.InternedNullTerm, body[len(body)-1].Location))
	}
	return made
}

// measuring returns a body with measuring calls. The variables in bound have their values before it.
func (s *sizes) measuring(body ast.Body, bound ast.VarSet) ast.Body {
	bound = bound.Copy()
	made := make(ast.Body, 0, len(body))
	for _, e := range body {
		ast.WalkClosures(e, func(closure any) bool {
			switch c := closure.(type) {
			case *ast.ArrayComprehension:
				c.Body = s.charging(c.Body, bound, c, c.Term)
			case *ast.SetComprehension:
				c.Body = s.charging(c.Body, bound, c, c.Term)
			case *ast.ObjectComprehension:
				c.Body = s.charging(c.Body, bound, c, c.Key, c.Value)
			case *ast.Every:
				c.Body = s.measuring(c.Body, bound)
			case *ast.Not:
				c.Body = s.measuring(c.Body, bound)
			case *ast.LogicalAnd:
				c.Lhs, c.Rhs = s.measuring(c.Lhs, bound), s.measuring(c.Rhs, bound)
			case *ast.LogicalOr:
				c.Lhs, c.Rhs = s.measuring(c.Lhs, bound), s.measuring(c.Rhs, bound)
			}
			return true // its closures are done already
		})
		made.Append(e)
		if e.IsEquality() && !e.Negated {
			for _, side := range [][2]*ast.Term{{e.Operand(0), e.Operand(1)}, {e.Operand(1), e.Operand(0)}} {
				if _, name := side[0].Value.(ast.Var); !name {
					continue
				}
				if s.grows(side[1], bound) {
					made.Append(measure(side[0], e.Location))
				} else if heads := headsOf(side[1]); heads != nil {
					made.Append(charge(builtins.Element(side[1].Value, heads...), side[0], e.Location))
				}
			}
		}
		bound.Update(variables(e))
	}
	return made
}

// grows reports whether a term is a comprehension that can be larger than what it iterates over, or all the values of a rule.
func (s *sizes) grows(t *ast.Term, bound ast.VarSet) bool {
	switch v := t.Value.(type) {
	case *ast.ArrayComprehension:
		return !picks(v.Body, bound, headsOf(t)...)
	case *ast.SetComprehension:
		return !picks(v.Body, bound, headsOf(t)...)
	case *ast.ObjectComprehension:
		return !picks(v.Body, bound, headsOf(t)...)
	case ast.Ref:
		for _, r := range s.several(v) {
			if name := r.Ref(); len(v) < len(name) || len(v) == len(name) && r.Head.RuleKind() == ast.MultiValue {
				return true
			}
		}
	}
	return false
}

// headsOf returns the terms of each element of a comprehension, nil for other terms.
func headsOf(t *ast.Term) []*ast.Term {
	switch v := t.Value.(type) {
	case *ast.ArrayComprehension:
		return []*ast.Term{v.Term}
	case *ast.SetComprehension:
		return []*ast.Term{v.Term}
	case *ast.ObjectComprehension:
		return []*ast.Term{v.Key, v.Value}
	}
	return nil
}

func (s *sizes) several(ref ast.Ref) []*ast.Rule {
	if !ref.HasPrefix(ast.DefaultRootRef) {
		return nil
	}
	return s.compiled.GetRulesDynamicWithOpts(ref, ast.RulesOptions{})
}

// picks reports whether a comprehension iterates over one value and yields only parts of it, so that its result is no larger.
func picks(body ast.Body, bound ast.VarSet, gives ...*ast.Term) bool {
	known, outside, goneThrough := bound.Copy(), bound.Copy(), 0
	for _, e := range body {
		vars := variables(e)
		named := vars.Diff(known)
		known.Update(vars)
		switch {
		case len(named) == 0: // a condition
		case hasSeveralSolutions(e, named):
			goneThrough++
		case len(vars.Intersect(outside)) > 0 || refersOutside(e):
			outside.Update(named)
		}
	}
	for _, t := range gives {
		if len(variables(t).Intersect(outside)) > 0 || refersOutside(t) {
			return false
		}
	}
	return goneThrough < 2
}

// variables returns those of a node, without those in closures and the names of documents.
func variables(node any) ast.VarSet {
	v := ast.NewVarVisitor().WithParams(ast.VarVisitorParams{SkipClosures: true, SkipRefCallHead: true})
	v.Walk(node)
	vars := v.Vars()
	for document := range ast.ReservedVars { // VarSet.Diff would copy all others, for every expression
		delete(vars, document)
	}
	return vars
}

// hasSeveralSolutions reports whether an expression can hold for several values of the variables that it names.
func hasSeveralSolutions(e *ast.Expr, named ast.VarSet) (found bool) {
	if b := ast.BuiltinMap[e.Operator().String()]; b != nil && b.Relation {
		return true
	}
	ast.WalkRefs(e, func(ref ast.Ref) bool {
		for _, part := range ref[1:] {
			found = found || len(variables(part).Intersect(named)) > 0
		}
		return found
	})
	return found
}

// refersOutside reports whether a node refers to documents or has a closure in it.
func refersOutside(node any) (found bool) {
	called := ast.Ref(nil)
	if e, ok := node.(*ast.Expr); ok && e.IsCall() {
		called = e.Operator()
	}
	ast.NewGenericVisitor(func(part any) bool {
		ref, refers := part.(ast.Ref)
		if refers && !ref.Equal(called) && (ref[0].Equal(ast.InputRootDocument) || ref[0].Equal(ast.DefaultRootDocument)) {
			found = true
		}
		found = found || encloses(part)
		return found
	}).Walk(node)
	return found
}

func measure(value *ast.Term, at *ast.Location) *ast.Expr {
	return generated(at, ast.NewTerm(builtins.Measured), value)
}

// charge returns a call that charges for one element, or for all elements of a value.
func charge(bytes int, elements *ast.Term, at *ast.Location) *ast.Expr {
	return generated(at, ast.NewTerm(builtins.Made), ast.InternedTerm(bytes), elements)
}

func generated(at *ast.Location, terms ...*ast.Term) *ast.Expr {
	e := ast.NewExpr(terms)
	e.Generated, e.Location = true, at
	return e
}
