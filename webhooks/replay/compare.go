package replay

import (
	"encoding/json"
	"maps"
	"slices"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks"
	"sallyport.dev/sallyport/webhooks/engine"
)

// Verdict is what comes of a request.
type Verdict string

// The verdicts.
const (
	Admitted  Verdict = "admitted"
	Denied    Verdict = "denied"
	Undecided Verdict = "undecided" // a policy that could deny it cannot be asked
)

// Said is what one policy says.
type Said struct {
	webhooks.PolicySaid
	// Override is by whom the request passes in spite of Denials or Error.
	Override *webhooks.Override `json:"override,omitempty"`
	// Outcome is what a reconciler that asked would act on.
	Outcome any `json:"outcome,omitempty"`
}

// Change is a policy that says something else. It was not asked, or would not be, where it says nothing.
type Change struct {
	Policy string `json:"policy"`
	Was    *Said  `json:"was,omitempty"`
	Would  *Said  `json:"would,omitempty"`
}

// Unknown is a policy of which cannot be said what it would say.
type Unknown struct {
	Policy string `json:"policy"`
	Cause  Lack   `json:"cause"`
	// Fact is what the policy asks and the record has no answer to, if that is the cause.
	Fact string `json:"fact,omitempty"`
	Why  string `json:"why"`
}

// Lack says in a word why something cannot be said. The words are stable.
type Lack string

// The lacks.
const (
	// FactNotRecorded: the policy asks for something that was not asked for then.
	FactNotRecorded Lack = "FactNotRecorded"
	// LeftOut: the policy reads something that records leave out.
	LeftOut Lack = "LeftOut"
	// TooLarge: the request was too large to be recorded.
	TooLarge Lack = "TooLarge"
	// FailedThen: the policy could not decide then, for want of time or of an answer.
	FailedThen Lack = "FailedThen"
	// FailedNow: the policy could not decide now, for want of time.
	FailedNow Lack = "FailedNow"
)

func saidBy(p *webhooks.PolicyDecision) *Said {
	if p == nil {
		return nil
	}
	return &Said{p.PolicySaid, p.Override, p.Outcome}
}

// compare holds the record of a decision against the one that it would make. unknown has the policies of the latter that could
// not be asked.
func (d *Decision) compare(was, would *webhooks.Record, unknown map[string]Unknown) {
	before, after := byPolicy(was), byPolicy(would)
	names := maps.Clone(before)
	maps.Copy(names, after)
	d.Would = verdictOf(would, unknown)
	acted := was.Allowed && would.Allowed // nobody acts on the outcome of a denial
	for _, name := range slices.Sorted(maps.Keys(names)) {
		old, now := saidBy(before[name]), saidBy(after[name])
		for _, said := range []*Said{old, now} {
			if said != nil && !acted {
				said.Outcome = nil
			}
		}
		failedThen := old != nil && ofTheMoment(old.Cause)
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

func byPolicy(r *webhooks.Record) map[string]*webhooks.PolicyDecision {
	all := make(map[string]*webhooks.PolicyDecision, len(r.Policies))
	for i := range r.Policies {
		all[r.Policies[i].Policy] = &r.Policies[i]
	}
	return all
}

// verdictOf tells what is certain: a denial, whatever cannot be asked; an admission only if nothing that cannot be asked could deny.
func verdictOf(would *webhooks.Record, unknown map[string]Unknown) Verdict {
	open := false
	for i := range would.Policies {
		p := &would.Policies[i]
		switch _, missing := unknown[p.Policy]; {
		case missing:
			open = open || p.Mode == v1alpha1.ModeEnforce
		case saidBy(p).refuses():
			return Denied
		}
	}
	if open {
		return Undecided
	}
	return Admitted
}

// ofTheMoment tells a failure that comes of how things stood, and not of the policy's text.
func ofTheMoment(cause engine.Cause) bool {
	return slices.Contains([]engine.Cause{
		engine.FactUnavailable, engine.DeadlineExceeded, engine.CallerGone, engine.StillRunning, engine.Panicked,
	}, cause)
}

// known is what was said; a policy that was not asked lets pass.
func (s *Said) known() Said {
	if s == nil {
		return Said{PolicySaid: webhooks.PolicySaid{Verdict: "allowed"}}
	}
	return *s
}

// Word is the verdict in a word.
func (s *Said) Word() string { return s.known().Verdict }

func (s *Said) refuses() bool { return s.Word() == "denied" || s.Word() == "error_denied" }

// reasons of the denials, each once, or the cause of an error.
func (s *Said) reasons() []string {
	var all []string
	for _, d := range s.known().Denials {
		all = append(all, d.Reason)
	}
	if cause := s.known().Cause; cause != "" {
		all = append(all, string(cause))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// same tells whether it makes no difference to anybody: messages may be put otherwise.
func (s *Said) same(other *Said) bool {
	return s.Word() == other.Word() && slices.Equal(s.reasons(), other.reasons()) && s.samePatches(other) &&
		text(pruned(s.known().Outcome)) == text(pruned(other.known().Outcome))
}

func (s *Said) samePatches(other *Said) bool {
	return slices.EqualFunc(s.known().Patches, other.known().Patches, func(a, b engine.Patch) bool { return text(a) == text(b) })
}

func text(document any) string {
	encoded, err := json.Marshal(document)
	if err != nil {
		panic(err) // it was made from JSON
	}
	return string(encoded)
}

// pruned is a document without what is empty.
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
