package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
)

// decoded reads one JSON document as encoding/json does, with numbers as they are written. It gives nothing for what the engine takes for no
// document either.
func decoded(text []byte) (document any, ok bool) {
	if _, err := ParseValue(text); err != nil {
		return nil, false
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	return document, dec.Decode(&document) == nil
}

// variety is how many random policies FuzzDecision knows. Compiling one takes longer than asking it.
const variety = 64

// Whatever the request and the facts are, each way to decide gives what OPA gives for the author's text.
func FuzzDecision(f *testing.F) {
	for seed, request := range []string{
		`{"namespace": "n", "a": {"b": 1}}`, `{"namespace": "n", "a": {"b": {"c": "a"}}, "b": [1, {"a": true}], "c": null}`, `{}`, `[]`, `{"namespace": ""}`,
		`{"namespace": "n", "b": {"a": "b"}, "a": [{"c": 1}, {"c": "a"}]}`, `{"namespace": "n", "a": 1e2, "b": 100, "c": {"a": 1.0}}`, `{"namespace": {"a": 1}}`,
		`{"namespace": "n", "\u0061": {"b": 1}, "b": "\ud83d\ude00"}`, `{"namespace":"n","a":{"a":{"a":{"a":{"a":{"a":1}}}}}}`,
	} {
		f.Add(uint64(seed), []byte(request), []byte(`[{"a": 1, "b": "a"}]`), []byte(`{"a": {"b": 1}}`))
		f.Add(uint64(seed+20), []byte(request), []byte(`{}`), []byte(`null`))
	}
	type compiled struct {
		source Source
		policy *Policy
		by     reference
	}
	known := map[uint64]*compiled{}
	f.Fuzz(func(t *testing.T, seed uint64, text, listText, oneText []byte) {
		request, isRequest := decoded(text)
		list, isList := decoded(listText)
		one, isOne := decoded(oneText)
		if !isRequest || !isList || !isOne {
			t.Skip()
		}
		if members, ok := request.(map[string]any); ok {
			if namespace, there := members["namespace"]; there && (reflect.TypeOf(namespace) != reflect.TypeFor[string]() || namespace == "") {
				t.Skip() // the reference has no contract about facts
			}
		}
		seed %= variety
		c := known[seed]
		if c == nil {
			r := &random{Rand: rand.New(rand.NewPCG(2, seed))}
			c = &compiled{source: r.source()}
			known[seed] = c
			var err error
			if c.policy, err = compile(c.source); err == nil {
				c.by = newReference(t, c.source)
			}
		}
		if c.policy == nil {
			t.Skip()
		}
		want, wantErr := c.by.decide(request, map[string]any{"list": list, "one": one})
		for way, in := range map[string]Input{
			"lean": {Request: Text(slices.Clone(text)), VerdictOnly: true}, "lean again": {Request: Text(slices.Clone(text)), VerdictOnly: true},
			"on decoded JSON": {Request: mustValue(t, request)},
		} {
			in.Now = time.Date(2026, 11, 20, 10, 0, 0, 5, time.UTC)
			in.Checked = func(_, difference string) {
				if difference != "" {
					t.Error("a check found a difference: " + difference)
				}
			}
			d, err := c.policy.Decide(t.Context(), in, sharing{facts: map[string]any{"list": list, "one": one}})
			if got, gotErr := outcomeOf(d, err); !slices.Equal(got, want) || gotErr != wantErr {
				t.Errorf("%s: got %q %q, want %q %q: %v\n%s", way, got, gotErr, want, wantErr, err, c.source.Modules[0].Source)
			}
		}
	})
}

// Whatever the text of a policy is, it is told what is wrong with it and where; or it decides, in each way the same, without a panic.
func FuzzCompile(f *testing.F) {
	head := policy("").Modules[0].Source
	f.Add(lendingPolicy)
	f.Add(readersLibrary)
	f.Add(head + silentPolicy)
	f.Add(head + testRunFact)
	f.Add(head + roundsPolicy)
	f.Add(head + harmlessRules + "x := $\"{input.request.x} and {$\"{1}\"}\"\n")
	f.Add(head + harmlessRules + "x if count([1]) == 2 with count as http.send\n\ny if x with input.request as {}\n")
	f.Add(head + harmlessRules + "x[y] := z if some y, z in input.request\n\nelse_x := 1 if x.a\n\nelse := 2\n")
	f.Add(head + "valid_input if true\n\npatch contains {\"op\": \"add\", \"path\": \"/a\", \"value\": [x | some x in input.request.a]} if true\n")
	f.Add(head + "valid_input if every x in input.request.a { is_string(x) }\n\noutcome.a contains x if some x in input.request.a\n")
	f.Add(head + harmlessRules + "x := {y: {z | some z in y} | some y in [[1], [2]]}\n\nwarn contains $\"{x}\" if count(x) > 1\n")
	f.Add("# METADATA\n# title: [\npackage toy.p\n")
	f.Add("package toy.p\n\nimport rego.v1\n\nimport future.keywords\n\nimport data.toy.lib as l\n\nimport input.request as r\n")
	requests := []string{`{}`, `{"x": 1, "a": ["b", 2], "branch": "n", "book": "b", "reader": "staff-eve", "busy": true, "object": {"text": "t"}, "wanted": true}`}
	facts := sharing{facts: map[string]any{"loans": []any{map[string]any{"book": "b", "reader": "ann"}}}}
	f.Fuzz(func(t *testing.T, text string) {
		source := policy("")
		source.Modules[0].Source = text
		if strings.Contains(text, "toy.lending") {
			source = lending()
			source.Modules[0].Source = text
		}
		source.Timeout = 500 * time.Millisecond
		p, err := compile(source)
		if err != nil {
			wantPlaces(t, "the text", err)
			return
		}
		again := mustCompile(t, source)
		if p.Revision() != again.Revision() {
			t.Errorf("revisions %s and %s of one text", p.Revision(), again.Revision())
		}
		for _, request := range requests {
			in := Input{Request: Text([]byte(request)), Now: time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)}
			lean, leanErr := outcomeOf(p.Decide(t.Context(), in, facts))
			in.Request = input(t, request).Request
			whole, wholeErr := outcomeOf(again.Decide(t.Context(), in, facts))
			if slices.Contains([]string{leanErr, wholeErr}, string(DeadlineExceeded)) || slices.Contains([]string{leanErr, wholeErr}, string(StillRunning)) {
				return // an endless policy
			}
			if !slices.Equal(lean, whole) || leanErr != wholeErr || leanErr == string(Panicked) {
				t.Errorf("got %q %q from text, and %q %q from a document", lean, leanErr, whole, wholeErr)
			}
			if _, err := p.Patch(t.Context(), in, facts); err != nil {
				var e *Error
				if !errors.As(err, &e) || e.Cause == Panicked {
					t.Errorf("a patch: %v", err)
				}
			}
		}
	})
}

