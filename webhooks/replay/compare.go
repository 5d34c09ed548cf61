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
	Mode v1alpha1.PolicyMode `json:"mode"`
	// Verdict is the word of the decision record.
	Verdict string          `json:"verdict"`
	Denials []engine.Denial `json:"denials,omitempty"`
	Patches []engine.Patch  `json:"patches,omitempty"`
	// Override is by whom the request passes in spite of Denials or Error.
	Override *webhooks.Override `json:"override,omitempty"`
	// Outcome is what a reconciler that asked would act on.
	Outcome any          `json:"outcome,omitempty"`
	Cause   engine.Cause `json:"cause,omitempty"`
	Error   string       `json:"error,omitempty"`
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
	// TooLarge: the request was too large for a record.
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
	return &Said{
		Mode: p.Mode, Verdict: p.Verdict, Denials: p.Denials, Patches: p.Patches, Override: p.Override, Outcome: p.Outcome,
		Cause: p.Cause, Error: p.Error,
	}
}

// comparison of a decision with what it would be.
type comparison struct {
	changes []Change
	unknown []Unknown
	would   Verdict
}

// compare holds the record of a decision against the one that it would make. unknown has the policies of the latter that could
// not be asked.
func compare(was, would *webhooks.Record, unknown map[string]Unknown) comparison {
	before, after := byPolicy(was), byPolicy(would)
	names := maps.Clone(before)
	maps.Copy(names, after)
	c := comparison{would: verdictOf(would, unknown)}
	acted := was.Allowed && would.Allowed // nobody acts on the outcome of a denial
	for _, name := range slices.Sorted(maps.Keys(names)) {
		old, now := saidBy(before[name]), saidBy(after[name])
		if !acted {
			old, now = old.withoutOutcome(), now.withoutOutcome()
		}
		failedThen := old != nil && ofTheMoment(old.Cause)
		switch u, missing := unknown[name]; {
		case missing && !failedThen:
			c.unknown = append(c.unknown, u)
		case !missing && old.same(now):
		case failedThen:
			c.unknown = append(c.unknown, Unknown{Policy: name, Cause: FailedThen, Why: "the policy could not decide then: " + old.Error})
		default:
			c.changes = append(c.changes, Change{Policy: name, Was: old, Would: now})
		}
	}
	return c
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

func (s *Said) refuses() bool {
	return s != nil && (s.Verdict == "denied" || s.Verdict == "error_denied")
}

func (s *Said) failed() bool { return s != nil && s.Cause != "" }

func (s *Said) withoutOutcome() *Said {
	if s == nil {
		return nil
	}
	bare := *s
	bare.Outcome = nil
	return &bare
}

// reasons of the denials, each once, or the cause of an error.
func (s *Said) reasons() []string {
	if s == nil {
		return nil
	}
	var all []string
	for _, d := range s.Denials {
		all = append(all, d.Reason)
	}
	if s.Cause != "" {
		all = append(all, string(s.Cause))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Word is the verdict in a word; a policy that was not asked lets pass.
func (s *Said) Word() string {
	if s == nil {
		return "allowed"
	}
	return s.Verdict
}

// same tells whether it makes no difference to anybody: messages may be put otherwise.
func (s *Said) same(other *Said) bool {
	return s.Word() == other.Word() && slices.Equal(s.reasons(), other.reasons()) && s.samePatches(other) && s.sameOutcome(other)
}

func (s *Said) samePatches(other *Said) bool { return text(s.patches()) == text(other.patches()) }

func (s *Said) patches() []engine.Patch {
	if s == nil || len(s.Patches) == 0 {
		return nil
	}
	return s.Patches
}

func (s *Said) sameOutcome(other *Said) bool { return text(s.outcome()) == text(other.outcome()) }

func (s *Said) outcome() any {
	if s == nil {
		return nil
	}
	return pruned(s.Outcome)
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
