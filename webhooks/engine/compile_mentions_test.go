package engine

import (
	"context"
	"errors"
	"testing"
)

// Names of fields are found wherever they are read: in references, as arguments, in libraries; not in words about them.
func TestMentions(t *testing.T) {
	src := policy(`valid_input if input.request.spec["by reference"]

# A comment about something.
warn contains "w" if object.get(input.request, "as argument", null) == data.parameters.x
`)
	p := mustCompile(t, src)
	for constant, want := range map[string]bool{
		"by reference": true, "as argument": true, "parameters": true, "spec": true,
		"data": false, "something": false, "T": false,
	} {
		if p.Mentions(constant) != want {
			t.Errorf("%q: %v", constant, !want)
		}
	}
	if !mustCompile(t, lending()).Mentions("staff-") {
		t.Error("what a library mentions is not found")
	}
}

// A failed evaluation tells what it failed on; a policy that was not answered has nothing to tell.
func TestErrorsHaveTheFacts(t *testing.T) {
	p := mustCompile(t, policy(`facts.loans := {"apiVersion": "toy/v1", "kind": "Loan"}

valid_input if is_array(input.facts.loans)

warn contains "w" if true
`))
	_, err := p.Decide(t.Context(), input(t, `{}`), &shelf{cached: map[string]any{"loans": "none"}})
	wantCause(t, err, InputNotUnderstood, "valid_input")
	var failed *Error
	if errors.As(err, &failed); failed.Facts["loans"].Query == nil || failed.Facts["loans"].Answer.Value.Text() != "none" {
		t.Errorf("got %+v", failed.Facts)
	}
	_, err = p.Decide(t.Context(), input(t, `{}`), refusing{})
	wantCause(t, err, FactUnavailable, "facts.loans")
	if errors.As(err, &failed); failed.Facts != nil {
		t.Errorf("got %+v", failed.Facts)
	}
}

// refusing answers nothing.
type refusing struct{}

func (refusing) Read(context.Context, Query) (Answer, error) { return Answer{}, errors.New("gone") }
