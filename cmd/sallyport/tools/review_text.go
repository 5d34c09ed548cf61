package tools

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"

	"sallyport.dev/sallyport/cmd/internal/explained"
	"sallyport.dev/sallyport/cmd/internal/terminal"
	"sallyport.dev/sallyport/webhooks/offline"
)

type reviewPrinter struct {
	terminal.Printer
	errs    io.Writer
	verbose bool
	empty   bool // there is no state
}

func (p reviewPrinter) print(report *offline.Report) error {
	for _, text := range report.Warnings {
		fmt.Fprintln(p.errs, "Warning:", text)
	}
	for _, text := range report.Notes {
		fmt.Fprintln(p.errs, "Note:", text)
	}
	for i, r := range report.Results {
		if i > 0 {
			p.Say("")
		}
		p.result(r)
	}
	switch n := len(report.Results); {
	case n == report.Admitted && n > 1:
		p.Say("\n%d requests admitted", n)
	case n > report.Admitted && p.empty:
		p.Say("\nNo --state is given, so only the reviewed objects exist.")
	}
	return nil
}

var verdictColours = map[offline.Verdict]string{offline.Admitted: terminal.Green, offline.Denied: terminal.Red, offline.Undecided: terminal.Bold}

// done is the verb that kubectl prints for an admitted request.
var done = map[admissionv1.Operation]string{admissionv1.Create: "created", admissionv1.Update: "replaced", admissionv1.Delete: "deleted", admissionv1.Connect: "connected"}

func (p reviewPrinter) result(r *offline.Result) {
	did := done[r.Operation]
	if r.Subresource == offline.Scale {
		did = "scaled"
	}
	what := objectOf(r)
	if r.Verdict == offline.Admitted {
		what += " " + did
	}
	p.Say("%s  %s  (%s)", p.Paint(verdictColours[r.Verdict], fmt.Sprintf("%-9s", strings.ToUpper(string(r.Verdict)))), what, p.circumstances(r))
	for _, text := range r.Warnings {
		p.line("Warning: %s", text)
	}
	if r.Status != nil {
		p.line("%s", p.Paint(terminal.Red, offline.KubectlSays(r.Status)))
	}
	for _, f := range r.Fields {
		p.line("%s:%d: %s", r.File, f.Line, f.Field)
	}
	if r.Verdict == offline.Undecided && r.Status == nil {
		for _, why := range undecided(r) {
			p.line("%s", why)
		}
	}
	if r.Verdict != offline.Denied || p.verbose {
		p.changes(r.Changes)
	}
	for _, note := range r.Notes {
		if p.verbose || note.About != offline.AboutWebhook {
			p.line("Note: %s", note.Text)
		}
	}
	explained.Print(p.Printer, "    ", r.Explanations)
	if p.verbose {
		p.policies(r)
	}
}

// objectOf names the object as kubectl does.
func objectOf(r *offline.Result) string {
	what := strings.ToLower(r.Kind)
	if group, _, found := strings.Cut(r.APIVersion, "/"); found {
		what += "." + group
	}
	if r.Name == "" {
		return what + "/(no name)"
	}
	return what + "/" + r.Name
}

func (p reviewPrinter) circumstances(r *offline.Result) string {
	parts := []string{string(r.Operation)}
	if r.Namespace != "" {
		parts = append(parts, "namespace "+r.Namespace)
	}
	return strings.Join(append(parts, place(r)), ", ")
}

// place is where the object of the request was read.
func place(r *offline.Result) string { return fmt.Sprintf("%s:%d", r.File, r.Line) }

func (p reviewPrinter) line(format string, args ...any) {
	const margin = "    "
	p.Say("%s", margin+strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "\n"+margin+"  "))
}

// undecided lists the policies that could not decide. A cluster with more state may admit the request.
func undecided(r *offline.Result) (why []string) {
	for _, v := range r.Policies {
		if v.Error != "" {
			why = append(why, fmt.Sprintf("[%s/%s] policy evaluation failed: %s", v.Policy, v.Cause, v.Error))
		}
	}
	return why
}

// signs of the operations, as in a diff.
var signs = map[string]string{"add": "+", "remove": "-", "change": "~"}

func (p reviewPrinter) changes(changes []offline.Change) {
	width := 0
	texts := make([]string, len(changes))
	for i, c := range changes {
		switch c.Op {
		case "add":
			texts[i] = fmt.Sprintf("%s %s: %s", signs[c.Op], c.Path, shown(c.New))
		case "remove":
			texts[i] = fmt.Sprintf("%s %s: %s", signs[c.Op], c.Path, shown(c.Old))
		default:
			texts[i] = fmt.Sprintf("%s %s: %s -> %s", signs[c.Op], c.Path, shown(c.Old), shown(c.New))
		}
		if n := len(texts[i]); n <= 80 { // one long value must not push away the others' column
			width = max(width, n)
		}
	}
	for i, c := range changes {
		p.line("%-*s  %s", width, texts[i], p.Paint(terminal.Cyan, c.By))
	}
}

// shown returns a value as a YAML flow scalar.
func shown(value any) string {
	if text, ok := value.(string); ok && text != "" && !strings.ContainsAny(text, "\n\"") {
		return text
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	const most = 120
	if text := []rune(string(encoded)); len(text) > most {
		return string(text[:most]) + "..."
	}
	return string(encoded)
}

func (p reviewPrinter) policies(r *offline.Result) {
	for _, v := range r.Policies {
		text := fmt.Sprintf("policy %s (%s, %s): %s", v.Policy, v.Endpoint, v.Mode, v.Verdict)
		switch {
		case v.Error != "":
			text += fmt.Sprintf(" (%s: %s)", v.Cause, v.Error)
		case len(v.Patches) > 0:
			fields := 0
			for _, patch := range v.Patches {
				fields += len(patch.Paths())
			}
			text += fmt.Sprintf(", %d fields patched", fields)
		}
		p.line("%s", text)
		for _, d := range v.Denials {
			p.line("  %s (%d, %s): %s", d.Reason, d.Code, d.Rule, d.WithRemedy())
		}
	}
	if len(r.Policies) == 0 {
		p.line("no policy was evaluated")
	}
}
