package engine

import (
	"errors"
	"strings"
	"testing"
)

func TestCompileSaysWhatIsWrongAndWhere(t *testing.T) {
	const valid = "valid_input if true\n\n"
	const deny = denyMetadata + `deny contains {"reason": "R", "message": "m"} if true` + "\n\n"
	for name, tc := range map[string]struct{ rules, want string }{
		"syntax":                  {valid + "deny contains {\n", "p.rego:9:0: unexpected eof"},
		"unsafe variable":         {valid + deny + "a := b if true\n", "p.rego:13:6: var b is unsafe"},
		"unused variable":         {valid + deny + "a if { b := 1 }\n", "assigned var b unused"},
		"unknown function":        {valid + deny + "a := foo(1)\n", "undefined function foo"},
		"network":                 {valid + deny + "a := http.send({})\n", "undefined function http.send: Sallyport withholds this builtin; use facts"},
		"clock":                   {valid + deny + "a := time.now_ns()\n", "undefined function time.now_ns: Sallyport withholds this builtin; use input.now"},
		"network behind with":     {valid + deny + "a := 1 if count([1]) == 2 with count as http.send\n", "var http is unsafe"},
		"own annotations":         {valid + deny + "a := rego.metadata.rule()\n", "undefined function rego.metadata.rule"},
		"large numbers":           {valid + deny + "a := numbers.range(1, 9)\n", "undefined function numbers.range: Sallyport withholds this builtin; use a list in data.parameters"},
		"rego.v2":                 {"import rego.v2\n\n" + valid + deny, "rego.v2"},
		"no valid_input":          {deny, "p: rule valid_input is missing"},
		"no outcome":              {valid, "defines none of deny, warn, patch and outcome"},
		"deny complete":           {valid + denyMetadata + "deny := {\"x\"} if true\n", "p.rego:11:1: deny must be written"},
		"deny with else":          {valid + denyMetadata + "deny := 1 if false\n\nelse := 2\n", "deny must be written"},
		"a reason of its own":     {valid + strings.TrimPrefix(denyMetadata, "\n") + "deny contains {\"reason\": \"Other\", \"message\": \"m\"} if true\n", `p.rego:11:1: deny has the reason "Other", but its METADATA has custom.reason "R"`},
		"deny without metadata":   {valid + "deny contains {\"reason\": \"R\", \"message\": \"m\"} if true\n", "p.rego:8:1: deny needs METADATA"},
		"reason not CamelCase":    {valid + strings.Replace(deny, "reason: R", "reason: not_ok", 1), "CamelCase"},
		"no final denial":         {valid + strings.Replace(deny, "remedy: do it", "remedy: x, override: true", 1), "custom.override is allowed only on deny"},
		"a final warning":         {valid + "# METADATA\n# custom: {override: false}\nwarn contains \"w\" if true\n", "custom.override is allowed only on deny"},
		"unknown custom key":      {valid + strings.Replace(deny, "remedy: do it", "remedy: x, severity: high", 1), "custom.severity"},
		"fact with else":          {valid + deny + "facts.x := null if input.a\n\nelse := {}\n", "a fact cannot have else"},
		"fact with default":       {valid + deny + "default facts.x := null\n", "a fact cannot have a default"},
		"fact with computed name": {valid + deny + "facts[n] := null if some n in input.names\n", "constant name"},
		"facts as a whole":        {valid + deny + "facts := {\"x\": null}\n", "constant name"},
		"fact never asked for":    {valid + deny + "a if input.names[input.facts.loan]\n", "input.facts.loan is read but there is no rule facts.loan"},
		"fact by computed name":   {valid + deny + "a if some n, input.facts[n] == 1\n", "p.rego"},
		"all facts":               {valid + deny + "a := input.facts\n", "input.facts must be followed"},
		"fact of the third round": {valid + deny + "facts.x := null\n\nfacts.y := _y\n\n_y := input.facts.x\n\nfacts.z := input.facts.y\n", "p.rego:19:12: facts.z reads input.facts.y, which reads facts itself: a fact may read only facts that read none"},
		"fact that reads itself":  {valid + deny + "facts.x := input.facts.x\n", "facts.x reads input.facts.x, which reads facts itself"},
		"reserved name":           {valid + deny + "_sallyport_x := 1\n", "_sallyport_"},
		"valid_input a string":    {"valid_input := \"true\"\n\n" + deny, "valid_input = true"},
		"valid_input as set":      {"valid_input contains 1 if true\n\n" + deny, "valid_input must be written"},
		"valid_parameters as set": {valid + deny + "valid_parameters contains 1 if true\n", "valid_parameters must be written"},
		"wrong parameters":        {valid + deny + "valid_parameters if data.parameters.n == 2\n", "p.rego:13:1: spec.parameters are not valid; required: rule valid_parameters is true"},
		"parameters, described": {
			valid + deny + "# METADATA\n# description: n is two.\nvalid_parameters if data.parameters.n == 2\n", "spec.parameters are not valid; required: n is two.",
		},
		"parameters, by input":   {valid + deny + "valid_parameters if input.n\n", "spec.parameters are not valid"},
		"parameters, with error": {valid + deny + "valid_parameters if 1 / data.parameters.zero == 1\n", "validating spec.parameters"},
	} {
		t.Run(name, func(t *testing.T) {
			source := policy(tc.rules)
			source.Parameters = []byte(`{"n": 1, "zero": 0}`)
			_, err := compile(source)
			if err == nil {
				t.Fatal("compiled")
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got:\n%v\nwant %q in it", err, tc.want)
			}
		})
	}
}

