package engine

import (
	"context"
	"encoding/json"
	"testing"
)

// theatre answers rehearsals with what it was given.
type theatre struct{ asked []Query }

func (s *theatre) Read(_ context.Context, q Query) (Answer, error) {
	s.asked = append(s.asked, q)
	return Answer{Value: q.Document, Live: true}, nil
}

const rehearsing = `facts.trial := {"rehearsal": input.request.object} if input.request.wanted

facts.trial := null if not input.request.wanted

valid_input if true

` + denyMetadata + `deny contains {"reason": "R", "message": $"there is {input.facts.trial.text}"} if {
	input.facts.trial != null
	"text" in object.keys(input.facts.trial)
}
`

func TestRehearsalIsAskedWithWhateverTheRequestHas(t *testing.T) {
	p := mustCompile(t, policy(rehearsing))
	s := &theatre{}
	d, err := p.Decide(t.Context(), input(t, `{"wanted": true, "object": {"text": "x", "deep": [{"n": 1.50}]}}`), s)
	if err != nil || len(d.Denials) != 1 || d.Denials[0].Message != "there is x" || d.Confirmation != NotNeeded {
		t.Fatalf("got %+v, %v", d, err)
	}
	q := s.asked[0]
	text, err := q.Document.MarshalJSON()
	if len(s.asked) != 1 || !q.Rehearsal || err != nil || string(text) != `{"deep":[{"n":1.50}],"text":"x"}` {
		t.Errorf("asked %+v for %s, %v", s.asked, text, err)
	}
	if text, err := json.Marshal(q); err != nil || string(text) != `{"rehearsal":true}` {
		t.Errorf("the record has %s, %v", text, err)
	}
	if d, err = p.Decide(t.Context(), input(t, `{"object": {"text": "x"}}`), s); err != nil || len(d.Denials) != 0 || len(s.asked) != 1 {
		t.Errorf("not wanted: got %+v, %v, asked %+v", d, err, s.asked)
	}
}

func TestRehearsalsThatCannotBeAsked(t *testing.T) {
	for name, tc := range map[string]struct {
		fact  string
		cause Cause
		text  string
	}{
		"of nothing":     {`{"rehearsal": input.request.object}`, InputNotUnderstood, "facts.x.rehearsal is null"},
		"of a kind, too": {`{"rehearsal": 1, "apiVersion": "toy/v1", "kind": "Loan"}`, ContractViolated, "exactly one of kind, parent, access and rehearsal"},
		"and of access":  {`{"rehearsal": 1, "access": {"verb": "get", "resource": "books"}}`, ContractViolated, "exactly one"},
		"with a name":    {`{"rehearsal": 1, "name": "x"}`, ContractViolated, "rehearsal take no selection"},
	} {
		t.Run(name, func(t *testing.T) {
			p := mustCompile(t, policy("facts.x := "+tc.fact+"\n\nvalid_input if true\n\nwarn contains \"w\" if true\n"))
			_, err := p.Decide(t.Context(), input(t, `{"object": null}`), &theatre{})
			wantCause(t, err, tc.cause, tc.text)
		})
	}
}
