package engine

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
)

// paths writes a projection down: a name and a star for all of it.
func (r *projection) paths(at string) []string {
	if r.all {
		return []string{at + "*"}
	}
	if len(r.members) == 0 && r.every == nil {
		return []string{at}
	}
	var found []string
	for _, name := range slices.Sorted(maps.Keys(r.members)) {
		found = append(found, r.members[name].paths(at+"."+name)...)
	}
	if r.every != nil {
		found = append(found, r.every.paths(at+"[]")...)
	}
	return found
}

func TestWhatAPolicyReads(t *testing.T) {
	const library = "# METADATA\n# title: T\n# description: D\npackage toy.lib\n\nnamed(x) if x.name == \"b\"\n\nname_of(x) := x.name\n\nsame(a, b) if a == b\n\neither(x) := x.a if true\n\nelse := x.b\n\ntwo(x) := x.a\n\ntwo(x) := x.b\n"
	for name, tc := range map[string]struct{ body, want string }{
		"nothing":                   {`true`, "input"},
		"a scalar":                  {`input.request.a == 1`, "input.request.a"},
		"a local":                   {`x := input.request.a; x.b.c > 1`, "input.request.a.b.c*"},
		"a local of a local":        {`x := input.request.a; y := x.b; y.c == 1`, "input.request.a.b.c"},
		"a comparison":              {`input.request.a == input.request.b`, "input.request.a* input.request.b*"},
		"a comparison of locals":    {`x := input.request.a; y := input.request.b; x == y`, "input.request.a* input.request.b*"},
		"with an object":            {`x := {"k": 1}; y := input.request.a; x == y`, "input.request.a*"},
		"a builtin":                 {`count(input.request.a) > 1`, "input.request.a*"},
		"its type":                  {`x := input.request.a; is_object(x); x.b == 1`, "input.request.a.b"},
		"not null":                  {`x := input.request.a; x != null; x.b`, "input.request.a.b"},
		"a function":                {`f(input.request.a)`, "input.request.a.f"},
		"a function of a library":   {`lib.named(input.request.a)`, "input.request.a.name"},
		"a value of a function":     {`lib.name_of(input.request.a) == "b"`, "input.request.a.name"},
		"two arguments":             {`lib.same(input.request.a, input.request.b)`, "input.request.a* input.request.b*"},
		"a rule":                    {`holds`, "input.request.h"},
		"a value of a rule":         {`spec.v == 1`, "input.request.object.spec.v"},
		"a negated rule":            {`not holds`, "input.request.h"},
		"object.get":                {`object.get(input.request.a, "b", 0) == 1`, "input.request.a.b"},
		"object.get of a path":      {`x := object.get(input.request.a, ["b", "c"], {}); x.d == 1`, "input.request.a.b.c.d"},
		"object.get of a variable":  {`object.get(input.request.a, input.request.k, 0) == 1`, "input.request.a* input.request.k*"},
		"elements":                  {`some x in input.request.list; x.y == 1`, "input.request.list[].y"},
		"every":                     {`every x in input.request.list { x.y == 1 }`, "input.request.list[].y"},
		"every, compared":           {`every x in input.request.list { x == input.request.a }`, "input.request.a* input.request.list[]*"},
		"an index":                  {`input.request.list[0].y == 1`, "input.request.list[].y"},
		"a wildcard":                {`input.request.list[_].y == 1`, "input.request.list[].y"},
		"a comprehension":           {`xs := [x.y | some x in input.request.list]; count(xs) > 1`, "input.request.list[].y*"},
		"in a set":                  {`input.request.a in {"b", "c"}`, "input.request.a*"},
		"in something made of it":   {`x := {"k": input.request.a}; x.k.b == 1`, "input.request.a*"},
		"a key":                     {`data.parameters[input.request.a] == 1`, "input.request.a*"},
		"a pattern":                 {`[x, _] = input.request.a; x == 1`, "input.request.a*"},
		"the time":                  {`input.now > "2026"`, "input.now*"},
		"the whole request":         {`count(object.keys(input.request)) > 1`, "input.request*"},
		"the whole input":           {`walk(input, [_, 1])`, "input*"},
		"what cannot be followed":   {`other with input as {}`, "input*"},
		"else":                      {`otherwise == 2`, "input.request.e input.request.o"},
		"a partial set":             {`"x" in members`, "input.request.list[]*"},
		"a partial object":          {`table.x == 1`, "input.request.list[].k* input.request.list[].v*"},
		"a message, not its match":  {`x := input.request.a; x.b == 1`, "input.request.a.b"},
		"depth":                     {"deep(input.request)", "input.request" + strings.Repeat(".n", deepest-1) + "*"},
		"a function of its value":   {`lib.either(lib.either(input.request))`, "input*"},
		"of two definitions":        {`two.v == 1`, "input.request.a* input.request.b*"},
		"a definition and a scalar": {`scalar.v == 1`, "input.request.a.v"},
		"a definition and {}":       {`empty.v == 1`, "input.request.a*"},
		"a definition and default":  {`usual.v == 1`, "input.request.a.v"},
		"a function of two":         {`lib.two(input.request).v == 1`, "input.request.a* input.request.b*"},
		"of several solutions":      {`one.v == 1`, "input.request.list[]*"},
		"of solutions by a key":     {`keyed.v == 1`, "input.request.list[]*"},
		"of a function of several":  {`anyof(input.request.list).v == 1`, "input.request.list[]*"},
		"of several ways to else":   {`chained.v == 1`, "input.request.a* input.request.list[]"},
		"solutions in a closure":    {`closed.v == 1`, "input.request.a.v input.request.list[].x*"},
		"a member of an object":     {`parts.a.v == 1`, "input.request.a*"},
		"what walk finds":           {`walked.v == 1`, "input.request.a*"},
		"two arguments, and which":  {`equal(input.request.a, 1, input.request.b)`, "input.request.a input.request.b*"},
		"a kind, and which":         {`is_object(input.request.a, input.request.b)`, "input.request.a input.request.b*"},
		"a result that compares":    {`x := input.request.c; lib.name_of(input.request.a, x)`, "input.request.a.name* input.request.c*"},
		"a result of object.get":    {`x := input.request.c; object.get(input.request.a, "b", 0, x)`, "input.request.a.b* input.request.c*"},
		"a result that is taken":    {`lib.name_of(input.request.a, x); x.b == 1`, "input.request.a.name.b"},
		"one function for both":     {`lib.named(input.request.a); lib.named(input.request.b)`, "input.request.a.name input.request.b.name"},
		"a parameter that compares": {`g(input.request.a)`, "input.request.a* input.request.g*"},
	} {
		t.Run(name, func(t *testing.T) {
			src := policy("import data.toy.lib\n\nvalid_input if true\n\n" + denyMetadata +
				"deny contains {\"reason\": \"R\", \"message\": $\"{input.request.m} {input.request.n}\"} if { " + tc.body + " }\n\n" +
				"_used if { f({}); g(1); holds; spec; otherwise; other; members; table; deep({}); lib.named({}) }\n\n" +
				"f(x) if x.f == 1\n\ng(x) if x == input.request.g\n\nholds if input.request.h == 1\n\nspec := input.request.object.spec\n\n" +
				"otherwise := 1 if input.request.o == 1\n\nelse := 2 if input.request.e == 1\n\nother if input.request.x\n\n" +
				"members contains x if some x in input.request.list\n\ntable[x.k] := x.v if some x in input.request.list\n\n" +
				"two := input.request.a\n\ntwo := input.request.b\n\nscalar := input.request.a\n\nscalar := 1 if input.request.a == 1\n\n" +
				"empty := {}\n\nempty := input.request.a\n\ndefault usual := {}\n\nusual := input.request.a\n\n" +
				"one := x if some x in input.request.list\n\nkeyed := input.request.list[_]\n\nanyof(all) := x if some x in all\n\n" +
				"chained := 1 if input.request.a == 1\n\nelse := input.request.a if input.request.list[_]\n\n" +
				"closed := input.request.a if count([x.x | some x in input.request.list]) > 1\n\n" +
				"parts.a := input.request.a\n\nwalked := v if walk(input.request.a, [_, v])\n\n" +
				"deep(x) if x" + strings.Repeat(".n", deepest+1) + " == 1\n")
			src.Libraries = []Module{{"lib.rego", library}}
			p := mustCompile(t, src)
			got := follow(p.compiler, packageRef(src.Package).Append(p.fires()))
			if text := strings.Join(slices.Sorted(slices.Values(got.paths("input"))), " "); text != tc.want {
				t.Errorf("got %s\nwant %s", text, tc.want)
			}
		})
	}
}