func TestCompileTakesParametersThatAreValid(t *testing.T) {
	source := policy("valid_input if true\n\n" + denyMetadata + `deny contains {"reason": "R", "message": "m"} if true` +
		"\n\nvalid_parameters if data.parameters.n == 1\n\nvalid_parameters if data.parameters.n == 2\n")
	for text, want := range map[string]bool{`{"n": 1}`: true, `{"n": 2}`: true, `{"n": 3}`: false, `{}`: false} {
		source.Parameters = []byte(text)
		if _, err := compile(source); (err == nil) != want {
			t.Errorf("%s: got %v", text, err)
		}
	}
}

// Each of these bodies is undefined, and its denial silent, for a request without x.
func TestCompileRefusesNegationsThatGoSilent(t *testing.T) {
	const helpers = "valid_input if true\n\n_is_one if input.x == 1\n\n_one(v) if v == 1\n\n_list := [1]\n\n" + denyMetadata
	rule := func(body string) Source {
		return policy(helpers + `deny contains {"reason": "R", "message": "m"} if { ` + body + " }\n")
	}
	for _, body := range []string{
		"not is_string(input.x)", "not input.x > 1", "not input.x in {1}", `not startswith(input.x, "a")`, "not _one(input.x)",
		"not input.m[input.x]", "some y in [input]; not is_string(y.x)", "not count(input.x) == 0", `not {"a": input.x} == {"a": 1}`,
		"not input.x != 1", "not 1 in input.x", "not input.x + 1 == 2", "not [input.x] == [1]", "not _one(data.parameters.x)",
		"every y in [1] { y == 1; not is_string(input.x) }",
	} {
		if _, err := compile(rule(body)); err == nil || !strings.Contains(err.Error(), "is undefined, not true") {
			t.Errorf("%s: got %v", body, err)
		}
	}
	for _, body := range []string{
		"not input.x", "not input.x == 1", "not _is_one", "some y in [2]; not _one(y)", "some y in [2]; not y in _list",
		"some y in [input]; not y.x == 1", "not [y | y := input.x] == [1]", "not _one(2)",
	} {
		d, err := mustCompile(t, rule(body)).Decide(t.Context(), input(t, `{}`), nil)
		if err != nil || len(d.Denials) != 1 {
			t.Errorf("%s: got %+v, %v without x, want a denial", body, d, err)
		}
	}
}

func TestCompileChecksPackagesLibrariesAndParameters(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Source)
		want   string
	}{
		"foreign package": {func(s *Source) { s.Package = "toy.other" }, "is not spec.package"},
		"undescribed package": {func(s *Source) {
			s.Modules[0].Source = strings.Replace(lendingPolicy, "# description: A book is lent to one reader at a time.\n", "", 1)
		}, "has no METADATA with title and description"},
		"library reads input":        {func(s *Source) { s.Libraries[0].Source += "\nx := [1]\n\ny := x[input.y]\n" }, "must not read input"},
		"library reads parameters":   {func(s *Source) { s.Libraries[0].Source += "\nx := data.parameters.y\n" }, "must not read data.parameters"},
		"library has a syntax error": {func(s *Source) { s.Libraries[0].Source += "\nx := \n" }, "readers.rego:"},
		"library is missing":         {func(s *Source) { s.Libraries = nil }, "lending.rego:6:8: data.toy.lib.readers is neither"},
		"data of nobody":             {func(s *Source) { s.Modules[0].Source += "\nx if data.toy.nothing.y\n" }, "data.toy.nothing.y is neither a parameter"},
		"all of data":                {func(s *Source) { s.Modules[0].Source += "\nx if data.toy\n" }, "data.toy is neither a parameter"},
		"a typo in a library's rule": {func(s *Source) { s.Modules[0].Source += "\nx if readers.stuff\n" }, "toy.lib.readers has no rule \"stuff\""},
		"parameters are a list":      {func(s *Source) { s.Parameters = []byte("[]") }, "spec.parameters"},
		"parameters repeat a key":    {func(s *Source) { s.Parameters = []byte(`{"a": 1, "a": 2}`) }, "spec.parameters"},
	} {
		t.Run(name, func(t *testing.T) {
			src := lending()
			tc.change(&src)
			_, err := compile(src)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q in it", err, tc.want)
			}
		})
	}
}

