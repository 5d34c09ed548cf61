// Package describe writes what policies are about, as a page in Markdown for those who meet them: what each is asked about, why
// it refuses, and what to do then. It tells what the RegoPolicies and the METADATA of their Rego tell, and knows no policy by
// name.
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
	// Preface is what the page begins with, in Markdown: its heading, and what a reader has to know. It ends in an empty line.
	Preface string
	// Modules tells where a module of a policy can be read, as the target of a link; "" if nowhere. It may be nil.
	Modules func(policy *v1alpha1.RegoPolicy, module string) string
}

// Write gives the page. Each policy has a heading of its name, and each reason to refuse one of [policy/Reason], as a denial
// begins. The error joins all that does not parse, with file, line and column.
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
		Table([]string{"policy", "what it is about"}, w.policies) +
		Table([]string{"a denial begins with", "HTTP", "because"}, w.reasons) +
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

// writer collects the sections of the policies, and the tables of all of them.
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
			w.paragraph("They are valid if this holds: " + ended(r.description))
		}
	}
}

// denials writes a section for each reason. Rules may share one.
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
				final = "No override passes it."
			}
			w.paragraph(bold(ended(r.title)), ended(r.description), "*What to do:* "+ended(r.remedy), final)
		}
		w.reasons = append(w.reasons, []string{link("["+heading+"]", w.anchors.add(heading)), strings.Join(codes, ", "), strings.Join(titles, "; ")})
	}
}

func codeOf(code int) string {
	if code == 0 {
		return "it depends"
	}
	return fmt.Sprintf("%d %s", code, http.StatusText(code))
}

// others writes what a policy does besides refusing.
func (w *writer) others(a *about) {
	for _, part := range []struct {
		kind string
		head []string
		row  func(rule) []string
	}{
		{"warn", []string{"it warns", ""}, func(r rule) []string { return []string{titleOf(r), Cell(r.description)} }},
		{"patch", []string{"it changes", "", "by"}, func(r rule) []string { return []string{titleOf(r), Cell(r.description), quoted(r.says)} }},
		{"outcome", []string{"it tells reconcilers", "", ""}, func(r rule) []string {
			return []string{quoted(strings.TrimSuffix("outcome."+r.name, ".")), Cell(r.title), Cell(r.description)}
		}},
		{"facts", []string{"it asks for", "", "", ""}, func(r rule) []string {
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

// titleOf is what a rule is called: without a title, by what it says.
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

// paragraph writes sentences that follow one another, without those that are missing.
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
