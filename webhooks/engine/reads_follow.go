package engine

import (
	"cmp"
	"maps"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"

	"sallyport.dev/sallyport/webhooks/engine/builtins"
)

// What a policy reads of its input is derived from its compiled rules: each variable, argument and value of a rule is followed back
// to the members of input that it may stand for. A member counts as read as a whole unless it is only used to look up a member, to
// iterate, to test its type, or to compare it with a scalar. A term that cannot be followed reads all of the input.

// follow returns what the rules of those names, and below them, read of input.
func follow(compiled *ast.Compiler, names ...ast.Ref) *projection {
	f := newFollower(compiled)
	for _, m := range compiled.Modules {
		f.input.all = f.input.all || replacesDocuments(m)
	}
	f.from(names...)
	return f.input
}

// replacesDocuments reports whether a module has a `with`, below which a rule may have another value.
func replacesDocuments(m *ast.Module) (found bool) {
	ast.WalkWiths(m, func(*ast.With) bool {
		found = true
		return true
	})
	return found
}

type follower struct {
	compiled *ast.Compiler
	compared func(*ast.Compiler, *ast.Rule) bool // see [compared]
	input    *projection
	rules    map[*ast.Rule]*followed
	changed  bool
	steps    int  // new ones
	apart    bool // keep members apart that are read together: for finding the origin of a value, not what is read
}

func newFollower(compiled *ast.Compiler) *follower {
	return &follower{compiled: compiled, compared: compared, input: &projection{}, rules: map[*ast.Rule]*followed{}, changed: true}
}

// from follows the rules of those names, and below them, until nothing changes any more.
func (f *follower) from(names ...ast.Ref) {
	for _, name := range names {
		for _, r := range f.compiled.GetRulesWithPrefix(name) {
			f.reach(r)
			f.rules[r].whole = true
		}
	}
	for f.changed && !f.input.all {
		f.changed = false
		for r, known := range f.rules {
			f.rule(r, known)
		}
	}
}

// followed is what is known of a rule.
type followed struct {
	vars  map[ast.Var]places
	value places
	// readWhole reports whether its value is used other than by following it.
	whole bool
	// bound are the variables that have a value at the current expression: compiled rules are in the order of evaluation.
	bound ast.VarSet
}

// placesOf returns what a variable may stand for.
func (k *followed) placesOf(v ast.Var) places {
	if k.vars[v] == nil {
		k.vars[v] = places{}
	}
	return k.vars[v]
}

// places are the members of input that a term may stand for.
type places map[*projection]bool

func (f *follower) add(to, more places) {
	for place := range more {
		f.changed = f.changed || !to[place]
		to[place] = true
	}
}

func (f *follower) readWhole(all places) {
	if f.apart {
		return
	}
	for place := range all {
		f.changed = f.changed || !place.all
		place.all = true
	}
}

// mostSteps limits the members of input that are kept apart: recursion through arguments could add members without end.
const mostSteps = 500

// step returns the places one step further along a path.
func (f *follower) step(from places, key *ast.Term) places {
	next := places{}
	for place := range from {
		if f.steps > mostSteps {
			f.readWhole(places{f.input: true})
			return next
		}
		names, every, all := len(place.members), place.every, place.all
		if name, ok := key.Value.(ast.String); ok {
			next[place.member(string(name))] = true
		} else {
			next[place.element()] = true
		}
		if len(place.members) != names || place.every != every || place.all != all {
			f.changed = true
			f.steps++
		}
	}
	return next
}

func (f *follower) reach(first *ast.Rule) {
	for r := first; r != nil; r = r.Else {
		if f.rules[r] != nil {
			continue
		}
		f.changed = true
		f.rules[r] = &followed{vars: map[ast.Var]places{}, value: places{}, whole: f.compared(f.compiled, first)}
	}
}

func (f *follower) rule(r *ast.Rule, known *followed) {
	known.bound = ast.NewVarSet()
	for _, parameter := range r.Head.Args {
		known.bind(parameter)
	}
	f.body(known, r.Body)
	for _, part := range r.Head.Ref()[1:] {
		f.use(known, part)
	}
	if r.Head.Key != nil {
		f.use(known, r.Head.Key)
	}
	if r.Head.Value != nil {
		f.add(known.value, f.places(known, r.Head.Value))
		if known.whole || r.Head.RuleKind() == ast.MultiValue {
			f.readWhole(known.value)
		}
	}
}

