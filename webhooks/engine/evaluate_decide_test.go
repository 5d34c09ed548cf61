package engine

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func loan(reader string) map[string]any {
	return map[string]any{"id": "loan-1", "reader": reader, "due": "Friday"}
}

func TestDenialNamesWhatBlocks(t *testing.T) {
	world := map[string]any{"loans": []any{loan("ann")}, "member": map[string]any{"name": "bob"}}
	d, err := mustCompile(t, lending()).Decide(t.Context(),
		input(t, `{"branch": "north", "book": "dune", "reader": "bob"}`), &shelf{cached: world, live: world})
	if err != nil {
		t.Fatal(err)
	}
	want := []Denial{{
		Reason: "BookIsLent", Code: 409, Message: "dune is with ann until Friday",
		Details: Details{Kind: "Loan", Name: "loan-1"}, Rule: "lending.rego:26", RuleRemedy: "Wait until it is returned.",
	}}
	if diff := cmp.Diff(want, d.Denials); diff != "" {
		t.Errorf("denials (-want +got):\n%s", diff)
	}
}

func TestQueriesOfFacts(t *testing.T) {
	s := &shelf{cached: map[string]any{"loans": []any{}}}
	_, err := mustCompile(t, lending()).Decide(t.Context(),
		input(t, `{"branch": "north", "book": "dune", "reader": "x", "guest": true}`), s)
	if err != nil {
		t.Fatal(err)
	}
	want := []Query{{
		Fact: "loans", APIVersion: "toy/v1", Kind: "Loan", Namespace: "north",
		Fields: map[string]string{"book": "dune"}, Except: map[string][]string{"state": {"Returned"}},
	}}
	if diff := cmp.Diff(want, s.asked); diff != "" {
		t.Errorf("a guest's member fact is null and must not be asked for (-want +got):\n%s", diff)
	}
}

func TestOutcomeAndPatches(t *testing.T) {
	p := mustCompile(t, lending())
	world := &shelf{cached: map[string]any{"loans": []any{loan("ann")}, "member": map[string]any{}}}
	in := input(t, `{"branch": "north", "book": "dune", "reader": "staff-eve", "shelf": 3}`)
	d, err := p.Decide(t.Context(), in, world)
	if err != nil {
		t.Fatal(err)
	}
	if outcome, _ := d.Outcome.MarshalJSON(); string(outcome) != `{"recalls":["loan-1"]}` || len(d.Denials) != 0 {
		t.Errorf("got outcome %s and denials %v", outcome, d.Denials)
	}
	if d, err = p.Patch(t.Context(), in, world); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, patch := range d.Patches {
		value, _ := patch.Value.MarshalJSON()
		got = append(got, patch.Op+" "+patch.Path+" "+string(value))
	}
	want := []string{`add /lentAt "2026-11-20T10:00:00.000000005Z"`, `add /shelf 3`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("patches (-want +got):\n%s", diff)
	}
}

func TestDenialFromCacheIsConfirmedLive(t *testing.T) {
	lent := map[string]any{"loans": []any{loan("ann")}, "member": map[string]any{}}
	free := map[string]any{"loans": []any{}, "member": map[string]any{}}
	for name, tc := range map[string]struct {
		world  *shelf
		want   Confirmation
		denied bool
	}{
		"the cache was right":              {&shelf{cached: lent, live: lent}, Confirmed, true},
		"the cache was behind":             {&shelf{cached: lent, live: free}, Refuted, false},
		"the API server does not answer":   {&shelf{cached: lent, err: errors.New("gone")}, Unconfirmed, true},
		"an allow is not confirmed":        {&shelf{cached: free, live: lent}, NotNeeded, false},
		"live facts are not understood":    {&shelf{cached: lent, live: map[string]any{"loans": []any{1}}}, Unconfirmed, true},
		"the live look finds no such list": {&shelf{cached: lent, live: map[string]any{}}, Unconfirmed, true},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := mustCompile(t, lending()).Decide(t.Context(), input(t, `{"branch": "n", "book": "b", "reader": "r"}`), tc.world)
			if err != nil {
				t.Fatal(err)
			}
			if d.Confirmation != tc.want || (len(d.Denials) > 0) != tc.denied {
				t.Errorf("got %q with denials %v, want %q, denied %v", d.Confirmation, d.Denials, tc.want, tc.denied)
			}
		})
	}
}

