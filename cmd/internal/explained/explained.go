// Package explained prints why policies did or did not deny a request.
package explained

import (
	"fmt"
	"strings"

	"sallyport.dev/sallyport/cmd/internal/terminal"
	"sallyport.dev/sallyport/webhooks/explain"
)

var colours = map[string]string{
	"denied": terminal.Red, "error_denied": terminal.Red, "warned": terminal.Bold, "overridden": terminal.Bold, "error_allowed": terminal.Bold,
	explain.Unknown: terminal.Bold,
}

// Print prints a line for each policy and, indented below it, the explanation. Every line begins with margin.
func Print(p terminal.Printer, margin string, policies []*explain.Policy) {
	for _, e := range policies {
		w := writer{p, margin}
		w.line(0, "%s: %s", p.Paint(terminal.Cyan, e.Policy), p.Paint(colours[e.Verdict], e.Headline()))
		w.policy(e)
	}
}

type writer struct {
	terminal.Printer
	margin string
}

func (w writer) line(depth int, format string, args ...any) {
	w.Say("%s%s%s", w.margin, strings.Repeat("  ", depth), fmt.Sprintf(format, args...))
}

func (w writer) policy(e *explain.Policy) {
	if why := e.Untold(); why != "" {
		w.line(1, "api server   %s", why)
	}
	w.match(e)
	switch {
	case e.LastGood:
		w.line(1, "state        the last good revision decides because the current one is broken: %s", oneLine(e.Broken))
	case e.Broken != "":
		w.line(1, "state        broken: %s", oneLine(e.Broken))
	}
	if e.Override != "" {
		w.line(1, "override     %s", e.Override)
	}
	for _, f := range e.Facts {
		w.fact(&f)
	}
	if e.Input != nil {
		w.line(1, "valid_input  does not hold")
		w.needs(e.Input)
	}
	if e.Error != "" {
		w.line(1, "error        %s", oneLine(e.Error))
	}
	for _, r := range e.Rules {
		w.rule(&r)
	}
}

func (w writer) match(e *explain.Policy) {
	m := e.Match
	if m == nil {
		return
	}
	for _, missed := range m.Missed {
		if len(m.Missed) > 1 { // one is in the line above
			w.line(1, "match        %s %s", missed.Field, missed.Why)
		}
	}
	if len(m.Missed) > 0 {
		return
	}
	w.line(1, "match        %s", m.By)
	if m.Unread != nil {
		w.line(1, "             %s", oneLine(m.Unread.Error()))
	}
	w.line(1, "mode         %s (%s), onError %s", m.Mode, m.ModeBy, e.OnError)
}

func (w writer) fact(f *explain.Fact) {
	name := "facts." + f.Name
	switch {
	case f.Needs != nil:
		w.line(1, "%s  has no value", name)
		w.needs(f.Needs)
	case f.Error != "" && f.Query != "":
		w.line(1, "%s  %s: cannot be read: %s", name, f.Query, oneLine(f.Error))
	case f.Error != "":
		w.line(1, "%s  %s", name, oneLine(f.Error))
	case f.Query == "":
		w.line(1, "%s  is not needed for this request", name)
	default:
		w.line(1, "%s  %s: %s", name, f.Query, f.Answer)
	}
}

func (w writer) rule(r *explain.Rule) {
	head := fmt.Sprintf("%s at %s", r.Rule, r.Place)
	if r.Title != "" {
		head += fmt.Sprintf(" (%s)", r.Title)
	}
	switch {
	case len(r.Says) > 0:
		w.line(1, "%s %s", w.Paint(terminal.Bold, "applies:"), head)
		for _, text := range r.Says {
			w.line(3, "%s", oneLine(text))
		}
	case r.Needs != nil:
		w.line(1, "does not apply: %s", head)
		w.needs(r.Needs)
	default:
		w.line(1, "does not apply: %s", head)
	}
}

func (w writer) needs(n *explain.Needs) {
	for depth := 3; n != nil; n = n.Because {
		w.line(depth, "%s  %s", n.Place, n.Shown())
		w.line(depth+1, "%s", n.Problem())
		depth++
	}
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
