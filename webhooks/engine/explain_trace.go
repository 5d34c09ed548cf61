package engine

import (
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
)

const (
	// maxFrames limits the recorded frames of an evaluation.
	maxFrames = 200_000
	// maxStops limits the recorded failures of one expression.
	maxStops = 50
	// maxDepth limits the depth of rules that an explanation follows.
	maxDepth = 5
)

// trace records how far each rule got in an evaluation, and the values of the expressions at which it stopped.
type trace struct {
	tracer
	frames map[uint64]*frame
	rules  map[*ast.Rule][]*frame
	// most events are taken down, if it is not 0; then the evaluation is ended.
	most int
	end  func()
}

// frame is one evaluation of the body of a rule, a comprehension, a negation or an `every`.
type frame struct {
	rule     *ast.Rule // nil if it is no rule's
	row      string    // of a table of tests
	body     ast.Body
	done     bool // it held, once at least
	values   []*ast.Term
	furthest int // the expression at which it stopped, by its place in the body; -1 before it has
	stops    []*stop
	more     int      // stops that were not kept
	inner    []*frame // that were begun for the expression that is being evaluated
}

// stop is an expression that did not hold.
type stop struct {
	expr  *ast.Expr
	vars  map[ast.Var]*ast.Term
	inner []*frame
}

func newTrace() *trace {
	return &trace{frames: map[uint64]*frame{}, rules: map[*ast.Rule][]*frame{}}
}

// TraceEvent takes down an event.
func (t *trace) TraceEvent(e topdown.Event) {
	if t.most > 0 {
		if t.most--; t.most == 0 {
			t.end()
		}
	}
	if e.Op == topdown.EnterOp {
		t.enter(e)
		return
	}
	f := t.frames[e.QueryID]
	if f == nil {
		return
	}
	switch e.Op {
	case topdown.EvalOp:
		f.inner = nil
	case topdown.ExitOp:
		f.done = true
		if f.rule != nil {
			f.values = append(f.values, e.Plug(said(f.rule)))
		}
	case topdown.TestCaseOp: // the same body goes on for the next row
		if expr, ok := e.Node.(*ast.Expr); ok && f.rule != nil {
			next := &frame{rule: f.rule, row: rowOf(expr.Operand(0)), body: f.body, furthest: -1}
			t.frames[e.QueryID], t.rules[f.rule] = next, append(t.rules[f.rule], next)
		}
	case topdown.FailOp:
		if expr, ok := e.Node.(*ast.Expr); ok {
			f.stop(expr, e)
		}
	}
}

func (t *trace) enter(e topdown.Event) {
	if len(t.frames) >= maxFrames {
		return
	}
	f := &frame{furthest: -1}
	switch node := e.Node.(type) {
	case *ast.Rule:
		f.rule, f.body = node, node.Body
		t.rules[node] = append(t.rules[node], f)
	case ast.Body:
		f.body = node
	}
	t.frames[e.QueryID] = f
	if parent := t.frames[e.ParentID]; parent != nil {
		parent.inner = append(parent.inner, f)
	}
}

// stop remembers an expression that did not hold, unless the evaluation got further before.
func (f *frame) stop(expr *ast.Expr, e topdown.Event) {
	if expr.Index < f.furthest {
		return
	}
	if expr.Index > f.furthest {
		f.furthest, f.stops, f.more = expr.Index, nil, 0
	}
	if len(f.stops) == maxStops {
		f.more++
		return
	}
	s := &stop{expr: expr, vars: map[ast.Var]*ast.Term{}, inner: f.inner}
	ast.WalkVars(expr, func(v ast.Var) bool {
		if plugged := e.Plug(ast.NewTerm(v)); plugged != nil && plugged.IsGround() {
			s.vars[v] = plugged
		}
		return false
	})
	f.stops = append(f.stops, s)
}

// said is what a rule has for a value.
func said(r *ast.Rule) *ast.Term {
	if r.Head.Key != nil && r.Head.Value == nil {
		return r.Head.Key
	}
	return r.Head.Value
}

