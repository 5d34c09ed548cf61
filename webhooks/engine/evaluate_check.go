package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// checkedShare is the number of decisions of a policy for each one that is checked with topdown.
const checkedShare = 256

// decideOn evaluates the rules of an endpoint.
func (p *Policy) decideOn(ctx context.Context, e endpoint, in Input, facts map[string]Fact) (*Decision, error) {
	decision, err := p.evaluateRules(ctx, e, in, facts)
	if p.decided.Add(1)%checkedShare == 1 && !p.interpreted.Load() && in.Request.Values() == 0 {
		return p.check(ctx, e, in, facts, decision, err)
	}
	return decision, err
}

// check evaluates a decision again with topdown. A different result is a bug of Sallyport: that of topdown is used, and the policy has no
// programs from then on.
func (p *Policy) check(
	ctx context.Context, e endpoint, in Input, facts map[string]Fact, fast *Decision, fastErr error,
) (*Decision, error) {
	in.interpreted = true
	slow, slowErr := p.evaluateRules(ctx, e, in, facts)
	if ctx.Err() != nil || unfinished(fastErr) || unfinished(slowErr) {
		return fast, fastErr
	}
	differs := difference(fast, fastErr, slow, slowErr)
	p.noteCheck(in, differs)
	if differs == "" {
		return fast, fastErr
	}
	return slow, slowErr
}

// noteCheck reports what a check has found. After a difference the policy has no programs.
func (p *Policy) noteCheck(in Input, differs string) {
	if differs != "" {
		p.interpreted.Store(true)
	}
	if in.Checked != nil {
		in.Checked(p.name, differs)
	}
}

// mostShown limits how many bytes of a result are shown.
const mostShown = 2 << 10

// difference returns "" if two results are the same decision, or the same failure, and otherwise shows both.
func difference(fast *Decision, fastErr error, slow *Decision, slowErr error) string {
	part, whole := shown(fast, fastErr), shown(slow, slowErr)
	if part == whole {
		return ""
	}
	return fmt.Sprintf("the program: %.*s; topdown: %.*s", mostShown, part, mostShown, whole)
}

func shown(d *Decision, err error) string {
	if err == nil {
		var text []byte
		if text, err = json.Marshal([]any{d.Denials, d.Warnings, d.Patches, d.Outcome}); err == nil {
			return string(text)
		}
	}
	return "error: " + err.Error()
}

// unfinished reports whether a failure does not depend on the input.
func unfinished(err error) bool {
	var e *Error
	return errors.As(err, &e) && slices.Contains([]Cause{DeadlineExceeded, CallerGone, StillRunning}, e.Cause)
}
