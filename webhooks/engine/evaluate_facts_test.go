package engine

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// testRunAnswers answers test runs with what it was given.
type testRunAnswers struct{ asked []Query }

func (s *testRunAnswers) Read(_ context.Context, q Query) (Answer, error) {
	s.asked = append(s.asked, q)
	return Answer{Value: q.Document, Live: true}, nil
}

const testRunFact = `facts.trial := {"testRun": input.request.object} if input.request.wanted

facts.trial := null if not input.request.wanted

valid_input if true

` + denyMetadata + `deny contains {"reason": "R", "message": $"there is {input.facts.trial.text}"} if {
	input.facts.trial != null
	"text" in object.keys(input.facts.trial)
}
`

func TestRunIsAskedWithWhateverTheRequestHas(t *testing.T) {
	p := mustCompile(t, policy(testRunFact))
	s := &testRunAnswers{}
	d, err := p.Decide(t.Context(), input(t, `{"wanted": true, "object": {"text": "x", "deep": [{"n": 1.50}]}}`), s)
	if err != nil || len(d.Denials) != 1 || d.Denials[0].Message != "there is x" || d.Confirmation != NotNeeded {
		t.Fatalf("got %+v, %v", d, err)
	}
	q := s.asked[0]
	text, err := q.Document.MarshalJSON()
	if len(s.asked) != 1 || !q.TestRun || err != nil || string(text) != `{"deep":[{"n":1.50}],"text":"x"}` {
		t.Errorf("asked %+v for %s, %v", s.asked, text, err)
	}
	if text, err := json.Marshal(q); err != nil || string(text) != `{"testRun":true}` {
		t.Errorf("the record has %s, %v", text, err)
	}
	if d, err = p.Decide(t.Context(), input(t, `{"object": {"text": "x"}}`), s); err != nil || len(d.Denials) != 0 || len(s.asked) != 1 {
		t.Errorf("not wanted: got %+v, %v, asked %+v", d, err, s.asked)
	}
}

func TestRunsThatCannotBeAsked(t *testing.T) {
	for name, tc := range map[string]struct {
		fact  string
		cause Cause
		text  string
	}{
		"of nothing":     {`{"testRun": input.request.object}`, InputNotUnderstood, "facts.x.testRun must be something, not null"},
		"of a kind, too": {`{"testRun": 1, "apiVersion": "toy/v1", "kind": "Loan"}`, ContractViolated, `facts.x has no key "apiVersion": allowed are freshness and testRun`},
		"and of access":  {`{"testRun": 1, "access": {"verb": "get", "resource": "books"}}`, ContractViolated, `facts.x has no key "testRun": allowed are access and freshness`},
		"with a name":    {`{"testRun": 1, "name": "x"}`, ContractViolated, `facts.x has no key "name"`},
	} {
		t.Run(name, func(t *testing.T) {
			p := mustCompile(t, policy("facts.x := object.union({}, "+tc.fact+")\n\nvalid_input if true\n\nwarn contains \"w\" if true\n"))
			_, err := p.Decide(t.Context(), input(t, `{"object": null}`), &testRunAnswers{})
			wantCause(t, err, tc.cause, tc.text)
		})
	}
}

// whoIs answers which object a parent is.
func whoIs(text string) (Answer, error) {
	v, err := ParseValue([]byte(text))
	return Answer{Value: v, Live: true}, err
}

// parentage is a world with one parent.
type parentage struct {
	is   string
	read []Query
}

func (s *parentage) Read(_ context.Context, q Query) (Answer, error) {
	if q.Kind == "" {
		return whoIs(s.is)
	}
	s.read = append(s.read, q)
	return whoIs(`{"secret": "s3cret"}`)
}

// The object whose subresource is requested is held to spec.reads as every other, whatever the request calls it.
func TestParentIsHeldToReads(t *testing.T) {
	const body = `facts.of := {"parent": true}` + "\n\nvalid_input if true\n\n" + `warn contains input.facts.of.secret if true` + "\n"
	for name, tc := range map[string]struct {
		is, wrong string
		want      Query
	}{
		"listed": {is: `{"apiVersion": "toy/v1", "kind": "Loan", "metadata": {"namespace": "n", "name": "x"}}`,
			want: Query{Fact: "of", Parent: true, APIVersion: "toy/v1", Kind: "Loan", Namespace: "n", Name: "x", Live: true}},
		"listed in another version": {is: `{"apiVersion": "toy/v7", "kind": "Loan", "metadata": {"name": "x"}}`,
			want: Query{Fact: "of", Parent: true, APIVersion: "toy/v1", Kind: "Loan", Name: "x", Live: true}},
		"not listed":               {is: `{"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "n", "name": "x"}}`, wrong: "facts.of asks for the object whose subresource is requested, of kind v1 Secret, which spec.reads does not list: add {apiVersion: v1, kind: Secret, freshness: Live} to spec.reads"},
		"of another group":         {is: `{"apiVersion": "toys/v1", "kind": "Loan", "metadata": {"name": "x"}}`, wrong: "which spec.reads does not list"},
		"of the group without one": {is: `{"apiVersion": "v1", "kind": "Loan", "metadata": {"name": "x"}}`, wrong: "which spec.reads does not list"},
		"of no kind":               {is: `{}`, wrong: "which spec.reads does not list"},
	} {
		t.Run(name, func(t *testing.T) {
			p, s := mustCompile(t, policy(body)), &parentage{is: tc.is}
			d, err := p.Decide(t.Context(), input(t, `{}`), s)
			x, problem := p.Explain(t.Context(), input(t, `{}`), s, false)
			if tc.wrong != "" {
				wantCause(t, err, ContractViolated, tc.wrong)
				if problem != nil || len(x.Facts) != 1 {
					t.Fatalf("explained as %+v, %v", x, problem)
				}
				wantCause(t, x.Facts[0].Err, ContractViolated, tc.wrong)
				if len(s.read) > 0 {
					t.Errorf("read all the same: %+v", s.read)
				}
				return
			}
			if err != nil || len(d.Warnings) != 1 || len(s.read) != 2 { // decided, and explained
				t.Fatalf("got %+v, %v, asked %+v", d, err, s.read)
			}
			if diff := cmp.Diff(tc.want, s.read[0], cmpopts.IgnoreUnexported(Value{})); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
		})
	}
}

// All that is asked for is held to spec.reads before any of it is read.
func TestNothingIsReadBesideWhatMayNotBe(t *testing.T) {
	const loan, secret = `facts.a := {"apiVersion": "toy/v1", "kind": "Loan"}`, `facts.b := object.union({}, {"apiVersion": "v1", "kind": "Secret"})`
	p, s := mustCompile(t, policy(loan+"\n\n"+secret+"\n\nvalid_input if true\n\nwarn contains \"w\" if true\n")), &parentage{}
	_, err := p.Decide(t.Context(), input(t, `{}`), s)
	wantCause(t, err, ContractViolated, "facts.b asks for v1 Secret, which spec.reads does not list")
	if len(s.read) > 0 {
		t.Errorf("read is %+v", s.read)
	}
}
