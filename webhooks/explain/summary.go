package explain

import (
	"fmt"
	"slices"
	"strings"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/engine"
)

// summarize sets the one-line summary.
func (e *Policy) summarize(says string) {
	e.headline = strings.ReplaceAll(says, "\n", " ")
	e.Summary = e.Policy + ": " + e.headline
}

func (e *Policy) summary() string {
	switch {
	case e.Verdict == NotAsked:
		return "not evaluated: " + nearestMiss(e.Match.Missed)
	case e.Verdict == Unknown:
		return "evaluated, but the result is unknown, because you may not read the objects that it reads: " + e.Error
	case e.Error != "":
		return e.failure()
	}
	said := e.results()
	switch {
	case e.Endpoint == decision.Mutating && len(said) > 0:
		return "changes the object: " + strings.Join(said, ", ")
	case len(said) == 0:
		return e.nearestRule()
	}
	did := map[string]string{
		"denied": "denies", "warned": "only warns, in mode " + string(e.Match.Mode), "audited": "only records, in mode " + string(e.Match.Mode),
		"overridden": "denies, but is overridden", "allowed": "allows, with a warning",
	}[e.Verdict]
	return did + ": " + strings.Join(said, "; ")
}

// results returns the denials, warnings and patches.
func (e *Policy) results() (all []string) {
	for _, r := range e.Rules {
		switch r.Rule {
		case "deny":
			for _, text := range r.Says {
				all = append(all, fmt.Sprintf("[%s] %s (%s)", r.Reason, text, line(r.Place)))
			}
		case "warn":
			all = append(all, r.Says...)
		case "patch":
			all = append(all, r.changes...)
		}
	}
	return all
}

// failure returns why the policy could not be evaluated, and the effect on the request.
func (e *Policy) failure() string {
	comes := "the request is admitted (spec.onError)"
	switch {
	case e.Verdict == "error_denied":
		comes = "the request is denied (spec.onError)"
	case e.Match.Mode != v1alpha1.ModeEnforce:
		comes = "the request is admitted (mode " + string(e.Match.Mode) + ")"
	case e.Verdict == "overridden":
		comes = "the policy is overridden"
	}
	why := e.Error
	if e.Input != nil {
		why = "valid_input at " + line(e.Input.Place) + " needs " + e.Input.innermost().text()
	}
	for _, f := range e.Facts {
		if f.Needs != nil {
			why = fmt.Sprintf("facts.%s is undefined: at %s it needs %s", f.Name, line(f.Needs.Place), f.Needs.innermost().text())
			break
		}
	}
	return fmt.Sprintf("evaluation failed, %s: %s", comes, why)
}

// nearestRule returns, for a policy without results, the rule that came nearest to applying.
func (e *Policy) nearestRule() string {
	did, name := "allows", "deny"
	if e.Endpoint == decision.Mutating {
		did, name = "changes nothing", "patch"
	}
	var best *Rule
	others := 0
	for _, r := range e.Rules {
		if r.Rule != name || r.Needs == nil {
			continue
		}
		if best == nil || r.Needs.passed > best.Needs.passed {
			best = &r
		}
		others++
	}
	if best == nil {
		return did + ": it has no " + name + " rule that can apply"
	}
	text := fmt.Sprintf("%s: %s at %s needs %s", did, name, line(best.Needs.Place), best.Needs.text())
	if others > 1 {
		text += fmt.Sprintf(" (and %s)", plural(others-1, "other rule does not apply", "other rules do not apply"))
	}
	return text
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// nearestMiss returns the matchConstraints entry with the fewest differences from the request.
func nearestMiss(missed []catalog.Missed) string {
	if len(missed) == 0 {
		return "no request reaches it"
	}
	m := slices.MinFunc(missed, func(a, b catalog.Missed) int { return strings.Count(a.Why, ", and ") - strings.Count(b.Why, ", and ") })
	return m.Field + " " + m.Why
}

// innermost returns the last expression in the chain of causes.
func (n *Needs) innermost() *Needs {
	for n.Because != nil {
		n = n.Because
	}
	return n
}

// text returns the expression, and why it does not hold.
func (n *Needs) text() string { return "`" + n.Shown() + "`, " + n.Problem() }

// Shown returns the expression in one line, or its undefined part.
func (n *Needs) Shown() string {
	text := n.Expression
	if n.Missing != "" && strings.Contains(text, "\n") {
		text = n.Missing
	}
	return strings.Join(strings.Fields(text), " ")
}

// Problem returns why the expression does not hold.
func (n *Needs) Problem() string {
	shown := n.Shown()
	var with []string
	undefined := n.Kind == engine.Missing
	for _, w := range n.With {
		switch {
		case w.Name == shown || n.Kind == engine.Holds && w.Value == "true":
			undefined = undefined || w.Value == nothing
		case n.Kind != engine.Missing || w.Value != nothing:
			with = append(with, w.Name+"="+w.Value)
		}
	}
	text := "which is false"
	switch {
	case n.Missing != "" && n.Missing != shown:
		text = n.Missing + " is undefined"
	case undefined:
		text = "which is undefined"
	case n.Kind == engine.NoneSuch:
		text = "but there is none"
	}
	if len(with) > 0 {
		text += " for " + strings.Join(with, ", ")
	}
	if n.Others > 0 {
		text += fmt.Sprintf(", nor for %s", plural(n.Others, "other", "others"))
	}
	return text
}

// nothing is the text of an undefined value.
const nothing = "undefined"

// line returns a place without its column.
func line(place string) string {
	if i := strings.LastIndexByte(place, ':'); i > 0 {
		return place[:i]
	}
	return place
}
