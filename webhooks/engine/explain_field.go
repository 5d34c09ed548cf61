package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
)

const (
	// mostTraced bounds how much of an evaluation is looked at to name a field: who sends what no policy understands must not keep a
	// replica busy with that.
	mostTraced = 50_000
	// mostDocument is of how many bytes of input a field is named, and mostSought how many members are compared to find it.
	mostDocument, mostSought = 128 << 10, 1000
	// mostNamed is how many fields are named.
	mostNamed = 3
)

// nameField adds to an error that says that the input was not understood which member of it that is about, if that shows in time: the
// one in the expression at which valid_input, or the rule of the fact, stopped. Values are not shown: who asks may not know them.
func (p *Policy) nameField(ctx context.Context, in Input, facts map[string]Fact, err error) error {
	var e *Error
	if !errors.As(err, &e) || e.Cause != InputNotUnderstood || e.fact == "" && facts == nil && p.first.ask != nil { // a query says itself what it is about
		return err
	}
	if slices.Contains(p.second.facts, e.fact) { // what it is made of is not only in the request
		return err
	}
	asked, stopped := p.pkg.Append(ast.StringTerm(ruleValid)), p.rulesNamed(ruleValid)
	if e.fact != "" {
		asked, stopped = p.pkg.Append(ast.StringTerm(ruleFacts)), p.rulesNamed(ruleFacts, e.fact)
	}
	document := in.document(facts)
	if !document.Within(mostDocument) {
		return err
	}
	input := p.fast.input(document)
	done := make(chan []string, 1)
	p.fast.spawn(func() {
		var named []string
		defer func() { done <- named }()
		defer contain(new(error))
		s := p.explainer(ctx, input)
		s.trace.most = mostTraced
		if _, err := s.eval(asked); err == nil {
			named = s.fields(stopped)
		}
	})
	select {
	case named := <-done:
		if len(named) > 0 {
			e.Err = fmt.Errorf("%w: %s", e.Err, strings.Join(named, ", "))
		}
	case <-ctx.Done():
		deadline, _ := ctx.Deadline()
		leaveBehind(p, time.Until(deadline), done)
	}
	return err
}

// fields are the members of input that the rules stopped at, each with what is the matter with it.
func (s *explainer) fields(stopped []*ast.Rule) (named []string) {
	var frames []*frame
	for _, r := range stopped {
		frames = append(frames, s.trace.rules[r]...)
	}
	var at *stop
	for f, depth := furthest(frames), 0; f != nil && depth < maxDepth; depth++ {
		at = f.stops[0]
		if f = s.below(at); kindOf(at.expr) == Holds {
			break
		}
	}
	if at == nil {
		return nil
	}
	for _, m := range s.policy.paths().of(s.input, at) {
		if text := m.String(); !slices.Contains(named, text) && len(named) < mostNamed {
			named = append(named, text)
		}
	}
	return named
}

// inputPaths tell where in the input a variable of a policy's rules has its value from.
type inputPaths struct {
	mu       sync.Mutex // a follower notes what it comes by
	follower *follower
}

func newInputPaths(compiled *ast.Compiler, names []ast.Ref) *inputPaths {
	f := newFollower(compiled)
	f.apart = true
	f.from(names...)
	return &inputPaths{follower: f}
}

// member is one of input: a path, and what is there. A part of the path that is not in the input stands for what is missing.
type member struct {
	path  ast.Ref
	value *ast.Term // nil if there is none
}

// of gives the members that an expression was asked with.
func (p *inputPaths) of(input *ast.Term, at *stop) (found []member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ast.WalkTerms(at.expr, func(t *ast.Term) bool {
		ref, isRef := t.Value.(ast.Ref)
		if !isRef {
			ref = ast.Ref{t}
		}
		head, isVar := ref[0].Value.(ast.Var)
		switch {
		case !isVar:
			return false
		case head.Equal(ast.DefaultRootDocument.Value): // the name of a rule or a function
			return true
		}
		for _, base := range p.standsFor(input, head, at) {
			found = append(found, base.along(ref[1:], at))
		}
		return isRef
	})
	return found
}