// A denial must not vanish because something that only its message needs is missing.
func TestNoDenialVanishes(t *testing.T) {
	for name, tc := range map[string]struct{ rules, request string }{
		"value undefined": {
			denyMetadata + `deny contains {"reason": "R", "message": concat(" ", ["by", input.request.who])} if input.request.busy`,
			`{"busy": true}`,
		},
		"one match of two has no value": {
			denyMetadata + `deny contains {"reason": "R", "message": concat("", ["", x.name])} if some x in input.request.list`,
			`{"list": [{"name": "a"}, {"id": 2}]}`,
		},
		"two matches told apart by index": {
			denyMetadata + `deny contains {"reason": "R", "message": concat("", ["", input.request.names[i]])} if { some i; input.request.list[i] > 0 }`,
			`{"list": [1, 2], "names": ["a"]}`,
		},
		"variable used in a comprehension of the value": {
			denyMetadata + `deny contains {"reason": "R", "message": concat("", [y | some y in x.names])} if some x in input.request.list`,
			`{"list": [{"names": ["a"]}, {"names": [5]}]}`,
		},
		"warning": {`warn contains input.request.who if input.request.busy`, `{"busy": true}`},
	} {
		t.Run(name, func(t *testing.T) {
			p := mustCompile(t, policy("valid_input if true\n\n"+tc.rules+"\n"))
			_, err := p.Decide(t.Context(), input(t, tc.request), nil)
			var e *Error
			if !errors.As(err, &e) || e.Cause != ContractViolated && e.Cause != EvaluationFailed {
				t.Fatalf("got %v, want an error", err)
			}
			if e.Cause == ContractViolated && !strings.Contains(e.Error(), "p.rego:") {
				t.Errorf("%q does not name the rule's place", e)
			}
		})
	}
	t.Run("patch", func(t *testing.T) {
		p := mustCompile(t, policy("valid_input if true\n\n"+`patch contains {"op": "add", "path": "/x", "value": input.request.x} if true`+"\n"))
		_, err := p.Patch(t.Context(), input(t, `{}`), nil)
		wantCause(t, err, ContractViolated, "this patch rule applies but its value is undefined")
	})
	t.Run("a template string renders what is missing", func(t *testing.T) {
		p := mustCompile(t, policy("valid_input if true\n\n"+denyMetadata+`deny contains {"reason": "R", "message": $"by {input.request.who}"} if true`+"\n"))
		d, err := p.Decide(t.Context(), input(t, `{}`), nil)
		if err != nil || len(d.Denials) != 1 || d.Denials[0].Message != "by <undefined>" {
			t.Errorf("got %+v, %v", d, err)
		}
	})
}