// A misspelled field would be undefined for every request.
func TestSchemaFindsMisspelledFields(t *testing.T) {
	src := lending()
	src.Schema = []byte(`{"type": "object", "properties": {"now": {"type": "string"}, "facts": {}, "request": {"type": "object", "properties": {
		"book": {}, "branch": {}, "reader": {}, "guest": {}, "shelf": {}}}}}`)
	mustCompile(t, src)
	src.Modules[0].Source = strings.Replace(lendingPolicy, "is_string(input.request.book)", "is_string(input.request.bok)", 1)
	if _, err := compile(src); err == nil || !strings.Contains(err.Error(), "lending.rego:19:12: undefined ref: input.request.bok") {
		t.Errorf("got %v", err)
	}
}

// One broken library must not take the policies along that do not need it.
func TestABrokenLibraryIsToldOnlyToThoseWhoNeedIt(t *testing.T) {
	src := lending()
	src.Libraries[1].Source = "package toy.lib.unused\n\nx := \n"
	mustCompile(t, src)
}

func TestRevisionFollowsWhatIsUsed(t *testing.T) {
	base := mustCompile(t, lending()).Revision()
	for name, tc := range map[string]struct {
		change func(*Source)
		same   bool
	}{
		"nothing":           {func(*Source) {}, true},
		"an unused library": {func(s *Source) { s.Libraries[1].Source += "\ny := 2\n" }, true},
		"a used library":    {func(s *Source) { s.Libraries[0].Source += "\ny := 2\n" }, false},
		"a parameter":       {func(s *Source) { s.Parameters = []byte(`{"days": 15}`) }, false},
		"a comment":         {func(s *Source) { s.Modules[0].Source += "\n# more\n" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			src := lending()
			tc.change(&src)
			if got := mustCompile(t, src).Revision(); (got == base) != tc.same {
				t.Errorf("revision %s against %s, want the same: %v", got, base, tc.same)
			}
		})
	}
}

