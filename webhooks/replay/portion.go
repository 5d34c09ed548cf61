package replay

import (
	"context"
	"slices"
	"time"

	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/record"
)

// Portion selects the recorded decisions to replay, and what they are compared with. The zero value means all decisions, compared
// with the records.
type Portion struct {
	// Policy is the only policy whose results count; empty means all.
	Policy string
	// Since skips earlier decisions.
	Since time.Time
	// Baseline are policies to compare with instead of those of the records; nil means the records.
	Baseline *catalog.Set
}

// Of returns a replayer of a portion.
func (r *Replayer) Of(p Portion) *Replayer {
	of := *r
	of.portion = p
	if p.Baseline != nil {
		of.baseline = New(p.Baseline)
	}
	return &of
}

// includes reports whether a record is in the portion.
func (p *Portion) includes(recorded *record.Record) bool {
	at, err := time.Parse(time.RFC3339, recorded.Time)
	return p.Since.IsZero() || err == nil && !at.Before(p.Since)
}

// reduce reduces a decision to the result of the portion's policy.
func (p *Portion) reduce(recorded *record.Record) *record.Record {
	if p.Policy == "" {
		return recorded
	}
	own := *recorded
	own.Policies, own.Allowed = nil, true
	if i := slices.IndexFunc(recorded.Policies, func(d record.PolicyDecision) bool { return d.Policy == p.Policy }); i >= 0 {
		own.Policies = recorded.Policies[i : i+1]
		own.Allowed = !saidBy(&own.Policies[0]).denies()
	}
	return &own
}

// reevaluate evaluates the policies again. It also returns those that could not be evaluated.
func (r *Replayer) reevaluate(ctx context.Context, recorded *record.Record, q decision.Question) (*record.Record, map[string]Unknown, error) {
	m := newMemory(recorded, q.Review)
	readers := map[string]*reader{}
	q.Facts = func(policy string) engine.Reader {
		if readers[policy] == nil {
			readers[policy] = &reader{memory: m, policy: policy}
		}
		return readers[policy]
	}
	decided, err := decision.NewDecider(r.set, nil, nil, nil).Decide(ctx, &q)
	if err != nil {
		return nil, nil, err
	}
	would := *recorded
	would.Allowed, would.Policies = decided.Allowed(), record.PoliciesOf(decided)
	return &would, r.unknown(&would, recorded, readers), nil
}
