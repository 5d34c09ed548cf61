package engine

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFailingTestsShowWhatTheyGotAndWanted(t *testing.T) {
	src := policy("valid_input if true\n\n" + denyMetadata + `deny contains {"reason": "R", "message": $"no {input.what}"} if input.what` + "\n\n" + "most := 3\n\ntwice(n) := n * 2\n")
	src.Tests = []Module{{"p_test.rego", `package toy.p_test

import data.toy.p as policy

test_equal if policy.deny == set() with input as {"what": "x"}

test_number if policy.most == 4

test_count if count(policy.deny) == 2 with input as {"what": "x"}

test_member if { w := {"what": "x"}; {"reason": "R", "message": "y"} in policy.deny with input as w }

test_undefined if policy.deny[{"reason": "R", "message": "z"}]

test_less if policy.most < 3

test_negated if not policy.most == 3

test_function if policy.twice(4) == 9

test_bare if startswith("abc", "x")

test_two if {
	policy.most == 3
	policy.twice(2) ==
		5
}

test_rows[note] if {
	some note, tc in {"good": {"n": 1, "want": 2}, "bad": {"n": 2, "want": 5}}
	policy.twice(tc.n) == tc.want
}

test_local if {
	got := policy.twice(3)
	got == 7
}

test_missing if {
	got := json.unmarshal("{\"a\": 1}")
	got.b == 2
}

test_every if every n in [1, 2] { policy.twice(n) == 2 }

test_long if "z" == concat("", [x | some _ in split("` + strings.Repeat("a", 300) + `", ""); x := "yy"])
`}}
	r, err := RunNamedTests(t.Context(), src, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, test := range r.Tests {
		got[strings.TrimPrefix(test.Name, "toy.p_test.test_")] = strings.TrimSuffix(test.Output, "\n")
	}
	want := map[string]string{
		"equal":     `p_test.rego:5: policy.deny == set() with input as {"what": "x"}: got {{"message": "no x", "reason": "R"}}, want set()`,
		"number":    `p_test.rego:7: policy.most == 4: got 3, want 4`,
		"count":     `p_test.rego:9: count(policy.deny) == 2 with input as {"what": "x"}: got 1, want 2`,
		"member":    `p_test.rego:11: {"reason": "R", "message": "y"} in policy.deny with input as w: got {{"message": "no x", "reason": "R"}}, want {"message": "y", "reason": "R"} in it`,
		"undefined": `p_test.rego:13: policy.deny[{"reason": "R", "message": "z"}]: got undefined`,
		"less":      `p_test.rego:15: policy.most < 3: got 3, want less than 3`,
		"negated":   `p_test.rego:17: not policy.most == 3: it holds`,
		"function":  `p_test.rego:19: policy.twice(4) == 9: got 8, want 9`,
		"bare":      `p_test.rego:21: startswith("abc", "x"): got false`,
		"two":       `p_test.rego:25: policy.twice(2) == ...: got 4, want 5`,
		"rows":      `"bad": p_test.rego:31: policy.twice(tc.n) == tc.want: got 4, want 5`,
		"missing":   `p_test.rego:41: got.b == 2: got undefined, want 2`,
		"local":     `p_test.rego:36: got == 7: got 6, want 7`,
	}
	long := got["long"]
	if delete(got, "long"); len(long) > 700 || !strings.Contains(long, `got "z", want "yyyy`) || !strings.HasSuffix(long, "yy...") {
		t.Errorf("got %s", long)
	}
	if every := got["every"]; !strings.Contains(every, "p_test.rego:44: every n in [1, 2]") {
		t.Errorf("got %s", every)
	}
	delete(got, "every")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