func TestErrorsAreNotVerdicts(t *testing.T) {
	const ok = "valid_input if true\n\n" + denyMetadata + "deny contains {\"reason\": \"R\", \"message\": \"m\"} if input.request.no\n\n"
	for name, tc := range map[string]struct {
		rules string
		cause Cause
		text  string
	}{
		"valid_input false":           {"valid_input := false\n\nwarn contains \"w\" if true", InputNotUnderstood, "valid_input"},
		"valid_input undefined":       {"valid_input if input.nothing\n\nwarn contains \"w\" if true", InputNotUnderstood, "valid_input"},
		"fact undefined":              {ok + `facts.x := {"apiVersion": "toy/v1", "kind": "Loan", "namespace": input.request.branch}`, InputNotUnderstood, "facts.x"},
		"fact of an empty namespace":  {ok + `facts.x := object.union({}, {"apiVersion": "toy/v1", "kind": "Loan", "namespace": ""})`, InputNotUnderstood, "facts.x.namespace"},
		"fact with a number":          {ok + `facts.x := object.union({}, {"apiVersion": "toy/v1", "kind": "Loan", "name": 5})`, InputNotUnderstood, "facts.x.name"},
		"fact is a list":              {ok + `facts.x := array.concat([1], [])`, ContractViolated, "facts.x"},
		"fact of an unread kind":      {ok + `facts.x := object.union({}, {"apiVersion": "v1", "kind": "Secret", "name": "s"})`, ContractViolated, "spec.reads"},
		"fact by an undeclared index": {ok + `facts.x := object.union({}, {"apiVersion": "toy/v1", "kind": "Loan", "fields": {"a": "b"}})`, ContractViolated, "indexes"},
		"fact with an unknown key":    {ok + `facts.x := object.union({}, {"apiVersion": "toy/v1", "kind": "Loan", "limit": 3})`, ContractViolated, `facts.x has no key "limit"`},
		"fact of two forms":           {ok + `facts.x := object.union({}, {"apiVersion": "toy/v1", "kind": "Loan", "parent": true})`, ContractViolated, `facts.x has no key "apiVersion": allowed are freshness and parent`},
		"access without verb":         {ok + `facts.x := object.union({}, {"access": {"resource": "pods"}})`, ContractViolated, "verb"},
		"builtin error":               {ok + "warn contains \"w\" if to_number(\"five\") > 3", EvaluationFailed, "five"},
		"conflicting rules":           {ok + "a := 1 if true\n\na := 2 if true\n\nwarn contains \"w\" if a == 1", EvaluationFailed, "conflict"},
		"unknown reason":              {"valid_input if true\n\n" + denyMetadata + `deny contains {"reason": r, "message": "m"} if r := "Other"`, ContractViolated, "METADATA"},
		"no message":                  {"valid_input if true\n\n" + denyMetadata + `deny contains object.filter({"reason": "R"}, ["reason"]) if true`, ContractViolated, "p.rego:11: deny has no message"},
		"wrong code":                  {"valid_input if true\n\n" + denyMetadata + `deny contains {"reason": "R", "message": "m", "code": 100 + 100} if true`, ContractViolated, "deny.code is 200, not one of 403 409 422 429"},
		"unknown key in deny":         {"valid_input if true\n\n" + denyMetadata + `deny contains object.union({"reason": "R", "message": "m"}, {"messag": "x"}) if true`, ContractViolated, `deny has no key "messag": did you mean "message"?`},
		"deny is a string":            {"valid_input if true\n\n" + denyMetadata + `deny contains concat("", ["no"]) if true`, ContractViolated, "deny must be an object"},
		"warn is a number":            {"valid_input if true\n\nwarn contains 2 + 3 if true", ContractViolated, "warn must be a non-empty string, not number"},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := mustCompile(t, policy(tc.rules+"\n")).Decide(t.Context(), input(t, `{}`), &shelf{})
			if err == nil {
				t.Fatalf("got decision %+v", d)
			}
			wantCause(t, err, tc.cause, tc.text)
		})
	}
}

func TestUnreadableFactIsAnError(t *testing.T) {
	p := mustCompile(t, policy("valid_input if true\n\nwarn contains \"w\" if count(input.facts.x) == 0\n\n"+
		`facts.x := {"apiVersion": "toy/v1", "kind": "Loan", "freshness": "live"}`+"\n"))
	_, err := p.Decide(t.Context(), input(t, `{}`), &shelf{err: errors.New("connection refused")})
	wantCause(t, err, FactUnavailable, "facts.x: connection refused")
}

type panicking struct{}

func (panicking) Read(context.Context, Query) (Answer, error) { panic("boom") }

func TestPanicIsAnError(t *testing.T) {
	_, err := mustCompile(t, lending()).Decide(t.Context(), input(t, `{"branch": "n", "book": "b", "reader": "r"}`), panicking{})
	wantCause(t, err, Panicked, "boom")
}

// patient is a Reader that answers only when the policy's time is up.
type patient struct{}

