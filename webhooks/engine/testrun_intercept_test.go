package engine

import (
	"encoding/json"
	"strings"
	"testing"
)

// What rules say in a test goes through what decides on requests: none of these tests would fail for itself, and each of these policies
// fails at the first request that its rule is about.
func TestRunHoldsWhatRulesSayToTheirShape(t *testing.T) {
	const valid = "valid_input if is_string(input.request.who)\n\n"
	for name, tc := range map[string]struct{ rules, test, want string }{
		"a misspelt key": {
			valid + denyMetadata + `deny contains object.union({"reason": "R", "message": "m"}, {"mesage": "m"}) if input.request.who == "ann"`,
			`count(policy.deny) == 1 with input as {"request": {"who": "ann"}}`, `p.rego:11: deny has no key "mesage": did you mean "message"?`,
		},
		"also where the input is not understood": {
			valid + denyMetadata + `deny contains {"reason": "R", "message": "m", "code": 400 + 18} if not input.request.x`,
			`count(policy.deny) == 1 with input as {"request": {}}`, `p.rego:11: deny.code is 418`,
		},
		"a reason that is not its own": {
			valid + denyMetadata + `deny contains {"reason": r, "message": "m"} if r := concat("", ["X"])`,
			`policy.deny with input as {}`, `p.rego:11: deny has the reason "X", but its METADATA has "R"`,
		},
		"a value that is undefined": {
			valid + denyMetadata + `deny contains {"reason": "R", "message": input.request.why} if input.request.who == "ann"`,
			`count(policy.deny) == 0 with input as {"request": {"who": "ann"}}`, `p.rego:11: this deny rule applies but its value is undefined`,
		},
		"a warning": {valid + `warn contains 1 + 2 if true`, `3 in policy.warn with input as {}`, "p.rego:8: warn must be a non-empty string, not number"},
		"a patch": {
			valid + `patch contains {"op": lower("AD"), "path": "/x", "value": 1} if true`,
			`count(policy.patch) == 1 with input as {}`, `p.rego:8: patch.op is "ad", not add, replace or remove`,
		},
		"two patches of a field": {
			valid + `patch contains {"op": "add", "path": "/x", "value": v} if some v in [1, 2]`,
			`count(policy.patch) == 2 with input as {}`, `more than one patch of /x`,
		},
		"a patch without a parent": {
			valid + `patch contains {"op": "add", "path": "/metadata/labels/a", "value": "b"} if true`,
			`count(policy.patch) == 1 with input as {"request": {"who": "ann", "object": {"metadata": {}}}}`,
			"patch does not apply to input.request.object: ",
		},
		"a merge makes the parent": {
			valid + `patch contains {"merge": {"metadata": {"labels": {"a": "b"}}}} if true`,
			`count(policy.patch) == 1 with input as {"request": {"who": "ann", "object": {"metadata": {}}}}`, "",
		},
		"an outcome": {
			valid + `outcome.supersedes contains 1 + 2 if true`,
			`3 in policy.outcome.supersedes with input as {}`, "outcome.supersedes must be a set or list of strings, not set",
		},
		"an outcome by another name": {
			valid + `outcome[x] contains "y" if some x in ["supercedes"]`,
			`count(policy.outcome) == 1 with input as {}`, `outcome has no key "supercedes": did you mean "supersedes"?`,
		},
		"an outcome that reads outcome": {
			valid + "outcome.supersedes contains \"x\" if true\n\n" + `outcome.two contains "y" if outcome.supersedes`, `policy.outcome with input as {}`, "",
		},
		"rules that read what rules say": {
			valid + denyMetadata + `deny contains {"reason": "R", "message": "m"} if input.request.who == "ann"` + "\n\n" +
				`warn contains "w" if count(deny) == 0`,
			`policy.warn == {"w"} with input as {"request": {"who": "bob"}}`, "",
		},
		"what is undefined where the input is not understood": {
			valid + denyMetadata + `deny contains {"reason": "R", "message": input.request.who} if not input.request.x`,
			`count(policy.deny) == 0 with input as {"request": {}}`, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			src := policy(tc.rules + "\n")
			src.Outcomes = []string{"supersedes"}
			src.Tests = []Module{{"p_test.rego", "package toy.p_test\n\nimport data.toy.p as policy\n\ntest_it if " + tc.test + "\n"}}
			r, err := RunNamedTests(t.Context(), src, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := r.Tests[0]
			if tc.want == "" && got.Problem != "" || !strings.Contains(got.Problem, tc.want) || got.Place != "p_test.rego:5" {
				t.Errorf("got %s: %q, want %q in it", got.Place, got.Problem, tc.want)
			}
		})
	}
}