func (f *follower) body(known *followed, body ast.Body) {
	for _, e := range body {
		switch terms := e.Terms.(type) {
		case *ast.Term:
			f.places(known, terms)
		case []*ast.Term:
			f.call(known, e)
		case *ast.Every:
			if v, ok := terms.Value.Value.(ast.Var); ok {
				f.add(known.placesOf(v), f.step(f.places(known, terms.Domain), ast.InternedNullTerm))
			}
			if terms.Key != nil {
				known.bind(terms.Key)
			}
			known.bind(terms.Value)
			f.body(known, terms.Body)
		case *ast.SomeDecl:
		default:
			f.readWhole(places{f.input: true})
		}
		known.bind(e)
	}
}

// bind adds the variables of a node to the bound ones, except those in comprehensions.
func (k *followed) bind(node any) { k.bound.Update(variables(node)) }

// places returns what a term may stand for. A composite term stands for nothing, and uses its parts.
func (f *follower) places(known *followed, t *ast.Term) places {
	switch v := t.Value.(type) {
	case ast.Var:
		if v.Equal(ast.InputRootDocument.Value) {
			return places{f.input: true}
		}
		return known.placesOf(v)
	case ast.Ref:
		return f.ref(known, v)
	}
	f.visit(known, t)
	return nil
}

// use marks a term as read as a whole.
func (f *follower) use(known *followed, t *ast.Term) { f.readWhole(f.places(known, t)) }

func (f *follower) visit(known *followed, t *ast.Term) {
	use := func(t *ast.Term) { f.use(known, t) }
	switch v := t.Value.(type) {
	case ast.Null, ast.Boolean, ast.Number, ast.String:
	case *ast.Array:
		v.Foreach(use)
	case ast.Set:
		v.Foreach(use)
	case ast.Object:
		v.Foreach(func(key, value *ast.Term) { use(key); use(value) })
	case *ast.ArrayComprehension:
		f.body(known, v.Body)
		use(v.Term)
	case *ast.SetComprehension:
		f.body(known, v.Body)
		use(v.Term)
	case *ast.ObjectComprehension:
		f.body(known, v.Body)
		use(v.Key)
		use(v.Value)
	default:
		f.readWhole(places{f.input: true})
	}
}

func (f *follower) ref(known *followed, ref ast.Ref) places {
	for _, part := range ref[1:] {
		f.use(known, part)
	}
	switch {
	case ref[0].Equal(ast.InputRootDocument):
		return f.along(places{f.input: true}, ref[1:])
	case ref[0].Equal(ast.DefaultRootDocument):
		return f.document(ref)
	}
	return f.along(f.places(known, ref[0]), ref[1:])
}

func (f *follower) along(from places, path ast.Ref) places {
	for _, key := range path {
		from = f.step(from, key)
	}
	return from
}

// document returns what a reference to rules may stand for.
func (f *follower) document(ref ast.Ref) places {
	found := places{}
	for _, first := range f.compiled.GetRulesDynamicWithOpts(ref, ast.RulesOptions{}) {
		f.reach(first)
		name := first.Ref()
		for r := first; r != nil; r = r.Else {
			if ref.HasPrefix(name) && first.Head.RuleKind() == ast.SingleValue {
				maps.Copy(found, f.along(f.rules[r].value, ref[len(name):]))
			} else {
				f.changed = f.changed || !f.rules[r].whole
				f.rules[r].whole = true
			}
		}
	}
	return found
}

func (f *follower) call(known *followed, e *ast.Expr) {
	operator, operands := e.Operator(), e.Operands()
	if e.IsEquality() {
		f.unify(known, operands[0], operands[1])
		return
	}
	if rules := f.compiled.GetRulesExact(operator); len(rules) > 0 {
		f.function(known, rules, operands)
		return
	}
	switch name := operator.String(); {
	case operator.Equal(builtins.Made): // of values that are followed anyway
	case slices.Contains(kindOnly, name):
		f.places(known, operands[0])
		f.result(known, operands[1:], nil)
	case (name == ast.Equal.Name || name == ast.NotEqual.Name) && (isScalar(operands[0]) || isScalar(operands[1])):
		f.places(known, operands[0])
		f.places(known, operands[1])
		f.result(known, operands[2:], nil)
	case name == ast.ObjectGet.Name:
		f.objectGet(known, operands)
		return
	default:
		for _, o := range operands {
			f.use(known, o)
		}
	}
}

