package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"sallyport.dev/sallyport/commands"
)

// Page is text in aligned columns.
type Page struct {
	table *tabwriter.Writer
	// Now is the time that ages are relative to.
	Now time.Time
}

// NewPage returns an empty page that is written to out when it is flushed.
func NewPage(out io.Writer, now time.Time) *Page {
	return &Page{table: tabwriter.NewWriter(out, 0, 0, 2, ' ', 0), Now: now}
}

// Render writes a report as text.
func Render(out io.Writer, r Report, now time.Time) error {
	p := NewPage(out, now)
	r.Text(p)
	return p.table.Flush()
}

// Line writes a line without columns.
func (p *Page) Line(format string, args ...any) { fmt.Fprintf(p.table, format+"\n", args...) }

// Row writes a row. If the last cell has several lines, they are written below each other. If it is empty, nothing is written.
func (p *Page) Row(cells ...string) {
	first, last := cells[:len(cells)-1], cells[len(cells)-1]
	if last == "" {
		return
	}
	for text := range strings.Lines(last) {
		cells := append(slices.Clone(first), strings.TrimRight(text, "\n"))
		for i := range cells { // what the table itself would take for the end of a cell
			cells[i] = strings.Map(func(r rune) rune {
				if r == '\t' || r == '\v' || r == '\f' {
					return ' '
				}
				return r
			}, cells[i])
		}
		fmt.Fprintln(p.table, strings.Join(cells, "\t"))
		first = make([]string, len(first))
	}
}

// shortLength is the maximum length of a shortened text in characters.
const shortLength = 160

// OneLine returns a text in one line. It is not cut: its end may be the way out.
func OneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// Shorten shortens a text to one line.
func Shorten(text string) string {
	all := []rune(OneLine(text))
	if len(all) > shortLength {
		return string(all[:shortLength]) + " ..."
	}
	return string(all)
}

// SomeOf lists up to most names and the number of further ones.
func SomeOf(names []string, most int) string {
	text := strings.Join(names[:min(len(names), most)], ", ")
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Ago is the time since at: "3m".
func (p *Page) Ago(at time.Time) string { return duration.HumanDuration(max(p.Now.Sub(at), 0)) }

// Since is " for 3m", or "" if the time is unknown.
func (p *Page) Since(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return " for " + p.Ago(at)
}

// Condition formats a condition: "False for 3m, OperationInProgress: Start start-1 is in progress".
func (p *Page) Condition(c *metav1.Condition) string {
	if c == nil {
		return ""
	}
	text := fmt.Sprintf("%s%s, %s", c.Status, p.Since(c.LastTransitionTime.Time), c.Reason)
	if c.Message != "" {
		text += ": " + c.Message
	}
	return text
}

// Deletion prints when the deletion was requested, the finalizers that it waits for, and further lines.
func (p *Page) Deletion(meta *metav1.ObjectMeta, more ...string) {
	if meta.DeletionTimestamp == nil {
		return
	}
	text := "requested " + p.Ago(DeletionRequestedAt(meta)) + " ago"
	if len(meta.Finalizers) > 0 {
		text += ", waiting for finalizers " + strings.Join(meta.Finalizers, ", ")
	}
	p.Row("Deletion:", strings.Join(append([]string{text}, more...), "\n"))
}

// DeletionRequestedAt returns when the deletion was requested: the deletion timestamp without the grace period.
func DeletionRequestedAt(meta *metav1.ObjectMeta) time.Time {
	at := meta.DeletionTimestamp.Time
	if grace := meta.DeletionGracePeriodSeconds; grace != nil {
		at = at.Add(-time.Duration(*grace) * time.Second)
	}
	return at
}

// Report describes an object as text, or as JSON or YAML.
type Report interface {
	// Text prints the report as text.
	Text(out *Page)
}

// Flush writes the page. Write errors show elsewhere.
func (p *Page) Flush() { _ = p.table.Flush() }

// Ahead is the time until at, or since at.
func (p *Page) Ahead(at time.Time) string {
	if !at.After(p.Now) {
		return p.Ago(at) + " ago"
	}
	return "in " + duration.HumanDuration(at.Sub(p.Now))
}

// PoliciesCommand is the command that shows a policy.
func PoliciesCommand(name string) string {
	return commands.Line("kubectl", "sallyport", "policies", name)
}
