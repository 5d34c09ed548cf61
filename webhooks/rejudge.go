package webhooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/engine"
)

// ReviewOf is the request of a record.
func (r *Record) ReviewOf() (*Review, error) {
	if _, ok := r.Request.(map[string]any); !ok {
		return nil, errors.New("request: it is no object")
	}
	text, err := json.Marshal(r.Request)
	if err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	document, err := engine.ParseValue(text)
	if err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	request := &admissionv1.AdmissionRequest{}
	if err := json.Unmarshal(text, request); err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	return &Review{Request: request, Document: document, Verified: r.Verified}, nil
}

// Rejudge asks the policies of a set what they were asked for a record, at its time, about the review that [Record.ReviewOf]
// gave. A policy's facts are answered by the reader that of gives for its name; the one for "" is asked for everything else.
// What it gives is the record that the decision would have made, without facts.
func Rejudge(
	ctx context.Context, set *catalog.Set, record *Record, review *Review, of func(policy string) engine.Reader,
) (*Record, error) {
	at, err := time.Parse(engine.TimeFormat, record.Time)
	if err != nil {
		return nil, fmt.Errorf("time: %w", err)
	}
	g := &Gate{now: func() time.Time { return at }}
	g.set.Store(set)
	type asking = func(*engine.Policy, context.Context, engine.Input, engine.Reader) (*engine.Decision, error)
	ask := func(speaks func(*catalog.Policy) bool, ask asking) *judgement {
		toAsk := func(p *catalog.Policy) bool { return speaks(p) && (record.Only == "" || record.Only == p.Name()) }
		return g.judge(ctx, record.Endpoint, review, of(""), toAsk, question{
			ask: func(p *engine.Policy, ctx context.Context, in engine.Input, _ engine.Reader) (*engine.Decision, error) {
				return ask(p, ctx, in, of(p.Name()))
			},
		})
	}
	var j *judgement
	switch {
	case record.Endpoint == validating:
		j = ask(speaksOnValidation, (*engine.Policy).Decide)
		j.hear(ctx, of(""), j.annotated)
	case record.Endpoint == mutating:
		j = ask(speaksOnMutation, (*engine.Policy).Patch)
		j.patch() // what does not apply is an error of its policy
	case record.Endpoint == arbitrating && review.Request.Kind.Kind == "VirtualMachine": // see Admits
		j = ask(speaksOfServers, (*engine.Policy).Decide)
	case record.Endpoint == arbitrating: // see Arbitrate
		operation := &v1alpha1.VirtualMachineOperation{}
		if err := json.Unmarshal(review.Request.Object.Raw, operation); err != nil {
			return nil, fmt.Errorf("request.object: %w", err)
		}
		j = ask(speaksOnValidation, (*engine.Policy).Decide)
		j.hear(ctx, of(""), j.stamped(operation))
	default:
		return nil, fmt.Errorf("endpoint: %q is not %s, %s or %s", record.Endpoint, validating, mutating, arbitrating)
	}
	return j.again(record), nil
}

func (j *judgement) again(was *Record) *Record {
	response := j.respond()
	would := *was
	would.Allowed, would.Warnings, would.Facts = response.Allowed, response.Warnings, nil
	would.Policies = make([]PolicyDecision, len(j.verdicts))
	for i := range j.verdicts {
		would.Policies[i] = j.said(i)
	}
	return &would
}