func (patient) Read(ctx context.Context, _ Query) (Answer, error) {
	<-ctx.Done()
	return Answer{}, ctx.Err()
}

func TestSlowFactMeetsTheDeadline(t *testing.T) {
	src := lending()
	src.Timeout = time.Millisecond
	_, err := mustCompile(t, src).Decide(t.Context(), input(t, `{"branch": "n", "book": "b", "reader": "r"}`), patient{})
	wantCause(t, err, DeadlineExceeded, "")
}

// warnsAtLeisure sorts a list, which OPA cannot interrupt.
const warnsAtLeisure = "warn contains \"w\" if count(sort(input.request.list)) == 1\n"

func listOf(t *testing.T, elements int) Input {
	t.Helper()
	all := make([]any, elements)
	for i := range all {
		all[i] = strconv.Itoa(elements - i)
	}
	return Input{Request: mustValue(t, map[string]any{"list": all})}
}

// The evaluation is one call of a builtin, which OPA cannot interrupt: the caller leaves all the same, and others are decided about
// while the call runs.
func TestAnOverrunDoesNotDecideForOthers(t *testing.T) {
	src := policy("valid_input if true\n\n" + warnsAtLeisure)
	src.Timeout = 20 * time.Millisecond
	p := mustCompile(t, src)
	_, err := p.Decide(t.Context(), listOf(t, 1<<20), nil)
	wantCause(t, err, DeadlineExceeded, "no decision within 20ms")
	p.timeout = time.Minute // so that a slow machine does not decide this part
	if d, err := p.Decide(t.Context(), listOf(t, 1), nil); err != nil || len(d.Warnings) != 1 {
		t.Errorf("got %+v, %v beside the evaluation", d, err)
	}
	await(t, func() bool { return p.leftBehind.Load() == 0 })
}

// left has evaluations of a policy be left behind until the function that it gives is called.
func left(t *testing.T, p *Policy, evaluations int) (end func()) {
	t.Helper()
	before, done := p.leftBehind.Load(), make(chan struct{})
	for range evaluations {
		leaveBehind(p, 0, done)
	}
	release := sync.OnceFunc(func() { close(done) })
	t.Cleanup(release)
	return func() {
		release()
		await(t, func() bool { return p.leftBehind.Load() <= before })
	}
}

func await(t *testing.T, holds func() bool) {
	t.Helper()
	for !holds() {
		if t.Context().Err() != nil {
			t.Fatal("the evaluation never returned")
		}
		time.Sleep(time.Millisecond)
	}
}

func TestOverrunningPolicyIsCutOffUntilItReturns(t *testing.T) {
	asked := input(t, `{}`)
	simple := func() *Policy { return mustCompile(t, policy("valid_input if true\n\nwarn contains \"w\" if true\n")) }
	answers := func(p *Policy) bool {
		t.Helper()
		d, err := p.Decide(t.Context(), asked, nil)
		if err != nil {
			wantCause(t, err, StillRunning, "exceeded")
		}
		return err == nil && len(d.Warnings) == 1
	}
	one, other := simple(), simple()
	endFirst := left(t, one, ownSlots-1)
	if int64(ownSlots-1) < sharedSlots() && !answers(one) {
		t.Errorf("cut off with %d left behind", ownSlots-1)
	}
	endLast := left(t, one, 1)
	if answers(one) || !answers(other) {
		t.Errorf("with %d left behind of one policy, it is to be cut off and others are not", ownSlots)
	}
	endLast()
	endFirst()
	if !answers(one) {
		t.Error("still cut off after all have ended")
	}
	crowd := simple()
	end := left(t, crowd, int(sharedSlots()))
	if !answers(one) {
		t.Error("a policy that left nothing behind is cut off for what others did")
	}
	left(t, one, 1)
	if answers(one) {
		t.Error("all policies together hold more than their slots")
	}
	end()
	if !answers(one) {
		t.Error("still cut off after the others' have ended")
	}
}

