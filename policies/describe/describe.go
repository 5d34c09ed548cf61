// Package describe generates reference pages about policies in Markdown for users: which requests a policy matches, why it denies
// them, and how to proceed. It uses only the RegoPolicies and the METADATA of their Rego, and has no knowledge of particular
// policies.
package describe

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Page is a page about policies.
type Page struct {
	// Preface is the beginning of the page in Markdown: its heading and introduction. It ends with an empty line.
	Preface string
	// Modules returns the link target for the source of a module, or "" if there is none. It may be nil.
	Modules func(policy *v1alpha1.RegoPolicy, module string) string
}

// Write returns the page. Each policy has a heading with its name, and each reason for a denial has the heading policy/Reason, like
// the prefix of the denial. The error joins all parse errors, with file, line and column.
func (p *Page) Write(policies []v1alpha1.RegoPolicy) (string, error) {
	w := &writer{page: p, anchors: anchors{}}
	w.anchors.add(strings.TrimLeft(headline(p.Preface), "# "))
	var errs []error
	for i := range policies {
		about, err := read(&policies[i])
		if errs = append(errs, err); err == nil {
			w.policy(&policies[i], about)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return "", err
	}
	return p.Preface +
		Table([]string{"policy", "purpose"}, w.policies) +
		Table([]string{"prefix of the denial", "HTTP status", "reason"}, w.reasons) +
		strings.TrimRight(w.text.String(), "\n") + "\n", nil
}

func headline(text string) string {
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(line, "# ") {
			return line
		}
	}
	return ""
}

// writer collects the sections of the policies, and the tables of policies and reasons.
type writer struct {
	page              *Page
	anchors           anchors
	text              strings.Builder
	policies, reasons [][]string
}

func (w *writer) policy(policy *v1alpha1.RegoPolicy, a *about) {
	w.policies = append(w.policies, []string{link(policy.Name, w.anchors.add(policy.Name)), Cell(a.title)})
	fmt.Fprintf(&w.text, "## %s\n\n", policy.Name)
	w.paragraph(bold(ended(a.title)), ended(a.description))
	w.text.WriteString(Table([]string{"", ""}, w.facts(policy, a)))
	w.denials(policy, a.of("deny"))
	w.others(a)
	w.text.WriteString(parameters(&policy.Spec))
	for _, r := range a.of("valid_parameters") {
		if r.description != "" {
			w.paragraph("The parameters are valid if this holds: " + ended(r.description))
		}
	}
}

// denials writes a section for each reason. Several rules may have the same reason.
func (w *writer) denials(policy *v1alpha1.RegoPolicy, rules []rule) {
	var reasons []string
	byReason := map[string][]rule{}
	for _, r := range rules {
		if byReason[r.reason] == nil {
			reasons = append(reasons, r.reason)
		}
		byReason[r.reason] = append(byReason[r.reason], r)
	}
	for _, reason := range reasons {
		heading := policy.Name + "/" + reason
		var titles, codes []string
		fmt.Fprintf(&w.text, "### %s\n\n", heading)
		for _, r := range byReason[reason] {
			titles = appendNew(titles, Cell(r.title))
			codes = appendNew(codes, codeOf(r.code))
			final := ""
			if r.final {
				final = "This denial cannot be overridden."
			}
			w.paragraph(bold(ended(r.title)), ended(r.description), "*What to do:* "+ended(r.remedy), final)
		}
		w.reasons = append(w.reasons, []string{link("["+heading+"]", w.anchors.add(heading)), strings.Join(codes, ", "), strings.Join(titles, "; ")})
	}
}

func codeOf(code int) string {
	if code == 0 {
		return "depends on the request"
	}
	return fmt.Sprintf("%d %s", code, http.StatusText(code))
}

// others writes the other rules of a policy: warnings, patches, outcomes and facts.
func (w *writer) others(a *about) {
	for _, part := range []struct {
		kind string
		head []string
		row  func(rule) []string
	}{
		{"warn", []string{"warning", "details"}, func(r rule) []string { return []string{titleOf(r), Cell(r.description)} }},
		{"patch", []string{"change", "details", "patch"}, func(r rule) []string { return []string{titleOf(r), Cell(r.description), quoted(r.says)} }},
		{"outcome", []string{"outcome for reconcilers", "meaning", "details"}, func(r rule) []string {
			return []string{quoted(strings.TrimSuffix("outcome."+r.name, ".")), Cell(r.title), Cell(r.description)}
		}},
		{"facts", []string{"fact", "query", "meaning", "details"}, func(r rule) []string {
			return []string{quoted(r.name), r.says, Cell(r.title), Cell(r.description)}
		}},
	} {
		var rows [][]string
		for _, r := range a.of(part.kind) {
			rows = append(rows, part.row(r))
		}
		w.text.WriteString(Table(part.head, rows))
	}
}

// titleOf returns the title of a rule, or its text if it has no title.
func titleOf(r rule) string {
	if r.title != "" {
		return Cell(r.title)
	}
	return quoted(r.says)
}

func quoted(text string) string {
	if text == "" {
		return ""
	}
	return Code(text)
}

func bold(text string) string {
	if text == "" {
		return ""
	}
	return "**" + text + "**"
}

// paragraph writes the parts as one paragraph, without the empty ones.
func (w *writer) paragraph(parts ...string) {
	var there []string
	for _, part := range parts {
		if part != "" {
			there = append(there, part)
		}
	}
	if len(there) > 0 {
		w.text.WriteString(strings.Join(there, " ") + "\n\n")
	}
}

func link(text, anchor string) string { return fmt.Sprintf("[%s](#%s)", Code(text), anchor) }

func appendNew(all []string, one string) []string {
	for _, other := range all {
		if other == one {
			return all
		}
	}
	return append(all, one)
}
