package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// told puts an expression and what is because of it in a line each.
func told(u *Unmet) string {
	var lines []string
	for ; u != nil; u = u.Because {
		line := fmt.Sprintf("%d:%d %s `%s`", u.Row, u.Col, u.Kind, u.Text)
		if u.Part != "" {
			line += fmt.Sprintf(" part `%s`", u.Part)
		}
		for _, v := range u.Values {
			text, _ := v.Value.MarshalJSON()
			if !v.Defined {
				text = []byte("undefined")
			}
			line += fmt.Sprintf(" %s=%s", v.Name, text)
		}
		if u.Others > 0 {
			line += fmt.Sprintf(" and %d others", u.Others)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func explained(t *testing.T, src Source, request string, answers map[string]any) *Explanation {
	t.Helper()
	x, err := mustCompile(t, src).Explain(t.Context(), input(t, request), &shelf{cached: answers, live: answers}, false)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// rule of an explanation, by its name and title.
func (x *Explanation) rule(t *testing.T, name, title string) *ExplainedRule {
	t.Helper()
	i := slices.IndexFunc(x.Rules, func(r ExplainedRule) bool { return r.Name == name && r.Title == title })
	if i < 0 {
		t.Fatalf("there is no rule %s %q in %+v", name, title, x.Rules)
	}
	return &x.Rules[i]
}

func TestExplainRules(t *testing.T) {
	for name, tc := range map[string]struct {
		request string
		answers map[string]any
		lent    string // why the first denial does not apply; "!" if it does
		member  string
	}{
		"nothing is there to object to": {
			`{"book": "b", "reader": "r", "guest": false, "branch": "n"}`, map[string]any{"loans": []any{}, "member": map[string]any{}},
			"31:2 NoneSuch `some loan in input.facts.loans` input.facts.loans=[]",
			"42:2 NotTrue `input.facts.member == null` input.facts.member={}",
		},
		"a negation that does not hold": {
			`{"book": "b", "reader": "staff-r", "guest": false, "branch": "n"}`, map[string]any{"loans": []any{loan("x")}, "member": map[string]any{}},
			"32:2 Holds `not _by_staff` _by_staff=true",
			"42:2 NotTrue `input.facts.member == null` input.facts.member={}",
		},
		"it applies": {
			`{"book": "b", "reader": "r", "guest": true, "branch": "n"}`, map[string]any{"loans": []any{loan("x"), loan("y")}},
			"!", "41:2 Holds `not input.request.guest` input.request.guest=true",
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := explained(t, lending(), tc.request, tc.answers)
			if x.Err != nil || x.Invalid != nil || !x.Asked {
				t.Fatalf("it did not decide: %v, %s", x.Err, told(x.Invalid))
			}
			for title, want := range map[string]string{"The book is lent": tc.lent, "Not a member": tc.member} {
				r := x.rule(t, "deny", title)
				got := told(r.Unmet)
				if len(r.Values) > 0 {
					got = "!"
				}
				if got != want {
					t.Errorf("%s: got\n%s\nwant\n%s", title, got, want)
				}
			}
		})
	}
}

// What a rule asks is followed into other rules, also where it was evaluated before, and into libraries.
func TestExplainFollowsRules(t *testing.T) {
	x := explained(t, lending(), `{"book": "b", "reader": "r", "guest": true, "branch": "n"}`, map[string]any{"loans": []any{loan("x")}})
	recalls := x.rule(t, "outcome.recalls", "")
	want := "53:2 NotTrue `readers.staff(input.request.reader)` input.request.reader=\"r\"\n6:16 NotTrue `startswith(name, \"staff-\")` name=\"r\""
	if got := told(recalls.Unmet); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	src := policy(denyMetadata + `deny contains {"reason": "R", "message": "m"} if { _far; _never }

valid_input if true

_far if _nearer

_nearer if every x in input.request.list { _good(x) }

_good(x) if x > 1

_never if false
`)
	x = explained(t, src, `{"list": [2, 3, 1, 0]}`, nil)
	want = "9:52 NotTrue `_far` _far=undefined\n13:9 NotTrue `_nearer` _nearer=undefined\n" +
		"15:12 NotTrue `every x in input.request.list { _good(x) }` input.request.list=[2,3,1,0]\n" +
		"15:44 NotTrue `_good(x)` x=1\n17:13 NotTrue `x > 1` x=1"
	if got := told(x.Rules[0].Unmet); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// Of a reference into any of many things, what it goes into is shown, under its own name.
func TestExplainShowsWhatAReferenceGoesInto(t *testing.T) {
	src := policy(denyMetadata + `deny contains {"reason": "R", "message": "m"} if {
	some x
	input.request.tags[x].name == "a"
}

valid_input if true
`)
	x := explained(t, src, `{"tags": {"b": {"name": "c"}}}`, nil)
	if got, want := told(x.Rules[0].Unmet), "11:2 NotTrue `input.request.tags[x].name == \"a\"` input.request.tags={\"b\":{\"name\":\"c\"}}"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// What a call gives has no name, so that the call itself is shown for it.
func TestExplainShowsCallsByWhatTheyGive(t *testing.T) {
	src := policy(denyMetadata + `deny contains {"reason": "R", "message": "m"} if {
	print()
	count(input.request.list) > 1 + input.request.more
}

valid_input if true
`)
	x := explained(t, src, `{"list": [2, 3], "more": 1}`, nil)
	want := "11:2 NotTrue `count(input.request.list) > 1 + input.request.more` count(input.request.list)=2 1 + input.request.more=2"
	if got := told(x.Rules[0].Unmet); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// One expression may have been asked about many things.
func TestExplainCountsTheOthers(t *testing.T) {
	src := policy(denyMetadata + `deny contains {"reason": "R", "message": $"{x}"} if { some x in input.request.list; x > 5 }

valid_input if true
`)
	x := explained(t, src, `{"list": [2, 3, 2, 1]}`, nil)
	if got, want := told(x.Rules[0].Unmet), "9:85 NotTrue `x > 5` x=2 and 2 others"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// Rules that an index leaves out of a decision are explained like all others, and an error of a builtin that the index spares a
// decision is none in an explanation.
func TestExplainWhatAnIndexLeavesOut(t *testing.T) {
	src := policy(denyMetadata + `deny contains {"reason": "R", "message": "m"} if {
	to_number(input.request.n) > 1
	input.request.kind == "A"
}

valid_input if true
`)
	x := explained(t, src, `{"kind": "B", "n": "7"}`, nil)
	if got, want := told(x.Rules[0].Unmet), "11:2 NotTrue `input.request.kind == \"A\"` input.request.kind=\"B\""; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	x = explained(t, src, `{"kind": "B", "n": "x"}`, nil)
	if got := told(x.Rules[0].Unmet); x.Err != nil || !strings.HasPrefix(got, "10:2 NotTrue `to_number(input.request.n) > 1`") {
		t.Errorf("got %v and\n%s", x.Err, got)
	}
}

func TestExplainWhatIsNotUnderstood(t *testing.T) {
	x := explained(t, lending(), `{"book": 7, "reader": "r", "guest": true, "branch": "n"}`, nil)
	if want := "facts.loans.fields.book must be a non-empty string, not number"; len(x.Facts) != 2 || x.Facts[0].Err == nil || x.Facts[0].Err.Error() != want {
		t.Errorf("facts are %+v", x.Facts)
	}
	x = explained(t, lending(), `{"reader": "r", "guest": true, "branch": "n"}`, nil)
	got := told(x.Facts[0].Undefined)
	if !strings.HasPrefix(got, "10:21 Missing") || !strings.HasSuffix(got, "part `input.request.book` input.request.book=undefined") || x.Asked {
		t.Errorf("the fact is undefined at\n%s", got)
	}
	x = explained(t, lending(), `{"book": "b", "reader": "r", "guest": true, "branch": "n"}`, map[string]any{"loans": []any{loan("x"), map[string]any{"reader": 7}}})
	want := "20:2 NotTrue `every loan in input.facts.loans { is_string(loan.reader) }` input.facts.loans=[{\"due\":\"Friday\",\"id\":\"loan-1\",\"reader\":\"x\"},{\"reader\":7}]\n" +
		"20:36 NotTrue `is_string(loan.reader)` loan.reader=7"
	if got := told(x.Invalid); got != want || x.Err.Cause != InputNotUnderstood {
		t.Errorf("%v: got\n%s\nwant\n%s", x.Err, got, want)
	}
}

// What was not answered is told of each fact, and the others are asked all the same.
func TestExplainUnansweredFacts(t *testing.T) {
	p := mustCompile(t, lending())
	gone := errors.New("gone")
	x, err := p.Explain(t.Context(), input(t, `{"book": "b", "reader": "r", "guest": false, "branch": "n"}`), failing{gone}, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range x.Facts {
		if !errors.Is(f.Err, gone) || f.Query == nil {
			t.Errorf("fact %s: %v", f.Name, f.Err)
		}
	}
	if x.Err == nil || x.Err.Cause != FactUnavailable || x.Asked {
		t.Errorf("it says %v, asked %t", x.Err, x.Asked)
	}
}

func TestExplainPatch(t *testing.T) {
	x, err := mustCompile(t, lending()).Explain(t.Context(), input(t, `{"book": "b", "reader": "r", "guest": true, "branch": "n"}`),
		&shelf{cached: map[string]any{"loans": []any{}}, live: map[string]any{"loans": []any{}}}, true)
	if err != nil || len(x.Rules) != 2 || len(x.Rules[0].Values) != 1 {
		t.Fatalf("%v: %+v", err, x)
	}
	if got := told(x.Rules[1].Unmet); !strings.HasPrefix(got, "49:81 NotTrue `\"shelf\" in object.keys(input.request)`") {
		t.Errorf("got %s", got)
	}
}

// Whatever is asked: the rules that are explained to apply are those that the decision rests on, and each other one has a place at
// which it stopped.
func TestExplanationAgreesWithTheDecision(t *testing.T) {
	p := mustCompile(t, lending())
	random := rand.New(rand.NewPCG(7, 7))
	one := func(of ...string) string { return of[random.IntN(len(of))] }
	verdicts := map[string]int{}
	for i := range 500 {
		request := fmt.Sprintf(`{"book": %s, "reader": %s, "guest": %s, "branch": %s}`, one(`"b"`, `"b"`, `"b"`, `7`, `null`),
			one(`"r"`, `"staff-r"`, `"staff-r"`, `"r"`, `{}`), one("true", "false", `"no"`), one(`"n"`, `"n"`, `"n"`, `""`))
		all := [][]any{{}, {loan("x")}, {loan("x"), loan("y")}, {map[string]any{"reader": 7}}, {map[string]any{"reader": "x"}}}
		answers := map[string]any{"loans": all[random.IntN(len(all))]}
		if random.IntN(2) == 0 {
			answers["member"] = map[string]any{"name": "r"}
		}
		r := &shelf{cached: answers, live: answers}
		decision, decideErr := p.Decide(t.Context(), input(t, request), r)
		x, err := p.Explain(t.Context(), input(t, request), r, false)
		if err != nil {
			t.Fatalf("number %d: %v", i, err)
		}
		if (decideErr != nil) != (x.Err != nil) {
			t.Fatalf("number %d, %s: Decide says %v, Explain %v", i, request, decideErr, x.Err)
		}
		if x.Err != nil {
			verdicts[string(x.Err.Cause)]++
			if x.Err.Cause == InputNotUnderstood && x.Invalid == nil &&
				!slices.ContainsFunc(x.Facts, func(f ExplainedFact) bool { return f.Undefined != nil || f.Err != nil }) {
				t.Errorf("number %d, %s: nothing tells what was not understood", i, request)
			}
			continue
		}
		var denied, explained []string
		for _, d := range decision.Denials {
			denied = append(denied, d.Rule)
		}
		for _, rule := range x.Rules {
			if (len(rule.Values) > 0) != (rule.Unmet == nil) {
				t.Errorf("number %d, %s: rule %+v both applies and does not, or neither", i, request, rule)
			}
			if rule.Name == ruleDeny && len(rule.Values) > 0 {
				explained = append(explained, fmt.Sprintf("%s:%d", rule.File, rule.Row))
			}
		}
		slices.Sort(denied)
		if denied = slices.Compact(denied); !slices.Equal(denied, explained) {
			t.Errorf("number %d, %s: denied by %v, explained to be by %v", i, request, denied, explained)
		}
		verdicts[fmt.Sprintf("%d denials", len(denied))]++
	}
	for _, verdict := range []string{"0 denials", "1 denials", "2 denials", string(InputNotUnderstood), string(ContractViolated)} {
		if verdicts[verdict] < 5 {
			t.Errorf("%s happened %d times, which is no test: %v", verdict, verdicts[verdict], verdicts)
		}
	}
}

type failing struct{ err error }

func (f failing) Read(context.Context, Query) (Answer, error) { return Answer{}, f.err }

// An explanation of much is as bounded as one of little.
func TestExplainMany(t *testing.T) {
	src := policy(denyMetadata + `deny contains {"reason": "R", "message": $"{x}"} if { some x in input.request.list; x < 0 }

valid_input if true

outcome.seen contains x if some x in input.request.list
`)
	list := make([]string, 5000)
	for i := range list {
		list[i] = fmt.Sprint(i)
	}
	x := explained(t, src, `{"list": [`+strings.Join(list, ", ")+`]}`, nil)
	if got, want := told(x.Rules[0].Unmet), "9:85 NotTrue `x < 0` x=0 and 4999 others"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := len(x.Rules[1].Values); got != len(list) {
		t.Errorf("the outcome is explained to have %d values", got)
	}
}