func (p *Policy) fires() *ast.Term { return ast.StringTerm(admit.fires()) }

// Two containers that differ only in what no rule reads make a rule that has one of them for its value an error, which must not be
// lost where objects have only what rules read.
func TestAnErrorIsNotLostWithWhatIsNotRead(t *testing.T) {
	for name, rules := range map[string]string{
		"a rule of several solutions":      "_c := c if some c in input.facts.list",
		"a rule of several definitions":    "_c := input.facts.list[0]\n\n_c := input.facts.list[1]",
		"a function of several solutions":  "_c := _in(input.facts.list)\n\n_in(all) := c if some c in all",
		"a function of several outcomes":   "_c := _in(input.facts.list)\n\n_in(all) := all[0]\n\n_in(all) := all[1]",
		"else of several solutions":        "_c := 1 if input.request.none\n\nelse := c if some c in input.facts.list",
		"a partial object":                 "_c := _all.x\n\n_all[\"x\"] := c if some c in input.facts.list",
		"an object of rules":               "_c := _all.x\n\n_all.x := c if some c in input.facts.list",
		"an object by its key":             "_c := _all.x\n\n_all := {c.image: c | some c in input.facts.list}",
		"a rule within a rule":             "_c := _d\n\n_d := c if some c in input.facts.list",
		"what walk finds":                  "_c := c if walk(input.facts.list, [[_], c])",
		"what a comparison must come to":   "_c := c if { some c in input.facts.list; equal(c.image, 1, input.request.equal) }",
		"what a kind must come to":         "_c := c if { some c in input.facts.list; is_object(c, input.request.object) }",
		"a rule of a package as a whole":   "_c := data.toy.p.below.c",
		"a rule of a package by some name": "_c := data.toy.p.below[_]",
	} {
		t.Run(name, func(t *testing.T) {
			fact := "facts.list := {\"apiVersion\": \"toy/v1\", \"kind\": \"Loan\"}\n\n"
			src := policy(fact + "valid_input if true\n\n" + denyMetadata + "deny contains {\"reason\": \"R\", \"message\": \"m\"} if _c.image == \"x\"\n\n" + rules + "\n")
			src.Modules = append(src.Modules, Module{"below.rego", "package toy.p.below\n\nc := c if some c in input.facts.list\n"})
			p := mustCompile(t, src)
			facts := map[string]any{"list": []any{map[string]any{"name": "a", "image": "x"}, map[string]any{"name": "b", "image": "x"}}}
			_, err := p.Decide(t.Context(), input(t, `{"equal": false, "object": true}`), sharing{facts: facts, live: true})
			wantCause(t, err, EvaluationFailed, "conflict")
		})
	}
}
