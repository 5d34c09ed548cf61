package engine

import (
	"strings"
	"testing"
)

// What has the whole input made is named with its place, and nothing else is.
func TestUnfollowed(t *testing.T) {
	const library = "# METADATA\n# title: T\n# description: D\npackage toy.lib\n\nencoded(x) := json.marshal(x)\n\neither(x) := x.a if true\n\nelse := x.b\n"
	for name, tc := range map[string]struct{ body, want string }{
		"members":                        {`input.request.a == 1; input.now > "2026"`, ""},
		"the whole request":              {`json.marshal(input.request) != ""`, ""},
		"elements of a member":           {`some x in input.request.list; x.y == 1`, ""},
		"a builtin":                      {"input.request.a == 1\njson.marshal(input) != \"\"", "p.rego:15:1: json.marshal(input)"},
		"a local":                        {"x := input\nwalk(x, [_, 1])", "p.rego:15:1: walk(x, [_, 1])"},
		"a comparison":                   {"input == input.request.a", "p.rego:14:1: input == input.request.a"},
		"in something made of it":        {"x := {\"k\": input}\nx.k.b == 1", "p.rego:14:1: x := {\"k\": input}"},
		"within a comprehension":         {"n := count([x |\nsome x in [1, 2]\njson.marshal(input) != \"\"])\nn > 1", "p.rego:16:1: json.marshal(input)"},
		"a name that is not known":       {"input[input.request.k] == 1", "p.rego:14:1: input[input.request.k] == 1"},
		"all members":                    {"some k\ninput[k].request == 1\ninput.request.b == 1", "p.rego:15:1: input[k].request == 1"},
		"a function of a library":        {`lib.encoded(input) != ""`, "lib.rego:6:15: json.marshal(x)"},
		"a function that is not whole":   {`f(input)`, ""},
		"with, within a comprehension":   {"n := count([1 |\nother with input as {}])\nn > 0", "p.rego:15:1: other with input as {}"},
		"with":                           {"true\nother with input as {}", "p.rego:15:1: other with input as {}"},
		"a function of its value":        {"lib.either(lib.either(input.request)) == 1", "p: values of functions that are handed to functions again"},
		"several":                        {"json.marshal(input) != \"\"\nyaml_of(input)", "p.rego:14:1: json.marshal(input) | p.rego:25:1: count(x)"},
		"the same twice, in one message": {"count(input) > 1; count(input) > 2", "p.rego:14:1: count(input) | p.rego:14:19: count(input)"},
	} {
		t.Run(name, func(t *testing.T) {
			src := policy("import data.toy.lib\n\nvalid_input if true\n\n" + denyMetadata +
				"deny contains {\"reason\": \"R\", \"message\": $\"{input.request.m}\"} if {\n" + tc.body + "\n}\n\n" +
				"_used if { f({}); other; lib.encoded({}); yaml_of({}) }\n\nf(x) if x.request.f == 1\n\nother if input.request.x\n\n" +
				"yaml_of(x) if {\ncount(x) > 7\n}\n")
			src.Libraries = []Module{{"lib.rego", library}}
			p := mustCompile(t, src)
			acceleratorOf(t, p)
			var told []string
			for _, e := range p.Unfollowed() {
				told = append(told, e.Error())
			}
			if got := strings.Join(told, " | "); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}