// kindOnly are the builtins that only test the type of a value. A value that is no object is read as a whole in any case.
var kindOnly = []string{
	ast.IsNull.Name, ast.IsBoolean.Name, ast.IsNumber.Name, ast.IsString.Name, ast.IsArray.Name, ast.IsObject.Name, ast.IsSet.Name,
	ast.TypeNameBuiltin.Name,
}

func isScalar(t *ast.Term) bool { return ast.IsScalar(t.Value) }

// objectGet follows object.get(object, "member", otherwise), or with a list of members.
func (f *follower) objectGet(known *followed, operands []*ast.Term) {
	found := f.places(known, operands[0])
	path := []*ast.Term{operands[1]}
	if list, ok := operands[1].Value.(*ast.Array); ok {
		path = path[:0]
		list.Foreach(func(key *ast.Term) { path = append(path, key) })
	}
	for _, key := range path {
		if _, constant := key.Value.(ast.String); !constant {
			f.readWhole(found)
			f.use(known, key)
		}
		found = f.step(found, key)
		if _, single := key.Value.(ast.Var); single && f.apart { // which may be a list of members of any length
			for place := range found {
				place.every = cmp.Or(place.every, place)
			}
		}
	}
	found = maps.Clone(found)
	maps.Copy(found, f.places(known, operands[2]))
	f.result(known, operands[3:], found)
}

// function follows a call of a function of the policy or a library.
func (f *follower) function(known *followed, rules []*ast.Rule, operands []*ast.Term) {
	found := places{}
	arity := len(rules[0].Head.Args)
	for _, first := range rules {
		f.reach(first)
		for r := first; r != nil; r = r.Else {
			callee := f.rules[r]
			for i, parameter := range r.Head.Args {
				given := f.places(known, operands[i])
				if v, ok := parameter.Value.(ast.Var); ok && !repeated(r.Head.Args, parameter) {
					f.add(callee.placesOf(v), given)
				} else {
					f.readWhole(given)
				}
			}
			maps.Copy(found, callee.value)
		}
	}
	f.result(known, operands[arity:], found)
}

// result assigns the result of a call to the variable for it, if any.
func (f *follower) result(known *followed, rest []*ast.Term, found places) {
	if len(rest) == 0 {
		return
	}
	if v, ok := rest[0].Value.(ast.Var); ok && !known.bound.Contains(v) {
		f.add(known.placesOf(v), found)
		return
	}
	f.readWhole(found)
	f.use(known, rest[0])
}

// unify follows a = b. It binds an unbound variable; otherwise it compares.
func (f *follower) unify(known *followed, a, b *ast.Term) {
	for _, side := range [][2]*ast.Term{{a, b}, {b, a}} {
		if v, ok := side[0].Value.(ast.Var); ok && !known.bound.Contains(v) {
			f.add(known.placesOf(v), f.places(known, side[1]))
			return
		}
	}
	if isScalar(a) || isScalar(b) {
		f.places(known, a)
		f.places(known, b)
		return
	}
	f.use(known, a)
	f.use(known, b)
}

// repeated reports whether a parameter occurs twice, which compares the arguments.
func repeated(parameters []*ast.Term, p *ast.Term) bool {
	found := 0
	for _, other := range parameters {
		if other.Equal(p) {
			found++
		}
	}
	return found > 1
}

// compared reports whether the values of the rules of one name may be compared with each other: if the definitions of a rule, or the
// solutions of a body, give several values, OPA fails if two differ, even in a member that is not read. So they count as read as a whole.
func compared(compiled *ast.Compiler, rule *ast.Rule) bool {
	switch {
	case rule.Head.RuleKind() == ast.MultiValue:
		return false
	case len(rule.Head.Ref()) > 1: // a member of an object that other rules have members in
		return true
	}
	composite := 0
	for _, first := range compiled.GetRulesExact(rule.Ref()) {
		scalar := true
		for r := first; r != nil; r = r.Else {
			if severalSolutions(r) {
				return true
			}
			scalar = scalar && isScalar(r.Head.Value)
		}
		if !scalar && !first.Default {
			composite++
		}
	}
	return composite > 1
}

// severalSolutions reports whether the body of a compiled rule may hold in several ways.
func severalSolutions(r *ast.Rule) bool {
	bound := variables(r.Head.Args)
	return slices.ContainsFunc(r.Body, func(e *ast.Expr) bool {
		vars := variables(e)
		unbound := vars.Diff(bound)
		bound.Update(vars)
		return hasSeveralSolutions(e, unbound)
	})
}
