package engine

import (
	"slices"
	"strings"
	"testing"
)

// A denial needs only the objects that it is based on where more of them can only add denials, and otherwise all: each of these rules is
// wrong about a part of the list, in one direction or the other.
func TestFactsOfWhichADenialNeedsOnlySomeObjects(t *testing.T) {
	const valid = "valid_input if {\n\tevery x in input.facts.a { is_string(x.name) }\n}\n\n"
	deny := func(body string) string {
		return denyMetadata + `deny contains {"reason": "R", "message": "m"} if {` + "\n\t" + strings.ReplaceAll(body, "; ", "\n\t") + "\n}\n"
	}
	for name, tc := range map[string]struct{ rules, want string }{
		"some":                        {deny(`some x in input.facts.a; x.name == input.request.name`), "a"},
		"two facts":                   {deny(`some x in input.facts.a; some y in input.facts.b; x.name == y.name`), "a b"},
		"a wildcard":                  {deny(`input.facts.a[_].name == "x"`), "a"},
		"an index that is used once":  {deny(`some i; input.facts.a[i].name == "x"`), "a"},
		"an element, negated":         {deny(`some x in input.facts.a; not x.done`), "a"},
		"a list of an element":        {deny(`some x in input.facts.a; count([y | some y in x.list; y > 1]) > 2`), "a"},
		"a helper":                    {deny(`taken`) + "\ntaken if {\n\tsome x in input.facts.a\n\tx.name\n}\n", "a"},
		"a function":                  {deny(`taken("x")`) + "\ntaken(n) if input.facts.a[_].name == n\n", "a"},
		"a set that is iterated over": {deny(`some n in names; n == "x"`) + "\nnames contains x.name if some x in input.facts.a\n", "a"},
		"a function of an element":    {deny(`some x in input.facts.a; bad(x)`) + "\nbad(x) if not x.done\n", "a"},
		"the message of an element":   {denyMetadata + "deny contains {\"reason\": \"R\", \"message\": $\"{x.name}\"} if some x in input.facts.a\n", "a"},

		"none":                          {deny(`not taken`) + "\ntaken if input.facts.a[_].name == \"x\"\n", ""},
		"a count":                       {deny(`count(input.facts.a) < 3`), ""},
		"a count of a part":             {deny(`count([x | some x in input.facts.a; x.done]) < 3`), ""},
		"every":                         {deny(`every x in input.facts.a { x.done }`), ""},
		"the first":                     {deny(`input.facts.a[0].name == "x"`), ""},
		"a position that is compared":   {deny(`some i; input.facts.a[i].name == "x"; i > 2`), ""},
		"one position of two lists":     {deny(`some i; input.facts.a[i].name == input.facts.b[i].name`), ""},
		"a variable":                    {deny(`all := input.facts.a; some x in all; x.done`), ""},
		"input":                         {deny(`some x in input.facts.a; object.get(input, ["facts", "a"], [])`), ""},
		"an argument":                   {deny(`taken(input.facts.a)`) + "\ntaken(list) if count(list) < 3\n", ""},
		"a set that is counted":         {deny(`count(names) < 3`) + "\nnames contains x.name if some x in input.facts.a\n", ""},
		"a set that lacks something":    {deny(`not "x" in names`) + "\nnames contains x.name if some x in input.facts.a\n", ""},
		"a rule that may be false":      {deny(`taken == false`) + "\ndefault taken := false\n\ntaken if input.facts.a[_].name == \"x\"\n", ""},
		"another rule otherwise":        {deny(`taken`) + "\ntaken if {\n\tinput.facts.a[_].name == \"x\"\n\tfalse\n} else if not input.facts.b\n", ""},
		"a value":                       {deny(`first == "x"`) + "\nfirst := x.name if some x in input.facts.a\n", ""},
		"an object":                     {deny(`count(done) < 3`) + "\ndone[x.name] := true if some x in input.facts.a\n", ""},
		"the number in the message":     {denyMetadata + "deny contains {\"reason\": \"R\", \"message\": $\"{count(input.facts.a)}\"} if some x in input.facts.a\n", ""},
		"once as some, once as none":    {deny(`some x in input.facts.a; x.done`) + "\n" + deny(`not taken`) + "\ntaken if input.facts.a[_].name == \"x\"\n", ""},
		"a helper that is negated once": {deny(`taken; not free`) + "\ntaken if some x in input.facts.a\n\nfree if not taken\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			facts := ""
			for _, fact := range []string{"a", "b"} {
				facts += "facts." + fact + " := {\"apiVersion\": \"toy/v1\", \"kind\": \"Loan\"}\n\n"
			}
			p := mustCompile(t, policy(facts+valid+tc.rules))
			if got := p.Existential(); !slices.Equal(got, strings.Fields(tc.want)) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// What a fact's query needs of another fact is not a part of it.
func TestFactsThatOtherFactsRead(t *testing.T) {
	p := mustCompile(t, policy(`facts.a := {"apiVersion": "toy/v1", "kind": "Loan"}

facts.b := {"apiVersion": "toy/v1", "kind": "Loan", "namespaces": [x.name | some x in input.facts.a]}

valid_input if true

`+denyMetadata+`deny contains {"reason": "R", "message": "m"} if {
	some x in input.facts.a
	some y in input.facts.b
	x.name == y.name
}
`))
	if got := p.Existential(); !slices.Equal(got, []string{"b"}) {
		t.Errorf("got %q", got)
	}
}