// doubling is a policy that puts a text together with itself.
func doubling(times int) string {
	body := "_x0 := \"0123456789abcdef\"\n\n"
	for i := range times {
		body += fmt.Sprintf("_x%d := concat(\"\", [_x%d, _x%d])\n\n", i+1, i, i)
	}
	return body
}

// Whatever the text of a policy is, a small one is soon compiled, or soon told what is wrong with it, and keeps little.
func FuzzCompileKeepsLittle(f *testing.F) {
	const used = "valid_input if true\n\nwarn contains \"w\" if input.request.x == _x3\n\n"
	f.Add(used+doubling(3), []byte(`{}`))
	f.Add(used+"_x3 := sprintf(\"%999999d\", [1])\n", []byte(`{"a": "aaaa"}`))
	f.Add(used+"_x3 := [[a, b, c] | some a in data.parameters.a; some b in data.parameters.a; some c in data.parameters.a]\n", []byte(`{"a": [1, 2, 3, 4, 5, 6, 7, 8, 9]}`))
	f.Add(used+"_x3 := replace(data.parameters.a, \"a\", data.parameters.a)\n\nvalid_parameters if count(_x3) < 1000\n", []byte(`{"a": "aaaaaaaaaaaaaaaaaaaaaaaaaaaa"}`))
	f.Add(used+"_x3 := x if some x in [1, 2]\n\n_f(x) := [x, x]\n\nvalid_parameters if _f(_f(_f(1))) != 1\n", []byte(`{"a": 1e1000000}`))
	f.Add("valid_input if regex.match(\"(a{1,30}){1,30}\", data.parameters.a)\n\nwarn contains $\"{$\"{1}\"}\" if true\n", []byte(`{"a": "aaaaaaa"}`))
	f.Fuzz(func(t *testing.T, text string, parameters []byte) {
		source := policy(text)
		source.Parameters = parameters
		if len(text) > 4<<10 || len(parameters) > 4<<10 {
			t.Skip()
		}
		before, began := heap(), time.Now()
		p, err := compile(source)
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("compiling took %v", took)
		}
		if err != nil {
			return
		}
		if kept := heap() - before; kept > 16<<20 {
			t.Errorf("%d MiB are kept", kept>>20)
		}
		runtime.KeepAlive(p)
	})
}