// said are the values that a rule had.
func (t *trace) said(r *ast.Rule) []Value {
	distinct := ast.NewSet()
	for _, f := range t.rules[r] {
		for _, v := range f.values {
			distinct.Add(v)
		}
	}
	return valueOf(ast.NewTerm(distinct)).Elements()
}

// unmet is where the rules stopped, none of which applied: the furthest that one of them got. It is nil if they were not asked.
func (s *explainer) unmet(rules []*ast.Rule) *Unmet {
	var frames []*frame
	for _, r := range rules {
		frames = append(frames, s.trace.rules[r]...)
	}
	return s.furthest(frames, maxDepth)
}

func (s *explainer) furthest(frames []*frame, depth int) *Unmet {
	best := furthest(frames)
	if best == nil || depth == 0 {
		return nil
	}
	return s.describe(best, depth)
}

// furthest is the frame that got furthest, of those that did not hold.
func furthest(frames []*frame) (best *frame) {
	for _, f := range frames {
		if f.done {
			continue
		}
		if f = f.innermost(); f != nil && (best == nil || f.furthest > best.furthest) {
			best = f
		}
	}
	return best
}

// innermost is the frame itself, or for one that has no rule and no expression of its own, such as that of an `every`, the one in
// it that stopped.
func (f *frame) innermost() *frame {
	if len(f.stops) > 0 && len(f.body) > 0 {
		return f
	}
	inner := slices.Clone(f.inner)
	for _, s := range f.stops {
		inner = append(inner, s.inner...)
	}
	for _, i := range inner {
		if !i.done {
			if found := i.innermost(); found != nil {
				return found
			}
		}
	}
	return nil
}

// describe puts where a frame stopped into the author's terms.
func (s *explainer) describe(f *frame, depth int) *Unmet {
	first := f.stops[0]
	statement := enclosing(f.body, first.expr)
	u := &Unmet{Place: placeOf(statement.Location), Text: written(statement), Kind: kindOf(first.expr), Passed: f.furthest}
	if part := written(first.expr); part != u.Text {
		u.Place, u.Part = placeOf(first.expr.Location), part
	}
	u.Values = s.values(f.body, first)
	seen := [][]NamedValue{u.Values}
	for _, other := range f.stops[1:] {
		values := s.values(f.body, other)
		if !slices.ContainsFunc(seen, func(v []NamedValue) bool { return sameValues(v, values) }) {
			seen = append(seen, values)
		}
	}
	if u.Others = len(seen) - 1; u.Others > 0 { // else it is not about what there are many of
		u.Others += f.more
	}
	if u.Kind != Holds {
		u.Because = s.because(first, depth-1)
	}
	return u
}

// because is where that stopped which an expression asks.
func (s *explainer) because(at *stop, depth int) *Unmet {
	f := s.below(at)
	if f == nil || depth == 0 {
		return nil
	}
	return s.describe(f, depth)
}

// below returns the frame that stopped an expression: one that was evaluated for it or, if OPA had cached the rule's result, one of an
// earlier evaluation of the rule.
func (s *explainer) below(at *stop) *frame {
	if f := furthest(at.inner); f != nil {
		return f
	}
	var frames []*frame
	ast.WalkRefs(at.expr, func(ref ast.Ref) bool {
		if !ref.HasPrefix(ast.DefaultRootRef) {
			return false
		}
		for _, r := range s.policy.compiler.GetRulesForVirtualDocument(ref.GroundPrefix()) {
			if len(r.Head.Args) == 0 {
				frames = append(frames, s.trace.rules[r]...)
			}
		}
		return false
	})
	if slices.ContainsFunc(frames, func(f *frame) bool { return f.done }) {
		return nil
	}
	return furthest(frames)
}

// enclosing is the expression as its author wrote it, of which the compiler has made one of several.
func enclosing(body ast.Body, expr *ast.Expr) *ast.Expr {
	widest := expr
	if expr.Location == nil {
		return widest
	}
	for _, e := range body {
		if l := e.Location; l != nil && l.File == expr.Location.File && l.Offset <= expr.Location.Offset &&
			l.Offset+len(l.Text) >= expr.Location.Offset+len(expr.Location.Text) && len(l.Text) > len(widest.Location.Text) {
			widest = e
		}
	}
	return widest
}

