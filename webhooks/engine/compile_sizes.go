package engine

import (
	"github.com/open-policy-agent/opa/v1/ast"
)

// A value that contains another one twice, which contains a third one twice, shares their memory. But OPA's type checker, and code
// that compares or iterates over values, visits every copy: forty such levels are a trillion parts, and none of these checks for
// cancellation. So before types are checked, every rule and variable gets a size: that of its type, written out. Arguments of
// functions and values of input count as one part, as in the type checker; values made from them are measured at run time: see
// [sizes.measured].

// mostParts limits the size of a type in addition to the policy's text, which may be a long table. Shipped policies have at most
// 500.
const mostParts = 10_000

// withSizes makes a compiler check sizes before types, and add measuring calls for values whose size is unknown until run time.
func withSizes(c *ast.Compiler) *ast.Compiler {
	var s *sizes
	return c.WithStageAfterID(ast.StageCheckRecursion, ast.CompilerStageDefinition{
		Name: "SallyportSizes", MetricName: "compile_stage_sallyport_sizes",
		Stage: func(c *ast.Compiler) *ast.Error {
			s = newSizes(c)
			return s.tooLarge()
		},
	}).WithStageAfterID(ast.StageCheckTypes, ast.CompilerStageDefinition{
		Name: "SallyportMeasured", MetricName: "compile_stage_sallyport_measured",
		Stage: func(c *ast.Compiler) *ast.Error {
			for r := range s.rules {
				s.instrument(r)
			}
			return nil
		},
	})
}

// sizes has the number of parts of types.
type sizes struct {
	compiled *ast.Compiler
	rules    map[*ast.Rule]float64
	vars     map[ast.Var]float64 // of the current rule
	input    float64
	most     float64
	at       *ast.Location
	err      *ast.Error
}

func newSizes(c *ast.Compiler) *sizes {
	s := &sizes{compiled: c, rules: map[*ast.Rule]float64{}, input: 1, most: mostParts}
	written := ast.NewGenericVisitor(func(any) bool { s.most++; return false })
	for _, m := range c.Modules {
		written.Walk(m)
	}
	return s
}

// tooLarge returns an error for the first rule whose type, or that of a variable in it, is too large.
func (s *sizes) tooLarge() *ast.Error {
	sorted, _ := s.compiled.Graph.Sort() // dependencies come first; cycles were excluded before
	for _, node := range sorted {
		if r := node.(*ast.Rule); s.err == nil {
			s.rule(r)
		}
	}
	return s.err
}

func (s *sizes) rule(r *ast.Rule) {
	s.vars, s.at = map[ast.Var]float64{}, r.Location
	s.body(r.Body)
	s.at = r.Location
	size := 0.0
	for _, part := range r.Head.Ref()[1:] {
		size += s.sizeOf(part)
	}
	for _, part := range append(ast.Args{r.Head.Key, r.Head.Value}, r.Head.Args...) {
		if part != nil {
			size += s.sizeOf(part)
		}
	}
	s.rules[r] = s.checkSize(size)
}

// checkSize records an error if size is too large, and returns size.
func (s *sizes) checkSize(size float64) float64 {
	if size > s.most && s.err == nil {
		s.err = ast.NewError(ast.CompileErr, s.at, "this repeats other values so often that it would have more than %.0f parts if it were written out: "+
			"name each value once, or look up what is needed of it instead of putting it together", s.most)
	}
	return size
}

// body visits expressions in the order of evaluation.
func (s *sizes) body(body ast.Body) {
	for _, e := range body {
		if s.err == nil {
			s.expr(e)
		}
	}
}

