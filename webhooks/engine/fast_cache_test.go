package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const silentPolicy = `valid_input if is_object(input.request)

facts.loans := {"apiVersion": "toy/v1", "kind": "Loan", "namespace": input.request.branch}

` + denyMetadata + `deny contains {"reason": "R", "message": $"{input.request.title} is lent"} if {
	some loan in input.facts.loans
	loan.book == input.request.book
}
`

// ways makes decisions and tells how each was made.
func ways(t *testing.T, p *Policy, decisions ...func() (Input, Reader)) string {
	t.Helper()
	acceleratorOf(t, p).decided.Store(1) // so that none of them is checked
	var found []string
	for _, next := range decisions {
		in, reader := next()
		d, err := p.Decide(t.Context(), in, reader)
		switch {
		case err != nil:
			found = append(found, "error")
		case len(d.Denials) > 0:
			found = append(found, "denied")
		case d.Way == Cached:
			found = append(found, "remembered")
		default:
			found = append(found, "evaluated")
		}
	}
	return strings.Join(found, " ")
}

func asks(request string, reader Reader) func() (Input, Reader) {
	return func() (Input, Reader) {
		return Input{Request: Text([]byte(request)), Now: time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC), VerdictOnly: true}, reader
	}
}

func TestSilenceIsCached(t *testing.T) {
	loan := map[string]any{"book": "other"}
	cached := sharing{facts: map[string]any{"loans": []any{loan}}}
	first := asks(`{"branch": "n", "book": "b", "title": "B", "uid": 1}`, cached)
	for name, tc := range map[string]struct {
		next func() (Input, Reader)
		want string
	}{
		"the same again":         {first, "remembered"},
		"what nobody reads":      {asks(`{"uid": 2, "branch": "n", "more": {"a": [1]}, "book": "b"}`, cached), "remembered"},
		"what the message reads": {asks(`{"branch": "n", "book": "b", "title": "other"}`, cached), "remembered"},
		"what a fact reads":      {asks(`{"branch": "other", "book": "b"}`, cached), "remembered"}, // the answer is the same
		"what the rule reads":    {asks(`{"branch": "n", "book": "c"}`, cached), "evaluated"},
		"its type":               {asks(`{"branch": "n", "book": ["b"]}`, cached), "evaluated"},
		"it is gone":             {asks(`{"branch": "n"}`, cached), "evaluated"},
		"it is null":             {asks(`{"branch": "n", "book": null}`, cached), "evaluated"},
		"an equal fact":          {asks(`{"branch": "n", "book": "b"}`, sharing{facts: map[string]any{"loans": []any{map[string]any{"book": "other"}}}}), "evaluated"},
		"one fact more":          {asks(`{"branch": "n", "book": "b"}`, sharing{facts: map[string]any{"loans": []any{loan, map[string]any{"book": "b"}}}}), "denied"},
		"one fact less":          {asks(`{"branch": "n", "book": "b"}`, sharing{facts: map[string]any{"loans": []any{}}}), "evaluated"},
		"a live fact":            {asks(`{"branch": "n", "book": "b"}`, sharing{facts: cached.facts, live: true}), "evaluated"},
		"decoded JSON":           {func() (Input, Reader) { in := input(t, `{"branch": "n", "book": "b"}`); return in, cached }, "evaluated"},
	} {
		t.Run(name, func(t *testing.T) {
			p := mustCompile(t, policy(silentPolicy))
			if got := ways(t, p, first); got != "evaluated" {
				t.Errorf("at first %s", got)
			}
			if got := ways(t, p, tc.next); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestWhatIsNotCached(t *testing.T) {
	const rule = "valid_input if input.request.valid\n\n"
	for name, tc := range map[string]struct{ rules, want string }{
		"a denial":    {rule + denyMetadata + "deny contains {\"reason\": \"R\", \"message\": \"m\"} if true\n", "denied denied"},
		"a warning":   {rule + "warn contains \"w\" if input.request.valid\n", "evaluated evaluated"},
		"an error":    {rule + "warn contains \"w\" if to_number(input.request.uid) > 1\n", "error error"},
		"the time":    {rule + "warn contains \"w\" if input.now > \"2027\"\n", "evaluated evaluated"},
		"the request": {rule + "warn contains \"w\" if count(input.request) > 9\n", "evaluated evaluated"},
		"nothing":     {rule + "warn contains \"w\" if input.request.x == 1\n", "evaluated remembered"},
	} {
		t.Run(name, func(t *testing.T) {
			request := asks(`{"valid": true, "uid": "u"}`, nil)
			if got := ways(t, mustCompile(t, policy(tc.rules)), request, request); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
	invalid := asks(`{"valid": false}`, nil)
	if got := ways(t, mustCompile(t, policy(rule+"warn contains \"w\" if input.request.x == 1\n")), invalid, invalid); got != "error error" {
		t.Errorf("got %s for what is not understood", got)
	}
}

// An outcome is for who acts on it, and is made anew each time.
func TestOutcomesAreNotCached(t *testing.T) {
	p := mustCompile(t, policy("valid_input if true\n\noutcome.x := input.request.x\n\nwarn contains \"w\" if input.request.y\n"))
	request := asks(`{"x": 1}`, nil)
	if got := ways(t, p, request, request); got != "evaluated remembered" {
		t.Errorf("got %s without the outcome", got)
	}
	in, _ := asks(`{"x": 2}`, nil)()
	in.VerdictOnly = false
	if d, err := p.Decide(t.Context(), in, nil); err != nil || d.Outcome.Get("x").IsNull() || d.Way != Evaluated {
		t.Errorf("got %+v, %v", d, err)
	}
}

func TestTheCacheIsBounded(t *testing.T) {
	p := mustCompile(t, policy(silentPolicy))
	empty := sharing{facts: map[string]any{"loans": []any{}}}
	numbered := func(i int) func() (Input, Reader) {
		return asks(fmt.Sprintf(`{"branch": "n", "book": "book-%d"}`, i), empty)
	}
	var all []func() (Input, Reader)
	for i := range mostCached + 1 {
		all = append(all, numbered(i))
	}
	ways(t, p, all...)
	a := acceleratorOf(t, p)
	if n := a.cache.Len(); n > mostCached {
		t.Errorf("it holds %d", n)
	}
	if got := ways(t, p, numbered(0), numbered(mostCached)); got != "evaluated remembered" {
		t.Errorf("the first and the last are %s", got)
	}
	long := asks(`{"branch": "n", "book": "`+strings.Repeat("x", longestKey)+`"}`, empty)
	if got := ways(t, p, long, long); got != "evaluated evaluated" {
		t.Errorf("what is too long is %s", got)
	}
	many := make([]any, mostFacts+1)
	for i := range many {
		many[i] = map[string]any{}
	}
	full := asks(`{"branch": "n", "book": "b"}`, sharing{facts: map[string]any{"loans": many}})
	if got := ways(t, p, full, full); got != "evaluated evaluated" {
		t.Errorf("with many facts it is %s", got)
	}
}

// No two projections that differ have the same key, whatever their members look like.
func TestKeysTellProjectionsApart(t *testing.T) {
	read := &projection{}
	read.member("a").member("b")
	read.member("a").member("c").all = true
	read.member("d").element()
	seen := map[string]string{}
	for _, text := range []string{
		`{}`, `[]`, `null`, `""`, `{"a": null}`, `{"a": {}}`, `{"a": []}`, `{"d": []}`, `{"d": {}}`, `{"a": "{"}`, `{"a": "-"}`,
		`{"a": {"b": 1}}`, `{"a": {"c": 1}}`, `{"a": {"b": 1, "c": 1}}`, `{"a": {"b": "1"}}`, `{"a": {"b": 11}}`, `{"a": {"b": {}}}`,
		`{"a": {"b": 1, "c": 11}}`, `{"a": {"b": 11, "c": 1}}`, `{"a": {"b": 1}, "d": 1}`, `{"d": {"b": 1}}`, `{"d": [1, 2]}`, `{"d": [12]}`,
		`{"a": {"b": "=", "c": "="}}`, `{"a": {"b": "-", "c": 1}}`, `{"a": {"c": {"b": 1}}}`, `{"a": {"c": {"b": 1, "e": 2}}}`,
	} {
		key := string(read.key(nil, Text([]byte(text)).from.(*jsonText)))
		if other, ok := seen[key]; ok {
			t.Errorf("%s and %s have one key", text, other)
		}
		seen[key] = text
	}
	same := string(read.key(nil, Text([]byte(`{"x": 1, "a": {"x": 2, "b": 1}}`)).from.(*jsonText)))
	if seen[same] != `{"a": {"b": 1}}` {
		t.Errorf("what is not read is in the key %q", same)
	}
}

// A fast way that is wrong is found out by a check, and not gone again.
func TestChecksFindOut(t *testing.T) {
	p := mustCompile(t, policy("valid_input if true\n\nwarn contains \"w\" if input.request.x == 1\n"))
	acceleratorOf(t, p).read.members["request"] = &projection{} // as if x were not read
	var heard []string
	in, _ := asks(`{"x": 1}`, nil)()
	in.Checked = func(policy, difference string) { heard = append(heard, policy+": "+difference) }
	for range 2 {
		d, err := p.Decide(t.Context(), in, nil)
		if err != nil || len(d.Warnings) != 1 {
			t.Errorf("got %+v, %v", d, err)
		}
	}
	want := []string{`p: on the part that is read: [null,null,null,null]; on the whole input: [null,["w"],null,null]`}
	if diff := cmp.Diff(want, heard); diff != "" {
		t.Errorf("heard (-want +got):\n%s", diff)
	}
}

func TestChecksAgree(t *testing.T) {
	p := mustCompile(t, policy(silentPolicy))
	acceleratorOf(t, p)
	checks := 0
	in, _ := asks(`{"branch": "n", "book": "b"}`, nil)()
	in.Checked = func(_, difference string) {
		checks++
		if difference != "" {
			t.Error("there is a difference: " + difference)
		}
	}
	for range 2 * checkedShare {
		if _, err := p.Decide(t.Context(), in, sharing{facts: map[string]any{"loans": []any{}}}); err != nil {
			t.Fatal(err)
		}
	}
	if checks != 2 {
		t.Errorf("checked %d times", checks)
	}
}

// A check finds whatever differs, and a failure is another one if it says something else.
func TestWhatACheckCompares(t *testing.T) {
	said, other := mustValue(t, "x"), mustValue(t, "y")
	failure := func(text string) error { return errorf(EvaluationFailed, "%s", text) }
	answers := []struct {
		d   *Decision
		err error
	}{
		{d: &Decision{}},
		{d: &Decision{Denials: []Denial{{Reason: "R", Message: "m"}}}},
		{d: &Decision{Denials: []Denial{{Reason: "R", Message: "n"}}}},
		{d: &Decision{Warnings: []string{"m"}}},
		{d: &Decision{Warnings: []string{"m", "n"}}},
		{d: &Decision{Patches: []Patch{{Op: "add", Path: "/a", Value: &said}}}},
		{d: &Decision{Patches: []Patch{{Op: "add", Path: "/a", Value: &other}}}},
		{d: &Decision{Outcome: said}},
		{d: &Decision{Outcome: other}},
		{err: failure("a")},
		{err: failure("b")},
	}
	for i, a := range answers {
		for j, b := range answers {
			if got := difference(a.d, a.err, b.d, b.err); (got == "") != (i == j) {
				t.Errorf("%+v and %+v: difference %q", a, b, got)
			}
		}
	}
	mostCached := &Decision{Way: Cached, Facts: map[string]Fact{"f": {}}} // which say how, and not what
	if got := difference(&Decision{}, nil, mostCached, nil); got != "" {
		t.Errorf("a way makes a difference: %s", got)
	}
}

// A check that does not end in time says nothing, and the decision stands.
func TestACheckThatTakesTooLongIsNone(t *testing.T) {
	p := mustCompile(t, policy("valid_input if true\n\nwarn contains \"w\" if input.request.x == 1\n"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	in, _ := asks(`{"x": 2}`, nil)()
	in.Checked = func(string, string) { t.Error("it was heard of") }
	d, err := acceleratorOf(t, p).check(ctx, admit, in, nil, &Decision{Way: Cached}, nil)
	if err != nil || d.Way != Cached || acceleratorOf(t, p).disabled.Load() {
		t.Errorf("got %+v, %v", d, err)
	}
}

func FuzzTextIsReadAsItIs(f *testing.F) {
	for _, seed := range []string{`{}`, ` { "a" : [1, {"b\u0041": -1e3}], "": null } `, `[[], "x\\\"", true]`, `"\ud83d\ude00"`, `0`, `{"a": {"b": {"c": {"d": {"e": {"f": 1}}}}}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		want, err := ParseValue(text)
		if err != nil {
			if _, err := ParseText(text); err == nil {
				t.Errorf("%s is a document only as text", text)
			}
			t.Skip()
		}
		var decoded any
		if err := json.Unmarshal(text, &decoded); err != nil {
			t.Skip() // numbers that no float64 holds
		}
		parsed, err := ParseText(text)
		if err != nil {
			t.Fatalf("%s is a document of terms, but: %v", text, err)
		}
		for _, got := range []Value{Text(text), parsed} {
			readAsItIs(t, got, want, decoded)
		}
	})
}

func readAsItIs(t *testing.T, got, want Value, decoded any) {
	if !got.orNull().Equal(want.orNull()) {
		t.Errorf("got %v, want %v", got.orNull(), want.orNull())
	}
	members, _ := decoded.(map[string]any)
	for name := range members {
		member, there := got.member(name)
		if other := want.Get(name); !there || !member.Equal(other) || member.IsNull() != other.IsNull() || member.Text() != other.Text() {
			t.Errorf("member %q is %v, want %v", name, member, other)
		}
	}
	parts := 0
	got.from.each(func(string, Value) { parts++ })
	if list, ok := decoded.([]any); ok && parts != len(list) || decoded != nil && members != nil && parts != len(members) {
		t.Errorf("it has %d parts: %v", parts, decoded)
	}
}
