package plugin

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// page is text in aligned columns.
type page struct {
	table table
	now   time.Time
}

// table aligns columns when it is flushed.
type table interface {
	io.Writer
	Flush() error
}

func newPage(out io.Writer, now time.Time) *page {
	return &page{table: tabwriter.NewWriter(out, 0, 0, 2, ' ', 0), now: now}
}

func render(out io.Writer, r report, now time.Time) error {
	p := newPage(out, now)
	r.text(p)
	return p.table.Flush()
}

// line writes a line without columns.
func (p *page) line(format string, args ...any) { fmt.Fprintf(p.table, format+"\n", args...) }

// row writes a row. If the last cell has several lines, they are written below each other. If it is empty, nothing is written.
func (p *page) row(cells ...string) {
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

// inShort shortens a text to one line.
func inShort(text string) string {
	all := []rune(strings.Join(strings.Fields(text), " "))
	if len(all) > shortLength {
		return string(all[:shortLength]) + " ..."
	}
	return string(all)
}

// someOf lists up to most names and the number of further ones.
func someOf(names []string, most int) string {
	text := strings.Join(names[:min(len(names), most)], ", ")
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// ago is the time since at: "3m".
func (p *page) ago(at time.Time) string { return duration.HumanDuration(max(p.now.Sub(at), 0)) }

// since is " for 3m", or "" if the time is unknown.
func (p *page) since(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return " for " + p.ago(at)
}

// condition formats a condition: "False for 3m, OperationInProgress: Start start-1 is in progress".
func (p *page) condition(c *metav1.Condition) string {
	if c == nil {
		return ""
	}
	text := fmt.Sprintf("%s%s, %s", c.Status, p.since(c.LastTransitionTime.Time), c.Reason)
	if c.Message != "" {
		text += ": " + c.Message
	}
	return text
}

// deletion prints when the deletion was requested, the finalizers that it waits for, and further lines.
func (p *page) deletion(meta *metav1.ObjectMeta, more ...string) {
	if meta.DeletionTimestamp == nil {
		return
	}
	text := "requested " + p.ago(deletionAsked(meta)) + " ago"
	if len(meta.Finalizers) > 0 {
		text += ", waiting for finalizers " + strings.Join(meta.Finalizers, ", ")
	}
	p.row("Deletion:", strings.Join(append([]string{text}, more...), "\n"))
}

// deletionAsked returns when the deletion was requested: the deletion timestamp without the grace period.
func deletionAsked(meta *metav1.ObjectMeta) time.Time {
	at := meta.DeletionTimestamp.Time
	if grace := meta.DeletionGracePeriodSeconds; grace != nil {
		at = at.Add(-time.Duration(*grace) * time.Second)
	}
	return at
}

// claim prints the claim on a machine and the operations that are being undone.
func (p *page) claim(status *v1alpha1.VirtualMachineStatus, states map[string]string) {
	holder := "none"
	if a := status.ActiveOperation; a != nil {
		holder = holderName(a.Type, a.Force, a.Origin, a.Name) + p.since(a.ClaimedAt.Time)
		if s := states[a.ID]; s != "" {
			holder += ", " + s
		}
	}
	p.row("Claimed by:", holder)
	var undoing []string
	for i := range status.Undoing {
		u := &status.Undoing[i]
		text := holderName(u.Type, u.Force, u.Origin, u.Name) + ", " + string(u.End)
		if u.End == v1alpha1.EndSuperseded {
			text += " by " + by(u.By)
		}
		if u.Task != "" {
			text += ", waiting for runtime task " + u.Task
		}
		undoing = append(undoing, text)
	}
	p.row("Undoing:", strings.Join(undoing, "\n"))
}

// origins are the names of claims that no operation holds.
var origins = map[v1alpha1.ClaimOrigin]string{
	v1alpha1.OriginRunPolicy: "run policy", v1alpha1.OriginPlacement: "placement",
	v1alpha1.OriginRollout: "rollout", v1alpha1.OriginDeletion: "deletion",
}

func holderName(t v1alpha1.OperationType, force bool, origin v1alpha1.ClaimOrigin, name string) string {
	if who := origins[origin]; who != "" {
		return fmt.Sprintf("%s (%s)", who, called(t, force))
	}
	return called(t, force) + " " + name
}
