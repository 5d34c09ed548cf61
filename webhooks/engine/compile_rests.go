package engine

import (
	"cmp"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
)

// A denial that is based on a stale cache is wrong, so it is evaluated again with live facts. For a list that is expensive: the API server
// cannot select by most fields. It is not needed where more objects can only add denials: then a denial that follows from some of the
// objects follows from all, and reading these objects again by their names is enough.
//
// A fact that is a list has this property if each rule on the way to deny and warn uses it only to iterate over it: not as a whole, as in
// count or in a comparison, not by position, and neither in a negation nor in every or a comprehension. What is not recognized does not
// have it.

// Existential returns the names of the facts of which a denial needs only the objects that it is based on, sorted.
func (p *Policy) Existential() (names []string) {
	for name := range p.existential {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Compared are the places at which facts that are looked up by fields are used in a way that needs all objects of a list, one for each fact,
// which the message names. Facts of kinds for which but returns true are left out.
func (p *Policy) Compared(but func(apiVersion string) bool) (places CompileErrors) {
	for _, f := range p.compared {
		if !but(f.apiVersion) {
			places = append(places, f.CompileError)
		}
	}
	return places
}

// comparedFact is a place of Compared.
type comparedFact struct {
	CompileError
	apiVersion string
}

// comparedFacts finds the facts that are looked up by fields among those that are used as a whole.
func (p *Policy) comparedFacts(modules []*ast.Module, whole map[string]*ast.Location) (found []comparedFact) {
	for _, m := range modules {
		for _, r := range m.Rules {
			if !m.Package.Path.Equal(p.pkg) || headName(r) != ruleFacts {
				continue
			}
			name := text(r.Head.Ref()[1])
			at := whole[name]
			query, ok := r.Head.Value.Value.(ast.Object)
			if at == nil || !ok || query.Get(ast.StringTerm("fields")) == nil {
				continue
			}
			of := cmp.Or(query.Get(ast.StringTerm("apiVersion")), ast.NullTerm())
			found = append(found, comparedFact{CompileError{
				File: at.File, Row: at.Row, Col: at.Col, Message: ruleFacts + "." + name,
			}, text(of)})
		}
	}
	return found
}

// followFacts finds which facts of a linked policy are existential. The modules are its own, as they were written.
func (p *Policy) followFacts(modules []*ast.Module) {
	u := usage{compiled: p.compiler, whole: map[string]*ast.Location{}, iterated: map[string]bool{}, seen: map[*ast.Rule]map[bool]bool{}}
	for _, r := range p.compiler.GetRulesExact(p.pkg.Append(ast.StringTerm(admit.yields()))) {
		u.rule(r, true)
	}
	u.rules(p.pkg.Append(ast.StringTerm(ruleFacts)), false)
	p.compared, p.existential = p.comparedFacts(modules, u.whole), map[string]bool{}
	for name := range u.iterated {
		if _, whole := u.whole[name]; !u.all && !whole {
			p.existential[name] = true
		}
	}
}

// usage collects how rules use facts.
type usage struct {
	compiled *ast.Compiler
	iterated map[string]bool
	whole    map[string]*ast.Location    // the first such place
	all      bool                        // all facts are used as a whole
	seen     map[*ast.Rule]map[bool]bool // by whether it was used to add results
	vars     map[ast.Var]int             // occurrences in the current rule
	at       *ast.Location               // of the current expression
}

// rules visits the rules that a reference may name. adds reports whether more results of them can only add results of the rule that refers
// to them.
func (u *usage) rules(ref ast.Ref, adds bool) {
	all := u.compiled.GetRulesDynamicWithOpts(ref, ast.RulesOptions{IncludeHiddenModules: true})
	adds = adds && !slices.ContainsFunc(all, func(r *ast.Rule) bool { return !grows(r, ref) })
	for _, r := range all {
		u.rule(r, adds)
	}
}

// grows reports whether more matches of a rule's body can only add to what a reference to it means: to the elements of a set that is iterated
// over, or from undefined to true.
func grows(r *ast.Rule, ref ast.Ref) bool {
	switch {
	case r.Else != nil || r.Default:
		return false
	case r.Head.RuleKind() == ast.MultiValue:
		return len(ref) > len(r.Ref())
	}
	return len(ref) >= len(r.Ref()) && r.Head.Value != nil && ast.Boolean(true).Equal(r.Head.Value.Value)
}

// rule visits a rule once for each kind of use.
func (u *usage) rule(r *ast.Rule, adds bool) {
	if u.seen[r][adds] {
		return
	}
	if u.seen[r] == nil {
		u.seen[r] = map[bool]bool{}
	}
	u.seen[r][adds] = true
	outer := u.vars
	defer func() { u.vars = outer }()
	u.vars = map[ast.Var]int{}
	ast.WalkVars(r, func(v ast.Var) bool {
		u.vars[v]++
		return false
	})
	u.body(r.Body, adds)
	for _, t := range append([]*ast.Term{r.Head.Key, r.Head.Value}, r.Head.Args...) {
		u.term(t, adds)
	}
	if r.Else != nil {
		u.rule(r.Else, false)
	}
}

func (u *usage) body(b ast.Body, adds bool) {
	for _, e := range b {
		u.at = cmp.Or(e.Location, u.at) // an expression that the engine has added has none
		u.expr(e, adds && !e.Negated && len(e.With) == 0)
	}
}

func (u *usage) expr(e *ast.Expr, adds bool) {
	switch t := e.Terms.(type) {
	case *ast.Term:
		u.term(t, adds)
	case []*ast.Term:
		u.call(t, adds)
	case *ast.Every:
		u.term(t.Domain, false)
		u.body(t.Body, false)
	}
	for _, with := range e.With {
		u.term(with.Target, false)
		u.term(with.Value, false)
	}
}

// call visits an operator and its operands.
func (u *usage) call(terms []*ast.Term, adds bool) {
	if operator, ok := terms[0].Value.(ast.Ref); ok && operator.HasPrefix(ast.DefaultRootRef) {
		u.rules(operator, adds)
	}
	for _, t := range terms[1:] {
		u.term(t, adds)
	}
}

func (u *usage) term(t *ast.Term, adds bool) {
	if t == nil {
		return
	}
	switch v := t.Value.(type) {
	case ast.Ref:
		u.ref(v, adds)
	case ast.Call:
		u.call(v, adds)
	case *ast.Array:
		v.Foreach(func(t *ast.Term) { u.term(t, adds) })
	case ast.Set:
		v.Foreach(func(t *ast.Term) { u.term(t, adds) })
	case ast.Object:
		v.Foreach(func(k, t *ast.Term) { u.term(k, adds); u.term(t, adds) })
	case *ast.ArrayComprehension:
		u.closure(v.Body, v.Term)
	case *ast.SetComprehension:
		u.closure(v.Body, v.Term)
	case *ast.ObjectComprehension:
		u.closure(v.Body, v.Key, v.Value)
	case *ast.TemplateString:
		for _, part := range v.Parts {
			switch part := part.(type) {
			case *ast.Expr:
				u.expr(part, false)
			case *ast.Term:
				u.term(part, false)
			}
		}
	}
}

// closure visits a comprehension, whose value as a whole depends on what is in it.
func (u *usage) closure(b ast.Body, terms ...*ast.Term) {
	u.body(b, false)
	for _, t := range terms {
		u.term(t, false)
	}
}

func (u *usage) ref(ref ast.Ref, adds bool) {
	for _, t := range ref[1:] {
		u.term(t, adds)
	}
	switch {
	case ref.HasPrefix(ast.DefaultRootRef):
		u.rules(ref, adds)
	case !ref.HasPrefix(ast.InputRootRef) || len(ref) > 1 && isOther(ref[1]):
	case len(ref) < 3 || !ref.HasPrefix(inputFacts):
		u.all = true
	default:
		u.fact(ref[2:], adds)
	}
}

// isOther reports whether a member of input is a constant other than facts.
func isOther(t *ast.Term) bool {
	name, ok := t.Value.(ast.String)
	return ok && name != "facts"
}

// fact records the use of a fact: its name and what is read of it.
func (u *usage) fact(path ast.Ref, adds bool) {
	name, ok := path[0].Value.(ast.String)
	if !ok {
		u.all = true
		return
	}
	if adds && len(path) > 1 {
		if position, is := path[1].Value.(ast.Var); is && u.vars[position] == 1 {
			u.iterated[string(name)] = true
			return
		}
	}
	if _, known := u.whole[string(name)]; !known {
		u.whole[string(name)] = u.at
	}
}