// standsFor gives the members that a variable may have its value from: those that have the same.
func (p *inputPaths) standsFor(input *ast.Term, v ast.Var, at *stop) (found []member) {
	if v.Equal(ast.InputRootDocument.Value) {
		return []member{{path: ast.Ref{ast.InputRootDocument}, value: input}}
	}
	is := at.vars[v]
	if is == nil {
		return nil
	}
	left := mostSought
	for _, known := range p.follower.rules {
		for place := range known.vars[v] {
			p.follower.input.find(place, member{ast.Ref{ast.InputRootDocument}, input}, &left, func(m member) {
				if m.value.Equal(is) {
					found = append(found, m)
				}
			})
		}
	}
	slices.SortFunc(found, func(a, b member) int { return a.path.Compare(b.path) })
	return found
}

// find visits the members of a document that a place in its projection stands for, among as many as are left to be looked at.
func (r *projection) find(place *projection, at member, left *int, visit func(member)) {
	if *left--; *left < 0 {
		return
	}
	if r == place {
		visit(at)
	}
	for name, m := range r.members {
		if next := at.along(ast.Ref{ast.StringTerm(name)}, nil); next.value != nil {
			m.find(place, next, left, visit)
		}
	}
	if r.every == nil {
		return
	}
	each := func(key, value *ast.Term) bool {
		r.every.find(place, member{at.path.Append(at.shown(key)), value}, left, visit)
		return *left < 0
	}
	switch v := at.value.Value.(type) {
	case ast.Object:
		v.Until(each)
	case *ast.Array:
		for i := 0; i < v.Len() && !each(ast.IntNumberTerm(i), v.Elem(i)); i++ {
		}
	}
}

// along is a member further on a path; variables in it have the values that they were asked with.
func (m member) along(path ast.Ref, at *stop) member {
	for _, key := range path {
		shown := key
		if v, isVar := key.Value.(ast.Var); isVar {
			if key = at.vars[v]; key == nil {
				return m
			}
			shown = m.shown(key)
		}
		m.path = m.path.Append(shown)
		if m.value != nil {
			m.value = elementOf(m.value, key)
		}
	}
	return m
}

// own is what the requester has written.
var own = ast.MustParseRef("input.request.object")

// shown is a key that is not of the policy's text, but of the input: who asks may not know it, unless it is of the own object.
func (m member) shown(key *ast.Term) *ast.Term {
	if m.path.HasPrefix(own) {
		return key
	}
	return ast.Wildcard
}

func elementOf(of, key *ast.Term) *ast.Term {
	switch v := of.Value.(type) {
	case ast.Object:
		return v.Get(key)
	case *ast.Array:
		return v.Get(key)
	}
	return nil
}

// String names the member as its writer knows it, in the object by its path there, and says what kind of value it has.
func (m member) String() string {
	path := m.path[1:]
	switch {
	case len(m.path) > len(own) && m.path.HasPrefix(own):
		path = m.path[len(own):]
	case len(m.path) > len(request) && m.path.HasPrefix(request):
		path = m.path[len(request):]
	}
	name := ""
	for i, key := range path {
		word, isText := key.Value.(ast.String)
		switch {
		case key.Equal(ast.Wildcard):
			name += "[]"
		case !isText || strings.ContainsAny(string(word), "./"):
			name += "[" + strings.Trim(key.String(), `"`) + "]"
		case i == 0:
			name = string(word)
		default:
			name += "." + string(word)
		}
	}
	return name + " is " + m.kind()
}

func (m member) kind() string {
	if m.value == nil {
		return "missing"
	}
	switch v := m.value.Value.(type) {
	case ast.Null:
		return "null"
	case ast.Object:
		return "an object"
	case *ast.Array, ast.Set:
		return "a list"
	case ast.Number:
		return "a number"
	case ast.Boolean:
		return "a boolean"
	case ast.String:
		if v == "" {
			return "empty"
		}
	}
	return "a string that the policy does not understand"
}
