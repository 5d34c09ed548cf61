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
	// mostTraced limits the trace events that are examined to name a field, so that invalid requests cannot keep a replica busy.
	mostTraced = 50_000
	// mostDocument limits the input, in bytes, and mostSought the members that are compared to find a field.
	mostDocument, maxSearched = 128 << 10, 1000
	// mostNamed limits the fields that are named.
	mostNamed = 3
)

// nameField adds to an InputNotUnderstood error the member of the input in the expression at which valid_input, or the rule of the
// fact, stopped, if it is found in time. Values are not shown: the requester may not be allowed to know them.
func (p *Policy) nameField(ctx context.Context, in Input, facts map[string]Fact, err error) error {
	var e *Error
	if !errors.As(err, &e) || e.Cause != InputNotUnderstood || e.fact == "" && facts == nil && p.first.ask != nil { // a query's error names its field already
		return err
	}
	if slices.Contains(p.second.facts, e.fact) { // it depends on more than the request
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
	input := document.orNull()
	done := make(chan []string, 1)
	go func() {
		var named []string
		defer func() { done <- named }()
		defer recoverPanic(new(error))
		s := p.explainer(ctx, input)
		s.trace.most = mostTraced
		if _, err := s.eval(asked); err == nil {
			named = s.fields(stopped)
		}
	}()
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

// fields returns the members of input at which the rules stopped, each with its problem.
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
	for _, m := range s.policy.paths().membersIn(s.input, at) {
		if text := m.String(); !slices.Contains(named, text) && len(named) < mostNamed {
			named = append(named, text)
		}
	}
	return named
}

var request = ast.MustParseRef("input.request")

// inputPaths maps variables of a policy's rules to the members of input that their values come from.
type inputPaths struct {
	mu       sync.Mutex // the follower is not safe for concurrent use
	follower *follower
}

func newInputPaths(compiled *ast.Compiler, names []ast.Ref) *inputPaths {
	f := newFollower(compiled)
	f.apart = true
	f.from(names...)
	return &inputPaths{follower: f}
}

// member is a member of input. A path that does not exist in the input stands for a missing member.
type member struct {
	path  ast.Ref
	value *ast.Term // nil if there is none
}

// membersIn returns the members in an expression.
func (p *inputPaths) membersIn(input *ast.Term, at *stop) (found []member) {
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
		for _, base := range p.originsOf(input, head, at) {
			found = append(found, base.at(ref[1:], at))
		}
		return isRef
	})
	return found
}

// originsOf returns the members that a variable's value may come from: those with an equal value.
func (p *inputPaths) originsOf(input *ast.Term, v ast.Var, at *stop) (found []member) {
	if v.Equal(ast.InputRootDocument.Value) {
		return []member{{path: ast.Ref{ast.InputRootDocument}, value: input}}
	}
	is := at.vars[v]
	if is == nil {
		return nil
	}
	left := maxSearched
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

// find visits the members of a document that a place in its projection stands for, at most as many as are left.
func (r *projection) find(place *projection, at member, left *int, visit func(member)) {
	if *left--; *left < 0 {
		return
	}
	if r == place {
		visit(at)
	}
	for name, m := range r.members {
		if next := at.at(ast.Ref{ast.StringTerm(name)}, nil); next.value != nil {
			m.find(place, next, left, visit)
		}
	}
	if r.every == nil {
		return
	}
	each := func(key, value *ast.Term) bool {
		r.every.find(place, member{at.path.Append(at.visibleKey(key)), value}, left, visit)
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

// at returns a member further along a path. Variables in it have their values of the trace.
func (m member) at(path ast.Ref, at *stop) member {
	for _, key := range path {
		shown := key
		if v, isVar := key.Value.(ast.Var); isVar {
			if key = at.vars[v]; key == nil {
				return m
			}
			shown = m.visibleKey(key)
		}
		m.path = m.path.Append(shown)
		if m.value != nil {
			m.value = elementOf(m.value, key)
		}
	}
	return m
}

// requestObject is the part of the input that the requester wrote.
var requestObject = ast.MustParseRef("input.request.object")

// visibleKey hides a key that is from the input and not from the policy's text, unless it is in the requester's own object.
func (m member) visibleKey(key *ast.Term) *ast.Term {
	if m.path.HasPrefix(requestObject) {
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

// String returns the member's path, for the request's object within the object, and the type of its value.
func (m member) String() string {
	path := m.path[1:]
	switch {
	case len(m.path) > len(requestObject) && m.path.HasPrefix(requestObject):
		path = m.path[len(requestObject):]
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