func TestParseValue(t *testing.T) {
	for name, text := range map[string]string{
		"duplicate key":        `{"a": 1, "a": 2}`,
		"nested duplicate key": `{"x": [{"a": 1, "a": 2}]}`,
		"trailing data":        `{} {}`,
		"nothing":              ``,
		"half a document":      `{"a": [1, `,
		"not JSON":             `{a: 1}`,
		"invalid UTF-8":        "\"\xff\"",
	} {
		if _, err := ParseValue([]byte(text)); err == nil {
			t.Errorf("%s: %q was accepted", name, text)
		}
	}
	const text = `{"a":[1,2.5,"x",null,true,{"b":12345678901234567890}]}`
	v, err := ParseValue([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	got, err := v.MarshalJSON()
	if err != nil || string(got) != text {
		t.Errorf("got %s, %v back", got, err)
	}
	var again Value
	if err := again.UnmarshalJSON(got); err != nil || again.Get("a").IsNull() {
		t.Errorf("got %v, %v from %s", again, err, got)
	}
}

// A number that has a million digits when it is looked at makes of every comparison something that takes minutes, or of OPA's store a
// panic.
func TestNumbersOutOfProportionAreRefused(t *testing.T) {
	for name, src := range map[string]Source{
		"in the text":       policy("valid_input if true\n\nwarn contains \"w\" if input.request.x < 1e1000000\n"),
		"in the parameters": func() Source { s := policy(harmlessRules); s.Parameters = []byte(`{"a": [1e1000000]}`); return s }(),
	} {
		_, err := compile(src)
		var errs CompileErrors
		if !errors.As(err, &errs) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// Each of these would fail at the first request that its rule is about, and not before.
func TestCompileHoldsWhatIsLiteralToItsShape(t *testing.T) {
	const helper = `_refusal(message) := {"reason": "R", "mesage": message}` + "\n\n" + `_fixed := {"reason": "R", "message": "m", "detailz": {}}` + "\n\n"
	const library = "# METADATA\n# title: T\n# description: D\npackage toy.lib\n\nrefusal(m) := {\"reason\": \"R\", \"msg\": m}\n"
	deny := func(said, body string) string {
		return helper + "valid_input if true\n\n" + denyMetadata + "deny contains " + said + " if " + body + "\n"
	}
	rule := func(text string) string { return "valid_input if true\n\n" + text + "\n" }
	for name, tc := range map[string]struct{ rules, want string }{
		"a misspelt key":        {deny(`{"reason": "R", "mesage": "m"}`, "true"), `p.rego:15:31: deny has no key "mesage": did you mean "message"? allowed are cause, code, details, message, reason and remedy`},
		"a key too many":        {deny(`{"reason": "R", "message": "m", "severity": "high"}`, "true"), `p.rego:15:47: deny has no key "severity": allowed are cause, code, details, message, reason and remedy`},
		"a code of its own":     {deny(`{"reason": "R", "message": "m", "code": 418}`, "true"), "p.rego:15:55: deny.code is 418, not one of 403 409 422 429"},
		"a code as text":        {deny(`{"reason": "R", "message": "m", "code": "409"}`, "true"), `deny.code must be a number, not string`},
		"no message":            {deny(`{"reason": "R"}`, "true"), "p.rego:15:15: deny has no message"},
		"an empty message":      {deny(`{"reason": "R", "message": ""}`, "true"), `deny.message must be a non-empty string, not ""`},
		"a list for a message":  {deny(`{"reason": "R", "message": ["m", input.x]}`, "true"), `deny.message must be a non-empty string, not array`},
		"misspelt details":      {deny(`{"reason": "R", "message": "m", "details": {"nam": input.x}}`, "true"), `deny.details has no key "nam": did you mean "name"?`},
		"a text":                {deny(`"no"`, "true"), `deny must be an object, not string`},
		"a local":               {deny("d", `{ d := {"reason": "R", "msg": "m"} }`), `p.rego:15:43: deny has no key "msg": allowed are`},
		"a function":            {deny(`_refusal("m")`, "true"), `p.rego:6:38: deny has no key "mesage": did you mean "message"?`},
		"a rule":                {deny("_fixed", "true"), `p.rego:8:43: deny has no key "detailz": did you mean "details"?`},
		"a rule behind a local": {deny("d", "d := _fixed"), `deny has no key "detailz"`},
		"a rule beside imports": {"import input.request\n\n" + deny("_fixed", "request.x"), `deny has no key "detailz"`},
		"a library's function":  {"import data.toy.lib\n\n" + deny(`lib.refusal("m")`, "true"), `lib.rego:6:31: deny has no key "msg"`},
		"a warning":             {rule("warn contains 5 if true"), "p.rego:8:15: warn must be a non-empty string, not number"},
		"an empty warning":      {rule(`warn contains "" if true`), `warn must be a non-empty string, not ""`},
		"a patch's op":          {rule(`patch contains {"op": "ad", "path": "/x", "value": 1} if true`), `p.rego:8:23: patch.op is "ad", not add, replace or remove`},
		"a patch's path":        {rule(`patch contains {"op": "add", "path": "x", "value": 1} if true`), `patch.path is "x", which does not begin with "/"`},
		"a patch without value": {rule(`patch contains {"op": "add", "path": "/x", "valeu": 1} if true`), `patch has no key "valeu": did you mean "value"?`},
		"a removal with value":  {rule(`patch contains {"op": "remove", "path": "/x", "value": 1} if true`), `patch has no key "value": allowed are op and path`},
		"merge and op":          {rule(`patch contains {"merge": {}, "op": "add"} if true`), `patch has no key "op": allowed are merge`},
		"a merge of a list":     {rule(`patch contains {"merge": []} if true`), "patch.merge must be an object, not array"},
		"an outcome":            {rule(`outcome.supercedes contains "x" if true`), `p.rego:8:9: outcome has no key "supercedes": did you mean "supersedes"? allowed are supersedes`},
		"an outcome as a whole": {rule(`outcome := {"supersedes": "x"}`), `outcome.supersedes must be a set or list of strings, not string`},
		"an outcome of numbers": {rule(`outcome.supersedes contains 7 if true`), "outcome.supersedes must be a set or list of strings"},
	} {
		t.Run(name, func(t *testing.T) {
			source := policy(tc.rules)
			source.Outcomes = []string{"supersedes"}
			source.Libraries = []Module{{"lib.rego", library}}
			_, err := compile(source)
			var errs CompileErrors
			if !errors.As(err, &errs) || !errs[0].Contract || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got:\n%v\nwant %q in it", err, tc.want)
			}
		})
	}
	for _, rules := range []string{
		deny(`{"reason": "R", "message": $"{input.x}", "code": 409, "details": {"name": input.x, "uid": null}}`, "true"),
		deny(`{"reason": "R", "message": input.x, input.y: 1}`, "true"), deny("d", `{ some d in input.list }`), deny("input.d", "true"),
		rule(`patch contains {"merge": {"metadata": {"labels": {"a": "b"}}}} if true`), rule(`patch contains {"op": input.op, "path": "/x"} if true`),
		rule(`outcome.supersedes contains input.x if true`), rule(`outcome["supersedes"] := ["x", input.x]`), rule(`outcome[x] contains "y" if some x in input.xs`),
	} {
		source := policy(rules)
		source.Outcomes = []string{"supersedes"}
		mustCompile(t, source)
	}
}
