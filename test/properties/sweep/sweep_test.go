//go:build !race

package sweep

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/test/support/shipped"
)

// atOnce is how many points are looked at at the same time. They often wait, for each other and for timeouts.
const atOnce = 8

// TestFaultSweep runs every operation with every fault, at one in so many points.
func TestFaultSweep(t *testing.T) {
	every := 5
	if testing.Short() {
		every = 29
	}
	sweep(t, inMemory, every)
}

// TestFaultSweepAPIServer does the same before a real API server, which takes several times as long: with some of the
// points, unless more are asked for by -every 0.
func TestFaultSweepAPIServer(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	sweep(t, realServer, max(1, *every*8))
}

var every = flag.Int("every", 11, "how few points TestFaultSweepAPIServer and TestTemplates take; 0 is all")

// seldom is how many points of a row that is slow make one.
const seldom = 8

// sweep takes one in so many points of all operations.
func sweep(t *testing.T, newClient func(*testing.T) client.WithWatch, every int) {
	judge := shipped.Arbiter(t)
	rows := make([]swept, len(kinds))
	for i, k := range kinds {
		rows[i] = newRow(t, newClient(t), judge, k)
	}
	sweepRows(t, rows, every)
}

// swept is a row of the table.
type swept interface {
	// clean runs what the row is about undisturbed, and notes what that asks of the vCenter.
	clean(ctx context.Context) error
	// point runs it with that fault at that request, and gives what is wrong with how it ends.
	point(ctx context.Context, at request, f fault) error
	// close ends what the row has begun, and gives what it has left.
	close() error
	counted() *tally
}

// sweepRows takes one in so many points of the rows.
func sweepRows(t *testing.T, rows []swept, every int) {
	undisturbed, tallies := make([]error, len(rows)), make([]*tally, len(rows))
	var all sync.WaitGroup
	turns := make(chan struct{}, atOnce)
	later := func(do func()) {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			do()
		})
	}
	for i, r := range rows {
		tallies[i] = r.counted()
		later(func() { undisturbed[i] = r.clean(t.Context()) })
	}
	all.Wait()
	for i, of := range tallies {
		if undisturbed[i] != nil {
			t.Fatalf("%s does not even end undisturbed: %v", of.of, undisturbed[i])
		}
		t.Logf("%s\nasks %v\nand ends with\n%s", of.of, of.requests, strings.Join(of.end, "\n"))
	}
	turn := 0
	for i, r := range rows {
		of := tallies[i]
		for _, at := range of.requests {
			turn++ // So that every fault has its turn, however many there are.
			for _, f := range faults {
				if turn++; turn%every != 0 || of.seldom && turn%(every*seldom) != 0 || f.not(at) {
					continue
				}
				later(func() {
					if err := r.point(t.Context(), at, f); err != nil {
						t.Errorf("%s, request %s %s: %v", of.of, at, f.name, err)
					}
				})
			}
		}
	}
	all.Wait()
	for i, r := range rows {
		if err := r.close(); err != nil {
			t.Errorf("%s: %v", tallies[i].of, err)
		}
	}
	report(t, tallies)
}

// tally is what becomes of the points of a row.
type tally struct {
	of       string    // What the row is called.
	requests []request // What its clean run asked the vCenter.
	end      []string  // How that ended.
	seldom   bool      // It takes long, so that fewer of its points are taken.

	mu                sync.Mutex
	points, converged int
	missed            []string // The points whose request never came.
	abandoned         int      // How many sessions nobody can end.
}

func (c *tally) counted() *tally { return c }

// count counts a point, whose request may not have come.
func (c *tally) count(at request, f fault, came bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !came:
		c.missed = append(c.missed, fmt.Sprintf("%s %s", at, f.name))
		return
	case err == nil:
		c.converged++
	}
	c.points++
	if f.abandons(at.method) {
		c.abandoned++
	}
}

// left tells whether a session is left that somebody could have ended.
func (c *tally) left(sessions int) error {
	if sessions != c.abandoned {
		return fmt.Errorf("%d sessions are left, and not the %d that nobody could end", sessions, c.abandoned)
	}
	return nil
}

// report shows the table, and checks what can be seen of all points together.
func report(t *testing.T, rows []*tally) {
	t.Helper()
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "operation\trequests\tpoints\tconverged")
	var points, converged int
	var missed []string
	for _, r := range rows {
		_, _ = fmt.Fprintf(table, "%s\t%d\t%d\t%d\n", r.of, len(r.requests), r.points, r.converged)
		points, converged = points+r.points, converged+r.converged
		for _, m := range r.missed {
			missed = append(missed, r.of+", request "+m)
		}
	}
	_ = table.Flush()
	t.Logf("\n%s%d points, %d converged", text.String(), points, converged)
	// How often a machine is looked at while something happens to it differs from run to run.
	if len(missed) > 0 {
		t.Logf("%d points had no request:\n%s", len(missed), strings.Join(missed, "\n"))
	}
	if len(missed) > (points+len(missed))/10 {
		t.Errorf("%d of %d points had no request, which is more than a tenth", len(missed), points+len(missed))
	}
}
