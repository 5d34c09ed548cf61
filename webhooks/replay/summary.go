package replay

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Summary counts the results of all lines.
type Summary struct {
	// Decisions counts the replayed decisions; Flips, Verdicts and Undecided those that would be different, would have another
	// verdict, and are unknown. A decision with both a different and an unknown policy counts in both.
	Decisions int `json:"decisions"`
	Flips     int `json:"flips"`
	Verdicts  int `json:"verdicts"`
	Undecided int `json:"undecided"`
	// Unreadable counts the lines with an unreadable record, Cut the inputs that end within one, and Others the lines without one.
	Unreadable int `json:"unreadable"`
	Cut        int `json:"cut"`
	Others     int `json:"otherLines"`
	// Changes are the flips by kind, Unknown the policies with unknown results; the most frequent first.
	Changes []ChangeCount  `json:"changes"`
	Unknown []UnknownCount `json:"unknown"`
}

// ChangeCount counts changes of the same kind.
type ChangeCount struct {
	Count int `json:"count"`
	ChangeKind
}

// ChangeKind is how the result of a policy differs.
type ChangeKind struct {
	Policy string `json:"policy"`
	// Was and Would are the results of the request.
	Was   Verdict `json:"was"`
	Would Verdict `json:"would"`
	// Difference is "gone" or "new" for a reason, "verdict" for another mode of denial, "patches" or "outcome".
	Difference string `json:"difference"`
	// What is the reason, or both results.
	What string `json:"what,omitempty"`
}

// UnknownCount counts unknown results of a policy with the same cause. Its details are those of the first.
type UnknownCount struct {
	Count int `json:"count"`
	Unknown
	File string `json:"file"`
	Line int    `json:"line"`
}

// mostKinds limits the kinds of changes, and of unknown results, that are counted separately, and mostText the bytes of their
// texts, which come from the records. Further ones count for otherPolicies.
const mostKinds, mostText, otherPolicies = 10_000, 1024, "(others)"

func short(text string) string { return strings.Clone(text[:min(len(text), mostText)]) }

// counter accumulates a summary.
type counter struct {
	Summary
	changes map[ChangeKind]int
	unknown map[Unknown]*UnknownCount // keys have no texts
}

func newCounter() *counter {
	return &counter{changes: map[ChangeKind]int{}, unknown: map[Unknown]*UnknownCount{}}
}

func (c *counter) add(r *Result) {
	switch {
	case r == nil:
		c.Others++
		return
	case r.Cut:
		c.Cut++
		return
	case r.Problem != "":
		c.Unreadable++
		return
	}
	c.Decisions++
	if r.Flips() {
		c.Flips++
	}
	if r.FlipsVerdict() {
		c.Verdicts++
	}
	if len(r.Unknown) > 0 {
		c.Undecided++
	}
	for _, change := range r.Changes {
		for _, kind := range change.kinds() {
			kind.Policy, kind.Was, kind.Would, kind.What = change.Policy, r.Was, r.Would, short(kind.What)
			if _, known := c.changes[kind]; !known && len(c.changes) >= mostKinds {
				kind.Policy, kind.What = otherPolicies, ""
			}
			c.changes[kind]++
		}
	}
	for _, u := range r.Unknown {
		key := u
		key.Why = ""
		if c.unknown[key] == nil && len(c.unknown) >= mostKinds {
			key.Policy, key.Fact, u = otherPolicies, "", Unknown{Policy: otherPolicies, Cause: u.Cause}
		}
		u.Why = short(u.Why)
		if c.unknown[key] == nil {
			c.unknown[key] = &UnknownCount{Unknown: u, File: r.File, Line: r.Line}
		}
		c.unknown[key].Count++
	}
}

// kinds returns the kinds of a change.
func (c *Change) kinds() (all []ChangeKind) {
	was, would := c.Was.reasons(), c.Would.reasons()
	for _, reason := range was {
		if !slices.Contains(would, reason) {
			all = append(all, ChangeKind{Difference: "gone", What: reason})
		}
	}
	for _, reason := range would {
		if !slices.Contains(was, reason) {
			all = append(all, ChangeKind{Difference: "new", What: reason})
		}
	}
	if len(all) == 0 && c.Was.Word() != c.Would.Word() {
		all = append(all, ChangeKind{Difference: "verdict", What: c.Was.Word() + " -> " + c.Would.Word()})
	}
	if c.Was.orAllowed().Cause == "" && c.Would.orAllowed().Cause == "" && !c.Was.samePatches(c.Would) { // a failed policy patches nothing
		all = append(all, ChangeKind{Difference: "patches"})
	}
	if len(all) == 0 {
		all = append(all, ChangeKind{Difference: "outcome"})
	}
	return all
}

// summary returns the summary.
func (c *counter) summary() *Summary {
	s := c.Summary
	s.Changes, s.Unknown = []ChangeCount{}, []UnknownCount{}
	for kind, count := range c.changes {
		s.Changes = append(s.Changes, ChangeCount{Count: count, ChangeKind: kind})
	}
	slices.SortFunc(s.Changes, func(a, b ChangeCount) int {
		return cmp.Or(b.Count-a.Count, strings.Compare(a.Policy, b.Policy), strings.Compare(a.What, b.What),
			strings.Compare(a.Difference, b.Difference), strings.Compare(string(a.Was+a.Would), string(b.Was+b.Would)))
	})
	for u := range maps.Values(c.unknown) {
		s.Unknown = append(s.Unknown, *u)
	}
	slices.SortFunc(s.Unknown, func(a, b UnknownCount) int {
		return cmp.Or(b.Count-a.Count, strings.Compare(a.Policy, b.Policy), strings.Compare(a.Fact, b.Fact), strings.Compare(string(a.Cause), string(b.Cause)))
	})
	return &s
}
