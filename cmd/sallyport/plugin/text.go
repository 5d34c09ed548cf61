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

// page is text for people, in aligned columns.
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

// line writes a line that is no part of the columns.
func (p *page) line(format string, args ...any) { fmt.Fprintf(p.table, format+"\n", args...) }

// row writes its last cell below each other if it has several lines, and nothing if it is empty.
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

// shortLength is how many characters of a long text are shown where another command has all of it.
const shortLength = 160

// inShort puts a text in a line that is not too long.
func inShort(text string) string {
	all := []rune(strings.Join(strings.Fields(text), " "))
	if len(all) > shortLength {
		return string(all[:shortLength]) + " ..."
	}
	return string(all)
}

// someOf names as many, and says how many more there are.
func someOf(names []string, most int) string {
	text := strings.Join(names[:min(len(names), most)], ", ")
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// ago is how long something is past: "3m".
func (p *page) ago(at time.Time) string { return duration.HumanDuration(max(p.now.Sub(at), 0)) }

// since says for how long something has been so, and nothing if the time is not known.
func (p *page) since(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return " for " + p.ago(at)
}

// condition says how one is: "False for 3m, OperationInProgress: Start start-1 is in progress".
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

// deletion says since when an object is being deleted, what keeps it, and what else is to say of that.
func (p *page) deletion(meta *metav1.ObjectMeta, more ...string) {
	if meta.DeletionTimestamp == nil {
		return
	}
	text := "asked for " + p.ago(deletionAsked(meta)) + " ago"
	if len(meta.Finalizers) > 0 {
		text += ", waits for the finalizers " + strings.Join(meta.Finalizers, ", ")
	}
	p.row("Deletion:", strings.Join(append([]string{text}, more...), "\n"))
}

// deletionAsked is when it was: the API server notes when the time is up that a Pod, say, has for it.
func deletionAsked(meta *metav1.ObjectMeta) time.Time {
	at := meta.DeletionTimestamp.Time
	if grace := meta.DeletionGracePeriodSeconds; grace != nil {
		at = at.Add(-time.Duration(*grace) * time.Second)
	}
	return at
}

// claim says who holds a machine, and who is being undone.
func (p *page) claim(status *v1alpha1.VirtualMachineStatus, states map[string]string) {
	holder := "nobody"
	if a := status.ActiveOperation; a != nil {
		holder = holderName(a.Type, a.Force, a.Origin, a.Name) + p.since(a.ClaimedAt.Time)
		if s := states[a.ID]; s != "" {
			holder += ", " + s
		}
	}
	p.row("Held by:", holder)
	var undoing []string
	for i := range status.Undoing {
		u := &status.Undoing[i]
		text := holderName(u.Type, u.Force, u.Origin, u.Name) + ", " + string(u.End)
		if u.End == v1alpha1.EndSuperseded {
			text += " by " + by(u.By)
		}
		if u.Task != "" {
			text += ", waits for " + u.Task + " of the runtime"
		}
		undoing = append(undoing, text)
	}
	p.row("Being undone:", strings.Join(undoing, "\n"))
}

// origins are what holds a machine without being an operation.
var origins = map[v1alpha1.ClaimOrigin]string{
	v1alpha1.OriginRunPolicy: "the run policy", v1alpha1.OriginPlacement: "placement",
	v1alpha1.OriginRollout: "a rollout", v1alpha1.OriginDeletion: "the deletion",
}

func holderName(t v1alpha1.OperationType, force bool, origin v1alpha1.ClaimOrigin, name string) string {
	if who := origins[origin]; who != "" {
		return fmt.Sprintf("%s (%s)", who, called(t, force))
	}
	return called(t, force) + " " + name
}