func (s *sizes) expr(e *ast.Expr) {
	if e.Location != nil {
		s.at = e.Location
	}
	defer func(before float64) { s.input = before }(s.input)
	for _, w := range e.With {
		s.input += s.sizeOf(w.Value)
	}
	switch terms := e.Terms.(type) {
	case *ast.Term:
		s.sizeOf(terms)
	case *ast.Every:
		size := s.sizeOf(terms.Domain)
		for _, v := range []*ast.Term{terms.Key, terms.Value} {
			if v != nil {
				s.bind(v, size)
			}
		}
		s.body(terms.Body)
	case []*ast.Term:
		if operands := e.Operands(); e.IsEquality() {
			left, right := s.sizeOf(operands[0]), s.sizeOf(operands[1])
			s.bind(operands[0], right)
			s.bind(operands[1], left)
		} else {
			s.call(e.Operator(), operands)
		}
	case *ast.Not:
		s.body(terms.Body)
	case *ast.LogicalAnd:
		s.body(terms.Lhs)
		s.body(terms.Rhs)
	case *ast.LogicalOr:
		s.body(terms.Lhs)
		s.body(terms.Rhs)
	}
}

// call returns the size of a call: builtins have small types, functions those of their values.
func (s *sizes) call(operator ast.Ref, operands []*ast.Term) {
	for _, o := range operands {
		s.sizeOf(o)
	}
	size := s.sizeOfRules(s.compiled.GetRulesExact(operator))
	for _, o := range operands {
		s.bind(o, size)
	}
}

// bind sets the size of a term's variables without a size to that of the value that the term equals.
func (s *sizes) bind(t *ast.Term, size float64) {
	switch v := t.Value.(type) {
	case ast.Var:
		if _, known := s.vars[v]; !known && !v.Equal(ast.InputRootDocument.Value) {
			s.vars[v] = s.checkSize(size)
		}
	case *ast.Array:
		v.Foreach(func(part *ast.Term) { s.bind(part, size) })
	case ast.Object:
		v.Foreach(func(key, value *ast.Term) { s.bind(key, size); s.bind(value, size) })
	}
}

// sizeOf returns the size of a term; a variable without one counts as one part.
func (s *sizes) sizeOf(t *ast.Term) float64 {
	size := 1.0
	add := func(part *ast.Term) { size += s.sizeOf(part) }
	switch v := t.Value.(type) {
	case ast.Var:
		if v.Equal(ast.InputRootDocument.Value) {
			return s.input
		}
		return max(1, s.vars[v])
	case ast.Ref:
		return s.ref(v)
	case *ast.Array:
		v.Foreach(add)
	case ast.Set:
		v.Foreach(add)
	case ast.Object:
		v.Foreach(func(key, value *ast.Term) { add(key); add(value) })
	case *ast.ArrayComprehension:
		s.body(v.Body)
		add(v.Term)
	case *ast.SetComprehension:
		s.body(v.Body)
		add(v.Term)
	case *ast.ObjectComprehension:
		s.body(v.Body)
		add(v.Key)
		add(v.Value)
	case ast.Call:
		for _, part := range v[1:] {
			add(part)
		}
		size += s.sizeOfRules(s.compiled.GetRulesExact(v[0].Value.(ast.Ref)))
	}
	return s.checkSize(size)
}

// ref returns the size of the value that a reference starts from: a part of it is no larger. It binds variables that have no size
// yet.
func (s *sizes) ref(ref ast.Ref) float64 {
	var size float64
	if ref[0].Equal(ast.DefaultRootDocument) {
		size = s.sizeOfRules(s.compiled.GetRulesDynamicWithOpts(ref, ast.RulesOptions{IncludeHiddenModules: true}))
	} else {
		size = s.sizeOf(ref[0])
	}
	for _, part := range ref[1:] {
		s.bind(part, size)
		s.sizeOf(part)
	}
	return size
}

// sizeOfRules returns the size of the type that the values of several rules have together.
func (s *sizes) sizeOfRules(rules []*ast.Rule) float64 {
	size := 1.0
	for _, first := range rules {
		for r := first; r != nil; r = r.Else {
			if own := s.rules[r]; own > 1 {
				size += own
			}
		}
	}
	return size
}
