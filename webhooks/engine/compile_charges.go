package engine

import (
	"github.com/open-policy-agent/opa/v1/ast"

	"sallyport.dev/sallyport/webhooks/engine/builtins"
)

// A product of two lists, by an oversight, makes gigabytes before the deadline. So the compiler adds calls that charge the elements of
// comprehensions, and of rules with many values, to the evaluation: what it makes is limited, with the results of builtins. A comprehension
// that only picks from one list is charged when it is complete. Any other comprehension can have nested iterations, and is charged element by
// element.
//
//	pairs := [[x, y] | some x in input.request.list; some y in input.request.list]
//
// becomes
//
//	pairs := [[x, y] | some x in input.request.list; some y in input.request.list; internal.sallyport_made(288, null)]

// withCharges makes a compiler add these calls.
func withCharges(c *ast.Compiler) *ast.Compiler {
	return c.WithStageAfterID(ast.StageCheckTypes, ast.CompilerStageDefinition{
		Name: "SallyportCharges", MetricName: "compile_stage_sallyport_charges",
		Stage: func(c *ast.Compiler) *ast.Error {
			for _, m := range c.Modules {
				ast.WalkRules(m, func(r *ast.Rule) bool {
					chargeRule(r)
					return false
				})
			}
			return nil
		},
	})
}

// chargeRule adds charging calls to a rule.
func chargeRule(r *ast.Rule) {
	bound := variables(r.Head.Args)
	if many := r.Head.RuleKind() == ast.MultiValue || !r.Head.Ref().IsGround(); many {
		r.Body = charging(r.Body, bound, nil, headOf(r)...)
	} else {
		r.Body = chargingWithin(r.Body, bound)
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

// charging returns a body with charging calls in it and, unless the body only picks, one for each element. The heads belong to the
// comprehension of, or to a rule if that is nil.
func charging(body ast.Body, bound ast.VarSet, of ast.Value, heads ...*ast.Term) ast.Body {
	made := chargingWithin(body, bound)
	if !picks(body, bound, heads...) {
		made.Append(charge(builtins.Element(of, heads...), ast.InternedNullTerm, body[len(body)-1].Location))
	}
	return made
}

// chargingWithin returns a body in which comprehensions are charged. The variables in bound have their values before it.
func chargingWithin(body ast.Body, bound ast.VarSet) ast.Body {
	bound = bound.Copy()
	made := make(ast.Body, 0, len(body))
	for _, e := range body {
		ast.WalkClosures(e, func(closure any) bool {
			switch c := closure.(type) {
			case *ast.ArrayComprehension:
				c.Body = charging(c.Body, bound, c, c.Term)
			case *ast.SetComprehension:
				c.Body = charging(c.Body, bound, c, c.Term)
			case *ast.ObjectComprehension:
				c.Body = charging(c.Body, bound, c, c.Key, c.Value)
			case *ast.Every:
				c.Body = chargingWithin(c.Body, bound)
			case *ast.Not:
				c.Body = chargingWithin(c.Body, bound)
			case *ast.LogicalAnd:
				c.Lhs, c.Rhs = chargingWithin(c.Lhs, bound), chargingWithin(c.Rhs, bound)
			case *ast.LogicalOr:
				c.Lhs, c.Rhs = chargingWithin(c.Lhs, bound), chargingWithin(c.Rhs, bound)
			}
			return true // its closures are done already
		})
		made.Append(e)
		if e.IsEquality() && !e.Negated {
			for _, side := range [][2]*ast.Term{{e.Operand(0), e.Operand(1)}, {e.Operand(1), e.Operand(0)}} {
				if _, name := side[0].Value.(ast.Var); name && whole(side[1], bound) {
					made.Append(charge(builtins.Element(side[1].Value, headsOf(side[1])...), side[0], e.Location))
				}
			}
		}
		bound.Update(variables(e))
	}
	return made
}

// whole reports whether a term is a comprehension that is charged when it is complete.
func whole(t *ast.Term, bound ast.VarSet) bool {
	switch v := t.Value.(type) {
	case *ast.ArrayComprehension:
		return picks(v.Body, bound, headsOf(t)...)
	case *ast.SetComprehension:
		return picks(v.Body, bound, headsOf(t)...)
	case *ast.ObjectComprehension:
		return picks(v.Body, bound, headsOf(t)...)
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

// charge returns a call that charges for one element, or for all elements of a value.
func charge(bytes int, elements *ast.Term, at *ast.Location) *ast.Expr {
	e := ast.NewExpr([]*ast.Term{ast.NewTerm(builtins.Made), ast.InternedTerm(bytes), elements})
	e.Generated, e.Location = true, at
	return e
}