// answering answers each query with one document, or not at all.
type answering struct {
	answer Value
	err    error
	asked  *[]Query
}

func (a answering) Read(_ context.Context, q Query) (Answer, error) {
	if q.Parent && q.Kind == "" {
		return whoIs(`{"apiVersion": "toy/v1", "kind": "Loan", "metadata": {"namespace": "n", "name": "x"}}`)
	}
	*a.asked = append(*a.asked, q)
	return Answer{Value: a.answer, Live: true}, a.err
}

// askedFor is how a fact can come from a request: as it is, or with its parts in their places.
var askedFor = map[string]string{
	"as it is":                      "facts.x := input.request.q\n\n",
	"as it is, in the second round": "facts.first := null\n\nfacts.x := input.request.q if input.facts.first == null\n\n",
	"in parts":                      "facts.x := " + inParts + "\n\n",
}

const inParts = `{"apiVersion": "toy/v1", "kind": "Loan", "namespace": input.request.q.namespace, "fields": {"book": input.request.q.fields.book}, "labels": {"a": input.request.q.labels.a}}`

// Whatever a fact says, the policy asks just that and has declared it, and sees just the answer; or it is refused, and nothing was read.
func FuzzFacts(f *testing.F) {
	for _, q := range []string{
		`null`, `{}`, `[]`, `7`, `{"apiVersion": "toy/v1", "kind": "Loan"}`, `{"apiVersion": "toy/v1", "kind": "Loan", "namespace": "n", "name": "x"}`,
		`{"apiVersion": "toy/v1", "kind": "Loan", "namespace": "n", "fields": {"book": "b"}, "labels": {"a": "b", "c": "d"}, "except": {"state": ["x", "y"]}, "freshness": "live"}`,
		`{"apiVersion": "v1", "kind": "Secret", "name": "x"}`, `{"apiVersion": "toy/v1", "kind": "Loan", "fields": {"secret": "b"}}`, `{"parent": true}`, `{"parent": false}`,
		`{"access": {"verb": "get", "group": "", "resource": "books", "namespace": "n", "name": "x"}}`, `{"access": {"verb": "get", "resource": "books", "user": "root"}}`,
		`{"testRun": {"a": [1, 2.50]}}`, `{"testRun": null}`, `{"parent": true, "access": {"verb": "get", "resource": "books"}}`, `{"kind": "Loan"}`,
		`{"apiVersion": "toy/v1", "kind": "Loan", "namespaces": ["b", "a", "b"], "fields": {"book": "b"}}`, `{"apiVersion": "toy/v1", "kind": "Loan", "namespaces": []}`,
		`{"apiVersion": "toy/v1", "kind": "Loan", "namespaces": null}`, `{"apiVersion": "toy/v1", "kind": "Loan", "namespace": "a", "namespaces": ["b", ""]}`,
		`{"apiVersion": "toy/v1", "kind": "Loan", "name": "x", "namespaces": ["b"]}`, `{"apiVersion": "toy/v1", "kind": "Loan", "part": {"a": true}}`,
		`{"apiVersion": "toy/v1", "kind": "Loan", "labels": {}}`, `{"apiVersion": "toy/v1", "kind": "Loan", "except": {"state": []}}`, `{"apiVersion": "", "kind": ""}`,
	} {
		f.Add([]byte(q), []byte(`[{"book": "b", "n": 1.50}]`))
		f.Add([]byte(q), []byte(`null`))
	}
	policies := map[string]*Policy{}
	for way, facts := range askedFor {
		p, err := compile(policy(facts + "valid_input if true\n\nwarn contains \"w\" if input.request.never\n\noutcome.seen := input.facts.x\n"))
		if err != nil {
			f.Fatal(err)
		}
		policies[way] = p
	}
	f.Fuzz(func(t *testing.T, q, answer []byte) {
		question, err := ParseValue(q)
		found, err2 := ParseValue(answer)
		if err != nil || err2 != nil {
			t.Skip()
		}
		in := Input{Request: Text([]byte(`{"q": ` + string(q) + `}`)), Now: time.Unix(0, 0)}
		asked, causes := map[string][]Query{}, map[string]string{}
		for way, p := range policies {
			var all []Query
			d, err := p.Decide(t.Context(), in, answering{answer: found, asked: &all})
			asked[way] = all
			var e *Error
			switch {
			case errors.As(err, &e):
				causes[way] = string(e.Cause)
				if len(all) > 0 || e.Cause != InputNotUnderstood && e.Cause != ContractViolated {
					t.Errorf("%s: asked %+v, and then %v", way, all, err)
				}
			case len(all) == 0:
				if !question.IsNull() || !d.Outcome.Get("seen").IsNull() {
					t.Errorf("%s: nothing was asked for %s, and %v is seen", way, q, d.Outcome)
				}
			case len(all) > 1 || strings.HasPrefix(way, "as it is") && !asWritten(t, &all[0]).Equal(meant(t, question)):
				t.Errorf("%s: asked %+v for %s", way, all, q)
			case !d.Outcome.Get("seen").Equal(found):
				t.Errorf("%s: the answer is %s, and %v is seen", way, answer, d.Outcome)
			default:
				_, err := p.Decide(t.Context(), in, answering{err: errors.New("gone"), asked: &all})
				wantCause(t, err, FactUnavailable, "facts.x: gone")
			}
			for _, one := range all {
				if one.ofKind() && (one.APIVersion != "toy/v1" || one.Kind != "Loan" || len(one.Fields) > 1 || len(one.Fields) == 1 && one.Fields["book"] == "") {
					t.Errorf("%s: asked %+v, which is not declared", way, one)
				}
			}
		}
	})
}

