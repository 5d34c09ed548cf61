package replay

import (
	"encoding/json"
	"maps"
	"slices"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/record"
)

// Verdict is the result of a request.
type Verdict string

// Verdicts.
const (
	Admitted  Verdict = "admitted"
	Denied    Verdict = "denied"
	Undecided Verdict = "undecided" // a policy that could deny it cannot be evaluated
)

// Said is the result of one policy.
type Said struct {
	record.PolicyResult
	// Override is set if the request was admitted in spite of Denials or Error.
	Override *decision.Override `json:"override,omitempty"`
	// Outcome is the result that a reconciler would act on.
	Outcome any `json:"outcome,omitempty"`
}

// Change is a policy whose result differs. A nil result means that the policy was not, or would not be, evaluated.
type Change struct {
	Policy string `json:"policy"`
	Was    *Said  `json:"was,omitempty"`
	Would  *Said  `json:"would,omitempty"`
}

// Unknown is a policy whose result is unknown.
type Unknown struct {
	Policy string `json:"policy"`
	Cause  Lack   `json:"cause"`
	// Fact is the fact without a recorded answer, if that is the cause.
	Fact string `json:"fact,omitempty"`
	Why  string `json:"why"`
}

// Lack is why a result is unknown. The values are stable.
type Lack string

// Causes of unknown results.
const (
	// FactNotRecorded means that the policy has a query that was not recorded.
	FactNotRecorded Lack = "FactNotRecorded"
	// LeftOut means that the policy reads something that records omit.
	LeftOut Lack = "LeftOut"
	// TooLarge means that the request was too large to be recorded.
	TooLarge Lack = "TooLarge"
	// FailedThen means that the recorded evaluation failed for lack of time or of an answer.
	FailedThen Lack = "FailedThen"
	// FailedNow means that the evaluation failed now for lack of time.
	FailedNow Lack = "FailedNow"
)

func saidBy(p *record.PolicyDecision) *Said {
	if p == nil {
		return nil
	}
	return &Said{p.PolicyResult, p.Override, p.Outcome}
}

// compare compares a record with the one that the decision would have now. unknown has the policies of the latter that cannot be
// evaluated.
func (d *Decision) compare(was, would *record.Record, unknown map[string]Unknown) {
	before, after := byPolicy(was), byPolicy(would)
	names := maps.Clone(before)
	maps.Copy(names, after)
	d.Would = verdictOf(would, unknown)
	acted := was.Allowed && would.Allowed // the outcome of a denial has no effect
	for _, name := range slices.Sorted(maps.Keys(names)) {
		old, now := saidBy(before[name]), saidBy(after[name])
		for _, said := range []*Said{old, now} {
			if said != nil && !acted {
				said.Outcome = nil
			}
		}
		failedThen := old != nil && isTransient(old.Cause)
		switch u, missing := unknown[name]; {
		case missing && !failedThen:
			d.Unknown = append(d.Unknown, u)
		case !missing && old.same(now):
		case failedThen:
			d.Unknown = append(d.Unknown, Unknown{Policy: name, Cause: FailedThen, Why: "the evaluation failed at that time: " + old.Error})
		default:
			d.Changes = append(d.Changes, Change{Policy: name, Was: old, Would: now})
		}
	}
}

func byPolicy(r *record.Record) map[string]*record.PolicyDecision {
	all := make(map[string]*record.PolicyDecision, len(r.Policies))
	for i := range r.Policies {
		all[r.Policies[i].Policy] = &r.Policies[i]
	}
	return all
}

// verdictOf returns Denied if a policy denies the request, and Admitted only if no policy with an unknown result could deny it.
func verdictOf(would *record.Record, unknown map[string]Unknown) Verdict {
	open := false
	for i := range would.Policies {
		p := &would.Policies[i]
		switch _, missing := unknown[p.Policy]; {
		case missing:
			open = open || p.Mode == v1alpha1.ModeEnforce
		case saidBy(p).denies():
			return Denied
		}
	}
	if open {
		return Undecided
	}
	return Admitted
}

// isTransient reports whether a failure depends on the circumstances, and not on the policy's text.
func isTransient(cause engine.Cause) bool {
	return slices.Contains([]engine.Cause{
		engine.FactUnavailable, engine.DeadlineExceeded, engine.CallerGone, engine.StillRunning, engine.Panicked,
	}, cause)
}

// orAllowed returns the result; a policy that was not evaluated allows the request.
func (s *Said) orAllowed() Said {
	if s == nil {
		return Said{PolicyResult: record.PolicyResult{Verdict: "allowed"}}
	}
	return *s
}

// Word returns the result in the words of decision records.
func (s *Said) Word() string { return s.orAllowed().Verdict }

func (s *Said) denies() bool { return s.Word() == "denied" || s.Word() == "error_denied" }

// reasons returns the distinct reasons of the denials, or the cause of an error.
func (s *Said) reasons() []string {
	var all []string
	for _, d := range s.orAllowed().Denials {
		all = append(all, d.Reason)
	}
	if cause := s.orAllowed().Cause; cause != "" {
		all = append(all, string(cause))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// same reports whether two results have the same effect: messages may differ.
func (s *Said) same(other *Said) bool {
	return s.Word() == other.Word() && slices.Equal(s.reasons(), other.reasons()) && s.samePatches(other) &&
		text(pruned(s.orAllowed().Outcome)) == text(pruned(other.orAllowed().Outcome))
}

func (s *Said) samePatches(other *Said) bool {
	return slices.EqualFunc(s.orAllowed().Patches, other.orAllowed().Patches, func(a, b engine.Patch) bool { return text(a) == text(b) })
}

func text(document any) string {
	encoded, err := json.Marshal(document)
	if err != nil {
		panic(err) // it was made from JSON
	}
	return string(encoded)
}

// pruned returns a document without empty values.
func pruned(document any) any {
	object, ok := document.(map[string]any)
	if !ok {
		if list, ok := document.([]any); ok && len(list) == 0 {
			return nil
		}
		return document
	}
	kept := map[string]any{}
	for key, child := range object {
		if child = pruned(child); child != nil {
			kept[key] = child
		}
	}
	if len(kept) == 0 {
		return nil
	}
	return kept
}
