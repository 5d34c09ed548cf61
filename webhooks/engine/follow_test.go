package engine

import (
	"slices"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
)

// paths writes a portion down: a name and a star for all of it.
func (r *portion) paths(at string) []string {
	if r.all {
		return []string{at + "*"}
	}
	if len(r.members) == 0 && r.every == nil {
		return []string{at}
	}
	var found []string
	for _, name := range r.names {
		found = append(found, r.members[name].paths(at+"."+name)...)
	}
	if r.every != nil {
		found = append(found, r.every.paths(at+"[]")...)
	}
	return found
}

func TestWhatAPolicyReads(t *testing.T) {
	const library = "# METADATA\n# title: T\n# description: D\npackage toy.lib\n\nnamed(x) if x.name == \"b\"\n\nname_of(x) := x.name\n\nsame(a, b) if a == b\n\neither(x) := x.a\n\neither(x) := x.b\n"
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