func written(e *ast.Expr) string {
	if e.Location == nil || len(e.Location.Text) == 0 {
		return e.String()
	}
	return string(e.Location.Text)
}

func kindOf(e *ast.Expr) UnmetKind {
	switch {
	case e.Negated:
		return Holds
	case strings.HasPrefix(written(e), "some "):
		return NoneSuch
	case e.IsEquality():
		if _, refers := e.Operand(1).Value.(ast.Ref); refers && isGeneratedVar(e.Operand(0)) {
			return Missing
		}
	}
	return NotTrue
}

// values are what an expression was asked with.
func (s *explainer) values(body ast.Body, at *stop) []NamedValue {
	var all []NamedValue
	add := func(name string, v NamedValue) {
		if v.Name = name; name != "" && !slices.ContainsFunc(all, func(other NamedValue) bool { return other.Name == name }) {
			all = append(all, v)
		}
	}
	ast.WalkTerms(at.expr, func(t *ast.Term) bool {
		switch v := t.Value.(type) {
		case ast.Var:
			if value := at.vars[v]; value != nil {
				add(s.nameOf(body, v, at.expr), NamedValue{Value: valueOf(value), Defined: true})
			}
		case ast.Ref:
			if ground, ok := s.groundOf(v, at); ok {
				if found, defined, err := s.value(ground); err == nil {
					add(s.refName(ground, len(ground) == len(v), t), NamedValue{Value: valueOf(found), Defined: defined})
				}
			}
			return false
		}
		return false
	})
	return all
}

// nameOf is what the author calls a variable, or the expression that the compiler has put one in place of; empty for one that has no
// name.
func (s *explainer) nameOf(body ast.Body, v ast.Var, asked *ast.Expr) string {
	if original, ok := s.policy.compiler.RewrittenVars[v]; ok && !original.IsGenerated() {
		if original.IsWildcard() {
			return ""
		}
		return string(original)
	}
	for _, e := range body {
		if assigns(e, v) && e != asked {
			return written(e)
		}
	}
	if v.IsGenerated() || v.IsWildcard() || strings.HasPrefix(string(v), ast.WildcardPrefix) {
		return ""
	}
	return string(v)
}

// assigns reports whether an expression assigns a value to a variable: an equality, or a call with the variable as its result.
func assigns(e *ast.Expr, v ast.Var) bool {
	switch operands := e.Operands(); {
	case e.IsEquality():
		return operands[0].Value.Compare(v) == 0
	case e.IsCall(): // of a builtin or a function, which have operands
		return operands[len(operands)-1].Value.Compare(v) == 0
	}
	return false
}

// refName returns a reference as in the source. whole is false for the beginning of a longer one.
func (s *explainer) refName(ref ast.Ref, whole bool, t *ast.Term) string {
	if whole && t.Location != nil && len(t.Location.Text) > 0 {
		return string(t.Location.Text)
	}
	if len(ref) == len(s.policy.pkg)+1 && ref.HasPrefix(s.policy.pkg) {
		return text(ref[len(s.policy.pkg)])
	}
	return ref.String()
}

// groundOf returns the reference with values for its variables, up to the first variable without one. ok is false if it cannot be
// evaluated by itself, as for a function.
func (s *explainer) groundOf(ref ast.Ref, at *stop) (ground ast.Ref, ok bool) {
	if !ref.HasPrefix(ast.InputRootRef) && !ref.HasPrefix(ast.DefaultRootRef) {
		return nil, false
	}
	if rules := s.policy.compiler.GetRulesForVirtualDocument(ref.GroundPrefix()); len(rules) > 0 && len(rules[0].Head.Args) > 0 {
		return nil, false
	}
	for i, part := range ref {
		if v, isVar := part.Value.(ast.Var); isVar && i > 0 {
			if part = at.vars[v]; part == nil {
				break
			}
		}
		ground = append(ground, part)
	}
	return ground, ground.IsGround()
}

func sameValues(a, b []NamedValue) bool {
	return slices.EqualFunc(a, b, func(x, y NamedValue) bool { return x.Name == y.Name && x.Value.Equal(y.Value) })
}
