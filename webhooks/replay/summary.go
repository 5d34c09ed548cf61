package replay

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Summary counts what came of all lines.
type Summary struct {
	// Decisions is how many were replayed; Flips, Verdicts and Undecided how many of them would be others, would have another
	// verdict, and cannot be told about. One with both a policy that would say something else and one that cannot be asked counts
	// in both.
	Decisions int `json:"decisions"`
	Flips     int `json:"flips"`
	Verdicts  int `json:"verdicts"`
	Undecided int `json:"undecided"`
	// Unreadable is how many lines hold a record that cannot be read, Cut how many inputs end within one, and Others how many
	// lines hold none.
	Unreadable int `json:"unreadable"`
	Cut        int `json:"cut"`
	Others     int `json:"otherLines"`
	// Changes are the flips by what makes them, Unknown the policies that cannot be asked; the most frequent first.
	Changes []ChangeCount  `json:"changes"`
	Unknown []UnknownCount `json:"unknown"`
}

// ChangeCount is how often a policy would say something else in the same way.
type ChangeCount struct {
	Count int `json:"count"`
	ChangeKind
}

// ChangeKind is a way in which a policy says something else.
type ChangeKind struct {
	Policy string `json:"policy"`
	// Was and Would are the verdicts on the requests.
	Was   Verdict `json:"was"`
	Would Verdict `json:"would"`
	// Difference is "gone" or "new" for a reason, "verdict" for another mode of denial, "patches" or "outcome".
	Difference string `json:"difference"`
	// What is the reason, or the words of the verdict.
	What string `json:"what,omitempty"`
}

// UnknownCount is how often a policy cannot be asked for the same cause. What is told of it is of the first time.
type UnknownCount struct {
	Count int `json:"count"`
	Unknown
	File string `json:"file"`
	Line int    `json:"line"`
}

// mostKinds is how many kinds of changes, and of unknown answers, are counted each by itself, and mostText the bytes of a text of one:
// names and reasons are those of the records. What is more counts as of otherPolicies.
const mostKinds, mostText, otherPolicies = 10_000, 1024, "(others)"

func short(text string) string { return strings.Clone(text[:min(len(text), mostText)]) }

// counter makes a summary.
type counter struct {
	Summary
	changes map[ChangeKind]int
	unknown map[Unknown]*UnknownCount // without the texts
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

// kinds takes a change apart.
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
	if c.Was.known().Cause == "" && c.Would.known().Cause == "" && !c.Was.samePatches(c.Would) { // who fails patches nothing
		all = append(all, ChangeKind{Difference: "patches"})
	}
	if len(all) == 0 {
		all = append(all, ChangeKind{Difference: "outcome"})
	}
	return all
}

// summary gives what was counted.
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
