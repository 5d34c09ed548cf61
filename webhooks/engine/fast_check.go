package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// checkedShare is the number of decisions of a policy for each one that is checked on the whole input.
const checkedShare = 256

// check evaluates a decision again on the whole input. A different result is a bug of Sallyport: the decision on the whole input is
// used, and the policy's optimizations are off from then on.
func (a *accelerated) check(
	ctx context.Context, e endpoint, in Input, facts map[string]Fact, fast *Decision, fastErr error,
) (*Decision, error) {
	slow, slowErr := a.evaluateRules(ctx, e, in, facts, Value.orNull)
	if ctx.Err() != nil || unfinished(fastErr) || unfinished(slowErr) {
		return fast, fastErr
	}
	differs := difference(fast, fastErr, slow, slowErr)
	if in.Checked != nil {
		in.Checked(a.name, differs)
	}
	if differs == "" {
		return fast, fastErr
	}
	a.disabled.Store(true)
	return slow, slowErr
}

// mostShown limits how many bytes of a result are shown.
const mostShown = 2 << 10

// difference returns "" if two results are the same decision, or the same failure, and otherwise shows both.
func difference(fast *Decision, fastErr error, slow *Decision, slowErr error) string {
	part, whole := shown(fast, fastErr), shown(slow, slowErr)
	if part == whole {
		return ""
	}
	return fmt.Sprintf("on the part that is read: %.*s; on the whole input: %.*s", mostShown, part, mostShown, whole)
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
