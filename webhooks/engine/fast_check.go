package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
)

// checkedShare is how many decisions of a policy there are for each that is checked: made on the whole input too.
const checkedShare = 256

// check makes a decision again on the whole input. If it is another one, that is a bug of ours: the decision on the whole input
// stands, and all decisions of the policy are made so from then on.
func (a *accelerated) check(
	ctx context.Context, e endpoint, in Input, facts map[string]Fact, fast *Decision, fastErr error,
) (*Decision, error) {
	slow, slowErr := plain{a.Policy}.judge(ctx, e, in, facts)
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
	a.distrusted.Store(true)
	return slow, slowErr
}

// agree tells whether two answers are the same decision, or the same failure to decide.
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

// unfinished tells a failure that says nothing about the input.
func unfinished(err error) bool {
	var e *Error
	return errors.As(err, &e) && slices.Contains([]Cause{DeadlineExceeded, CallerGone, StillRunning}, e.Cause)
}