// asWritten puts a query as a policy writes it.
func asWritten(t *testing.T, q *Query) Value {
	t.Helper()
	text, err := json.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	document := map[string]any{}
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	if q.Parent {
		document, q.Live = map[string]any{"parent": true}, false
	}
	if delete(document, "live"); q.Live {
		document["freshness"] = "live"
	}
	if q.TestRun {
		document["testRun"], err = q.Document.Decode()
		if err != nil {
			t.Fatal(err)
		}
	}
	return mustValue(t, document)
}

// meant is a question without what says nothing: an empty list of labels or of exceptions, or no name in an access.
func meant(t *testing.T, question Value) Value {
	t.Helper()
	document, err := question.Decode()
	if err != nil {
		t.Fatal(err)
	}
	object := document.(map[string]any)
	for _, key := range []string{"labels", "except", "access"} {
		members, _ := object[key].(map[string]any)
		for name, value := range members {
			if list, ok := value.([]any); ok && len(list) == 0 || key == "access" && value == "" {
				delete(members, name)
			}
		}
		if members != nil && len(members) == 0 {
			delete(object, key)
		}
	}
	return mustValue(t, object)
}

// ofKind tells whether the query asks for objects of a kind.
func (q *Query) ofKind() bool { return !q.Parent && q.Access == nil && !q.TestRun }

const silentPolicy = `valid_input if is_object(input.request)

facts.loans := {"apiVersion": "toy/v1", "kind": "Loan", "namespace": input.request.branch}

` + denyMetadata + `deny contains {"reason": "R", "message": $"{input.request.title} is lent"} if {
	some loan in input.facts.loans
	loan.book == input.request.book
}
`

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
	readByPrograms(t, planned(got), want.orNull())
	parts := 0
	got.from.each(func(string, Value) { parts++ })
	if list, ok := decoded.([]any); ok && parts != len(list) || decoded != nil && members != nil && parts != len(members) {
		t.Errorf("it has %d parts: %v", parts, decoded)
	}
}

// heap returns the memory in use, in bytes.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// readByPrograms compares a document with its term.
func readByPrograms(t *testing.T, got, want *ast.Term) {
	d, ok := got.Value.(document)
	if !ok {
		if !got.Equal(want) {
			t.Errorf("got %v, want %v", got, want)
		}
		return
	}
	keys := []*ast.Term{ast.StringTerm("none"), ast.InternedTerm(-1), ast.InternedTerm(0), ast.InternedTerm(d.Len()), ast.NumberTerm("0.5")}
	var order []*ast.Term
	d.Until(func(k, v *ast.Term) bool {
		keys, order = append(keys, k), append(order, k)
		return false
	})
	for _, k := range keys {
		is, should := got.Get(k), want.Get(k)
		if (is == nil) != (should == nil) {
			t.Errorf("%v is %v, want %v", k, is, should)
		} else if is != nil {
			readByPrograms(t, is, should)
		}
	}
	if !slices.IsSortedFunc(order, ast.TermValueCompare) {
		t.Errorf("the order is %v", order)
	}
}
