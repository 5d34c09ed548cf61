package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
)

// Way is how a decision was made. Whichever it is, the decision is the same.
type Way string

// The ways of decisions.
const (
	// Evaluated: the rules were evaluated.
	Evaluated Way = ""
	// Cached: they were evaluated before, for a request that is the same in all that they read, and said nothing.
	Cached Way = "remembered"
)

// checkedShare is how many decisions of a policy there are for each that is checked: made on the whole input too.
const checkedShare = 256

// everything is the portion that the long way takes.
var everything = &portion{all: true}

// portion is what is to be made of the input.
func (p *Policy) portion() *portion {
	if p.mistrusted.Load() {
		return everything
	}
	return p.input
}

// Recall gives the decision about a request if it is remembered, and if that takes no more than a look into caches; nil if the policy
// has to be asked. What was found out on the way is kept in the input, which is to be given to [Policy.Decide] then.
func (p *Policy) Recall(ctx context.Context, in *Input, r Reader) (decision *Decision) {
	defer func() {
		if recover() != nil {
			decision = nil // whoever asks meets it again, and is told
		}
	}()
	if !p.fromCaches() || p.mistrusted.Load() || p.decided.Load()%checkedShare == 0 { // the next one is checked
		return nil
	}
	facts, err := p.gather(ctx, *in, r)
	if err != nil { // it is told to who asks
		return nil
	}
	in.facts = facts
	if key, values := p.memorable(admit, *in, facts); key == nil || !p.memory.has(key, values) {
		return nil
	}
	p.decided.Add(1)
	return &Decision{Facts: facts, Way: Cached}
}

// fromCaches tells whether nothing but caches is asked for facts, and that without evaluation.
func (p *Policy) fromCaches() bool {
	return p.ask == nil || p.templates != nil && !slices.ContainsFunc(p.templates, func(t *template) bool { return t.query.Live })
}

// judge decides on as little of the input as the policy reads, or by what it remembers.
func (p *Policy) judge(ctx context.Context, e endpoint, in Input, facts map[string]Fact) (*Decision, error) {
	if p.mistrusted.Load() {
		return p.judgeOn(ctx, e, in, facts, everything)
	}
	var decision *Decision
	var err error
	if key, values := p.memorable(e, in, facts); key != nil && p.memory.has(key, values) {
		decision = &Decision{Facts: facts, Way: Cached}
	} else if decision, err = p.judgeOn(ctx, e, in, facts, p.input); key != nil && err == nil && decision.silent() {
		p.memory.put(key, values)
	}
	if p.decided.Add(1)%checkedShare == 1 && !p.input.all && !in.large() {
		return p.check(ctx, e, in, facts, decision, err)
	}
	return decision, err
}

// check makes a decision again on the whole input. If it is another one, that is a bug of ours: the decision on the whole input
// stands, and all decisions of the policy are made so from then on.
func (p *Policy) check(
	ctx context.Context, e endpoint, in Input, facts map[string]Fact, fast *Decision, fastErr error,
) (*Decision, error) {
	slow, slowErr := p.judgeOn(ctx, e, in, facts, everything)
	if ctx.Err() != nil || unfinished(fastErr) || unfinished(slowErr) {
		return fast, fastErr
	}
	same := agree(fast, fastErr, slow, slowErr)
	if in.Checked != nil {
		in.Checked(p.name, same)
	}
	if same {
		return fast, fastErr
	}
	p.mistrusted.Store(true)
	return slow, slowErr
}

// silent tells whether the policy had nothing to say.
func (d *Decision) silent() bool { return len(d.Denials)+len(d.Warnings)+len(d.Patches) == 0 }

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