// A client that goes away during a long evaluation must not have others refused.
func TestAnImpatientCallerCostsOthersNothing(t *testing.T) {
	p := mustCompile(t, policy("facts.x := {\"apiVersion\": \"toy/v1\", \"kind\": \"Loan\"}\n\nvalid_input if is_null(input.facts.x)\n\n"+
		warnsAtLeisure))
	ctx, cancel := context.WithCancel(t.Context())
	_, err := p.Decide(ctx, listOf(t, 1<<20), leaving{cancel})
	wantCause(t, err, CallerGone, "the caller disconnected")
	if d, err := p.Decide(t.Context(), listOf(t, 1), &shelf{}); err != nil || len(d.Warnings) != 1 {
		t.Errorf("got %+v, %v", d, err)
	}
}

// leaving is a Reader whose caller goes away soon after the answer, when the evaluation has begun.
type leaving struct{ cancel context.CancelFunc }

func (l leaving) Read(context.Context, Query) (Answer, error) {
	time.AfterFunc(20*time.Millisecond, l.cancel)
	return Answer{}, nil
}

func TestEndlessRecursionIsCancelled(t *testing.T) {
	src := policy("valid_input if true\n\nwarn contains \"w\" if { xs := split(input.request.text, \"\"); some a in xs; some b in xs; some c in xs; some d in xs; concat(\"\", [a, b, c, d]) == \"never\" }\n")
	src.Timeout = 20 * time.Millisecond
	p := mustCompile(t, src)
	_, err := p.Decide(t.Context(), Input{Request: mustValue(t, map[string]any{"text": strings.Repeat("x", 5000)})}, nil)
	wantCause(t, err, DeadlineExceeded, "")
	await(t, func() bool { return p.leftBehind.Load() == 0 }) // it returns only because the cancel reached the evaluation
}

func mustValue(t *testing.T, decoded any) Value {
	t.Helper()
	v, err := ValueOf(decoded)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Who does not wait for an answer is told so, and not that the policy, or who answers, is slow.
func TestACallerWhoLeavesIsToldFromAPolicyThatIsSlow(t *testing.T) {
	src := policy("facts.x := {\"apiVersion\": \"toy/v1\", \"kind\": \"Loan\"}\n\nvalid_input if true\n\nwarn contains \"w\" if true\n")
	p := mustCompile(t, src)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := p.Decide(ctx, input(t, `{}`), waiting{cancel})
	wantCause(t, err, CallerGone, "the caller disconnected")
	if !unfinished(err) {
		t.Error("what the caller did not wait for is taken for what the policy says")
	}
	p.timeout = time.Millisecond
	_, err = p.Decide(t.Context(), input(t, `{}`), waiting{func() {}})
	wantCause(t, err, DeadlineExceeded, "facts.x was not read in time")
}

// waiting is a Reader that answers only when nobody waits any more.
type waiting struct{ asked func() }

func (w waiting) Read(ctx context.Context, _ Query) (Answer, error) {
	w.asked()
	<-ctx.Done()
	return Answer{}, ctx.Err()
}

// A denial is final where the METADATA of its rule says so, and nowhere else.
func TestFinalDenials(t *testing.T) {
	const rule = `deny contains {"reason": "R", "message": "m"} if input.request.%s` + "\n\n"
	p := mustCompile(t, policy("valid_input if true\n\n"+denyMetadata+fmt.Sprintf(rule, "a")+
		strings.Replace(denyMetadata, "do it}", "do it, override: false}", 1)+strings.Replace(fmt.Sprintf(rule, "b"), `"m"`, `"n"`, 1)))
	for request, want := range map[string]string{`{"a": true}`: "m false", `{"b": true}`: "n true"} {
		d, err := p.Decide(t.Context(), input(t, request), &shelf{})
		if err != nil || len(d.Denials) != 1 || fmt.Sprint(d.Denials[0].Message, " ", d.Denials[0].Final) != want {
			t.Errorf("%s: got %+v, %v, want %s", request, d, err, want)
		}
	}
}