// A merge patch is what RFC 7386 says it is; the cases are its own, and null for a member that is not there.
func TestMergePatch(t *testing.T) {
	for name, tc := range map[string]struct{ object, merge, want, operations string }{
		"parents are made":       {`{"metadata":{}}`, `{"metadata":{"labels":{"a":"b"}}}`, `{"metadata":{"labels":{"a":"b"}}}`, `[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`},
		"a null map is filled":   {`{"labels":null}`, `{"labels":{"a":"b"}}`, `{"labels":{"a":"b"}}`, `[{"op":"add","path":"/labels","value":{"a":"b"}}]`},
		"what is there stays":    {`{"labels":{"c":"d"}}`, `{"labels":{"x/y~":"b"}}`, `{"labels":{"c":"d","x/y~":"b"}}`, `[{"op":"add","path":"/labels/x~1y~0","value":"b"}]`},
		"what is so is let be":   {`{"labels":{"a":"b"}}`, `{"labels":{"a":"b"}}`, `{"labels":{"a":"b"}}`, `null`},
		"null removes":           {`{"a":{"b":"c"}}`, `{"a":{"b":null,"c":null}}`, `{"a":{}}`, `[{"op":"remove","path":"/a/b"}]`},
		"null adds nothing":      {`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`, `[{"op":"add","path":"/a","value":{"bb":{}}}]`},
		"lists are replaced":     {`{"a":["b"]}`, `{"a":["c",null]}`, `{"a":["c",null]}`, `[{"op":"add","path":"/a","value":["c",null]}]`},
		"no map becomes a map":   {`{"a":"foo"}`, `{"a":{"b":"c"}}`, `{"a":{"b":"c"}}`, `[{"op":"add","path":"/a","value":{"b":"c"}}]`},
		"large numbers are kept": {`{"a":12345678901234567890}`, `{"b":12345678901234567891}`, `{"a":12345678901234567890,"b":12345678901234567891}`, `[{"op":"add","path":"/b","value":12345678901234567891}]`},
	} {
		t.Run(name, func(t *testing.T) {
			merge, err := ParseValue([]byte(tc.merge))
			if err != nil {
				t.Fatal(err)
			}
			changed, operations, err := Apply([]byte(tc.object), []Patch{{Merge: &merge}})
			if err != nil {
				t.Fatal(err)
			}
			if string(changed) != tc.want {
				t.Errorf("got %s, want %s", changed, tc.want)
			}
			if text := string(must(json.Marshal(operations))); text != tc.operations {
				t.Errorf("got operations %s, want %s", text, tc.operations)
			}
		})
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestPatchesOfOneFieldClash(t *testing.T) {
	for rules, clashes := range map[string]bool{
		`patch contains {"merge": {"a": {"b": v}}} if some v in [1, 2]`:                                                                         true,
		"patch contains {\"merge\": {\"a\": {\"b\": 1}}} if true\n\npatch contains {\"op\": \"add\", \"path\": \"/a/b\", \"value\": 1} if true": true,
		"patch contains {\"merge\": {\"a\": {\"b\": 1}}} if true\n\npatch contains {\"op\": \"add\", \"path\": \"/a\", \"value\": {}} if true":  true,
		"patch contains {\"merge\": {\"a\": {\"b\": 1}}} if true\n\npatch contains {\"merge\": {\"a\": 1}} if true":                             true,
		"patch contains {\"merge\": {\"a\": {\"b\": 1}}} if true\n\npatch contains {\"merge\": {\"a\": {\"c\": 1}}} if true":                    false,
		"patch contains {\"merge\": {\"a\": []}} if true\n\npatch contains {\"op\": \"add\", \"path\": \"/a/-\", \"value\": 1} if true":         false,
	} {
		d, err := mustCompile(t, policy("valid_input if true\n\n"+rules+"\n")).Patch(t.Context(), input(t, `{}`), nil)
		if clashes {
			wantCause(t, err, ContractViolated, "more than one patch of /a")
		} else if err != nil {
			t.Errorf("%s: got %v, %v", rules, d, err)
		}
	}
}

// Questions that tests have a policy ask go through what requests have it ask: none of these is wrong as it is written.
func TestRunHoldsFactsToTheirShape(t *testing.T) {
	const kind = `"apiVersion": "toy/v1", "kind": "Loan"`
	for name, tc := range map[string]struct{ fact, test, want string }{
		"what is right": {`object.union({` + kind + `}, {"fields": {"book": input.request.book}})`, `policy.facts.x.kind == "Loan"`, ""},
		"a misspelt key": {
			`object.union({` + kind + `}, {"freshnes": "live"})`, `policy.facts.x.kind == "Loan"`, `facts.x has no key "freshnes": did you mean "freshness"?`,
		},
		"an unknown freshness": {
			`object.union({` + kind + `}, {"freshness": lower("LIFE")})`, `policy.facts.x.kind == "Loan"`, `facts.x.freshness is "life", not live`,
		},
		"by comprehension":       {`{k: v | some k, v in {"apiVerison": "toy/v1", "kind": "Loan"}}`, `policy.facts.x.kind == "Loan"`, `facts.x has no key "apiVerison": did you mean "apiVersion"?`},
		"a kind of a variable":   {`{"apiVersion": "toy/v1", "kind": input.request.kind}`, `policy.facts.x.kind == "Secret"`, "facts.x asks for toy/v1 Secret, which spec.reads does not list"},
		"all facts at once":      {`{"apiVersion": "toy/v1", "kind": input.request.kind}`, `count(policy.facts) == 2`, "spec.reads does not list"},
		"a fact that is not it":  {`{"apiVersion": "toy/v1", "kind": input.request.kind}`, `policy.facts.y == null`, ""},
		"a question of no shape": {`concat("", ["Loan"])`, `policy.facts.x == "Loan"`, "facts.x must be an object, not string"},
		"input of another type":  {`{` + kind + `, "name": input.request.number}`, `policy.facts.x.name == 7`, ""},
		"input that is not there": {
			`{` + kind + `, "name": input.request.nothing}`, `not policy.facts.x`, "",
		},
		"a parent": {`object.union({"parent": true}, {})`, `policy.facts.x.parent`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			src := policy("facts.x := " + tc.fact + "\n\nfacts[\"y\"] := null\n\nvalid_input if true\n\nwarn contains \"w\" if true\n")
			mustCompile(t, src)
			src.Tests = []Module{{"p_test.rego", "package toy.p_test\n\nimport data.toy.p as policy\n\ntest_it if " + tc.test +
				` with input as {"request": {"book": "b", "kind": "Secret", "number": 7}}` + "\n"}}
			r, err := RunNamedTests(t.Context(), src, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := r.Tests[0]
			if tc.want == "" && got.Problem != "" || !strings.Contains(got.Problem, tc.want) {
				t.Errorf("got %q, want %q in it", got.Problem, tc.want)
			}
			for _, line := range r.Uncovered {
				if !strings.HasPrefix(line, "p.rego:") {
					t.Errorf("%s is counted", line)
				}
			}
		})
	}
}
