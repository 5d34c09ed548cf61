package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
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
	same := agree(fast, fastErr, slow, slowErr)
	if in.Checked != nil {
		in.Checked(a.name, same)
	}
	if same {
		return fast, fastErr
	}
	a.disabled.Store(true)
	return slow, slowErr
}

// agree reports whether two results are the same decision, or the same failure.
func agree(a *Decision, errA error, b *Decision, errB error) bool {
	if errA != nil || errB != nil {
		return errA != nil && errB != nil && errA.Error() == errB.Error()
	}
	texts := make([][]byte, 2)
	for i, d := range []*Decision{a, b} {
		text, err := json.Marshal([]any{d.Denials, d.Warnings, d.Patches, d.Outcome})
		if err != nil {
			return false
		}
		texts[i] = text
	}
	return bytes.Equal(texts[0], texts[1])
}

// unfinished reports whether a failure does not depend on the input.
func unfinished(err error) bool {
	var e *Error
	return errors.As(err, &e) && slices.Contains([]Cause{DeadlineExceeded, CallerGone, StillRunning}, e.Cause)
}
