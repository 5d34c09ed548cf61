package engine

import (
	"regexp"
	"strings"
	"testing"
)

const lendingTests = `package toy.lending_test

import data.toy.lending

test_deny_lent if count(lending.deny) == 1 with input as {
	"request": {"book": "b", "reader": "r", "branch": "n"},
	"facts": {"loans": [{"id": "loan-1", "reader": "x"}], "member": {}},
}
`

func runTests(t *testing.T, tests string) *TestRun {
	t.Helper()
	src := lending()
	src.Tests = []Module{{"lending_test.rego", tests}}
	r, err := RunNamedTests(t.Context(), src, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRunReportsTestsAndCoverage(t *testing.T) {
	r := runTests(t, lendingTests)
	if !r.Passed() || len(r.Tests) != 1 || r.Tests[0].Name != "toy.lending_test.test_deny_lent" {
		t.Errorf("got %+v", r)
	}
	if r.Coverage <= 0 || r.Coverage >= 100 || len(r.Uncovered) == 0 || !strings.HasPrefix(r.Uncovered[0], "lending.rego:") {
		t.Errorf("got coverage %v with %v uncovered", r.Coverage, r.Uncovered)
	}
}

func TestRunFails(t *testing.T) {
	for name, tc := range map[string]struct{ rule, problem, failedCase string }{
		"a failing test":       {"test_x if count(lending.deny) == 7 with input as {}", "failed", ""},
		"a failing row":        {"test_x[note] if { some note, n in {\"good\": 1, \"bad\": 2}; n == 1 }", "failed", "bad"},
		"a table without rows": {"test_x[note] if { some note, n in object.filter({\"a\": 1}, []); n == 1 }", "the table has no rows", ""},
		"a builtin error":      {"test_x if not to_number(\"x\") == 1", "to_number", ""},
		"no parameters":        {"test_x if data.parameters.days == 14", "failed", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := runTests(t, "package toy.lending_test\n\nimport data.toy.lending\n\n"+tc.rule+"\n\ntest_y if lending\n")
			got := r.Tests[0]
			if r.Passed() || !strings.Contains(got.Problem, tc.problem) || strings.Join(got.Cases, ",") != tc.failedCase {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestRunOfSomeTests(t *testing.T) {
	src := lending()
	src.Tests = []Module{{"lending_test.rego", lendingTests + `
test_allow if count(lending.deny) == 0 with input as {"request": {}, "facts": {"loans": [], "member": {}}}

test_broken[note] if { some note, n in {"bad": 2}; n == 1 }
`}}
	for pattern, want := range map[string]string{
		"": "allow broken deny_lent", "test_deny": "deny_lent", `^toy\.lending_test\.test_(allow|deny_lent)$`: "allow deny_lent", "nothing": "",
	} {
		r, err := RunNamedTests(t.Context(), src, regexp.MustCompile(pattern))
		if err != nil {
			t.Fatal(err)
		}
		var ran []string
		for _, test := range r.Tests {
			ran = append(ran, strings.TrimPrefix(test.Name, "toy.lending_test.test_"))
		}
		if got := strings.Join(ran, " "); got != want {
			t.Errorf("%q runs %q, not %q", pattern, got, want)
		}
	}
}

func TestRunRefusesTestsThatCannotRun(t *testing.T) {
	for name, tc := range map[string]struct{ tests, want string }{
		"syntax":               {"package toy.lending_test\n\ntest_x if {\n", "lending_test.rego:4:"},
		"in the policy itself": {"package toy.lending\n\ntest_x if true\n", "must be in a package that ends in _test"},
		"no tests":             {"package toy.lending_test\n\nx := 1\n", "no tests: "},
	} {
		t.Run(name, func(t *testing.T) {
			src := lending()
			src.Tests = []Module{{"lending_test.rego", tc.tests}}
			_, err := RunNamedTests(t.Context(), src, nil)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q in it", err, tc.want)
			}
		})
	}
}
