package replay

import (
	"context"
	"slices"
	"time"

	"sallyport.dev/sallyport/webhooks"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/engine"
)

// Portion is which recorded decisions are replayed, and what they are held against. The zero value is all, against the records.
type Portion struct {
	// Policy is the only one whose decisions count; empty means all.
	Policy string
	// Since leaves out what was decided before.
	Since time.Time
	// Baseline are policies that decide in place of those that made the records; nil leaves it at these.
	Baseline *catalog.Set
}

// Of has the replayer replay a portion.
func (r *Replayer) Of(p Portion) *Replayer {
	of := *r
	of.portion = p
	if p.Baseline != nil {
		of.baseline = New(p.Baseline)
	}
	return &of
}

// wants tells whether a record is of the portion, by what was decided then.
func (p *Portion) wants(record *webhooks.Record) bool {
	at, err := time.Parse(time.RFC3339, record.Time)
	return p.Since.IsZero() || err == nil && !at.Before(p.Since)
}

// of is what the policy of the portion says in a decision, and whether it admits the request by itself.
func (p *Portion) of(record *webhooks.Record) *webhooks.Record {
	if p.Policy == "" {
		return record
	}
	own := *record
	own.Policies, own.Allowed = nil, true
	if i := slices.IndexFunc(record.Policies, func(d webhooks.PolicyDecision) bool { return d.Policy == p.Policy }); i >= 0 {
		own.Policies = record.Policies[i : i+1]
		own.Allowed = !saidBy(&own.Policies[0]).refuses()
	}
	return &own
}

// rejudge has the policies decide again. It tells also which of them could not be asked.
func (r *Replayer) rejudge(ctx context.Context, record *webhooks.Record, q webhooks.Question) (*webhooks.Record, map[string]Unknown, error) {
	m := newMemory(record, q.Review)
	readers := map[string]*reader{}
	q.Facts = func(policy string) engine.Reader {
		if readers[policy] == nil {
			readers[policy] = &reader{memory: m, policy: policy}
		}
		return readers[policy]
	}
	decision, err := webhooks.NewGate(r.set, nil, nil, nil).Decide(ctx, &q)
	if err != nil {
		return nil, nil, err
	}
	would := *record
	would.Allowed, would.Policies = decision.Allowed(), decision.Said()
	return &would, r.unknown(&would, record, readers), nil
}
