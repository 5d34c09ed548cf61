package tools

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"sallyport.dev/sallyport/cmd/internal/terminal"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/replay"
)

type replayPrinter struct {
	terminal.Printer
	errs    io.Writer
	options *replayOptions
}

// resultJSON writes a line about a decision, or about a line that cannot be read.
func (p *replayPrinter) resultJSON(r *replay.Result) error {
	word := "undecided"
	switch {
	case r.Problem != "":
		word = "unreadable"
	case p.options.flips(r):
		word = "flip"
	}
	return json.NewEncoder(p).Encode(struct {
		Word string `json:"result"`
		*replay.Result
	}{word, r})
}

func (p *replayPrinter) summaryJSON(s *replay.Summary) error {
	return json.NewEncoder(p).Encode(struct {
		Word string `json:"result"`
		*replay.Summary
	}{"summary", s})
}

// result prints a decision that would change, and with -v an undecided one, as text.
func (p *replayPrinter) result(r *replay.Result) error {
	flips := p.options.flips(r)
	switch {
	case r.Problem != "":
		_, err := fmt.Fprintf(p.errs, "Warning: %s:%d: %s\n", r.File, r.Line, r.Problem)
		return err
	case !flips && !p.options.verbose:
		return nil
	}
	p.Say("%s  %s  %s %s  %s  (%s)", moment(r.Time), terminal.Line(r.User), r.Operation, terminal.Line(object(r.Decision)), p.turn(r.Decision), circumstances(r))
	for _, c := range r.Changes {
		p.change(&c)
	}
	for _, u := range r.Unknown {
		p.Say("    %s: %s: %s", u.Policy, p.Paint(terminal.Bold, "undecided"), u.Why)
	}
	p.Say("")
	return nil
}

// moment returns a record's time, truncated to the second.
func moment(text string) string {
	at, err := time.Parse(engine.TimeFormat, text)
	if err != nil {
		return text
	}
	return at.Format(time.RFC3339)
}

func object(d *replay.Decision) string {
	name := strings.ToLower(d.Kind)
	if _, group, found := strings.Cut(d.Resource, "."); found {
		name += "." + group
	}
	name += "/" + d.Name
	if d.Namespace != "" {
		name += " in " + d.Namespace
	}
	return name
}

// circumstances returns the endpoint and the place of the record.
func circumstances(r *replay.Result) string {
	parts := []string{r.Endpoint}
	if r.Subresource != "" {
		parts = append(parts, "subresource "+r.Subresource)
	}
	if r.DryRun {
		parts = append(parts, "dry run")
	}
	return strings.Join(append(parts, fmt.Sprintf("%s:%d", r.File, r.Line)), ", ")
}

func (p *replayPrinter) turn(d *replay.Decision) string {
	switch {
	case d.Would == replay.Undecided:
		return p.Paint(terminal.Bold, fmt.Sprintf("%s -> undecided", d.Was))
	case d.Was == d.Would:
		return p.Paint(terminal.Bold, fmt.Sprintf("still %s", d.Was))
	case d.Would == replay.Denied:
		return p.Paint(terminal.Red, "admitted -> would be DENIED")
	default:
		return p.Paint(terminal.Green, "denied -> would be ADMITTED")
	}
}

func (p *replayPrinter) change(c *replay.Change) {
	p.Say("    %s: %s -> %s", c.Policy, said(c.Was), said(c.Would))
	for _, line := range lines(c.Was) {
		p.Say("      %s", p.Paint(terminal.Red, "- "+line))
	}
	for _, line := range lines(c.Would) {
		p.Say("      %s", p.Paint(terminal.Green, "+ "+line))
	}
}

func said(s *replay.Said) string {
	if s == nil {
		return "not evaluated"
	}
	return s.Verdict
}

func lines(s *replay.Said) (all []string) {
	if s == nil {
		return nil
	}
	for _, d := range s.Denials {
		all = append(all, fmt.Sprintf("%s: %s", d.Reason, d.WithRemedy()))
	}
	if s.Error != "" {
		all = append(all, fmt.Sprintf("%s: %s", s.Cause, s.Error))
	}
	for _, change := range s.Patches {
		text := "patch: " + change.Op + " " + change.Path
		switch {
		case change.Merge != nil:
			text = "patch: merge " + shown(change.Merge)
		case change.Value != nil:
			text += ": " + shown(change.Value)
		}
		all = append(all, text)
	}
	if s.Outcome != nil {
		all = append(all, "outcome: "+shown(s.Outcome))
	}
	return all
}

func (p *replayPrinter) summary(s *replay.Summary) error {
	text := fmt.Sprintf("%s replayed: %d would change, %d of them with a different verdict; %d undecided",
		plural(s.Decisions, "decision", "decisions"), s.Flips, s.Verdicts, s.Undecided)
	if n := s.Unreadable + s.Cut; n > 0 {
		text += "; " + plural(n, "record", "records") + " unreadable"
	}
	if s.Others > 0 {
		text += "; " + plural(s.Others, "other line", "other lines") + " skipped"
	}
	p.Say("%s", text)
	changes, unknown := tabwriter.NewWriter(p, 0, 0, 2, ' ', 0), tabwriter.NewWriter(p, 0, 0, 2, ' ', 0)
	if len(s.Changes) > 0 {
		fmt.Fprintln(changes, "\nDECISIONS\tWAS\tWOULD BE\tPOLICY\tDIFFERENCE")
	}
	for _, c := range s.Changes {
		fmt.Fprintf(changes, "%d\t%s\t%s\t%s\t%s\n", c.Count, c.Was, c.Would, c.Policy, difference(&c.ChangeKind))
	}
	if len(s.Unknown) > 0 {
		fmt.Fprintln(unknown, "\nUNDECIDED\tPOLICY\tFIRST IN\tWHY")
	}
	for _, u := range s.Unknown {
		fmt.Fprintf(unknown, "%d\t%s\t%s:%d\t%s\n", u.Count, u.Policy, u.File, u.Line, u.Why)
	}
	return errors.Join(changes.Flush(), unknown.Flush())
}

func difference(c *replay.ChangeKind) string {
	switch c.Difference {
	case "gone":
		return "- " + c.What
	case "new":
		return "+ " + c.What
	case "verdict":
		return c.What
	}
	return "different " + c.Difference
}
