//go:build !race

package sweep

import (
	"flag"
	"fmt"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/test/depth"
)

// atOnce is how many points are looked at at the same time. They often wait, for each other and for timeouts.
const atOnce = 8

// TestFaultSweep runs every operation with every fault, in depth at every second point.
func TestFaultSweep(t *testing.T) { sweep(t, inMemory, depth.Of(17, 2)) }

// TestFaultSweepAPIServer does the same before a real API server, which takes several times as long: with some of the
// points, unless more are asked for by -every 1.
func TestFaultSweepAPIServer(t *testing.T) { sweep(t, realServer, *every*depth.Of(8, 2)) }

var every = flag.Int("every", 11, "TestFaultSweepAPIServer takes one in so many points")

// seldom is how many points of a row that is slow make one.
const seldom = 8

// sweep takes one in so many points.
func sweep(t *testing.T, newClient func(*testing.T) client.WithWatch, every int) {
	judge := newArbiter(t)
	rows, undisturbed := make([]*row, len(kinds)), make([]error, len(kinds))
	var all sync.WaitGroup
	turns := make(chan struct{}, atOnce)
	later := func(do func()) {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			do()
		})
	}
	for i, k := range kinds {
		r := newRow(t, newClient(t), judge, k)
		rows[i] = r
		later(func() { undisturbed[i] = r.clean(t.Context()) })
	}
	all.Wait()
	for i, r := range rows {
		if undisturbed[i] != nil {
			t.Fatalf("%s does not even end undisturbed: %v", r.name, undisturbed[i])
		}
		t.Logf("%s\nasks %v\nand ends with\n%s", r.name, r.requests, strings.Join(r.end, "\n"))
	}
	turn := 0
	for _, r := range rows {
		for _, at := range r.requests {
			for _, f := range faults {
				if turn++; turn%every != 0 || r.seldom && turn%(every*seldom) != 0 {
					continue
				}
				later(func() {
					if err := r.point(t.Context(), at, f); err != nil {
						t.Errorf("%s, request %s %s: %v", r.name, at, f.name, err)
					}
				})
			}
		}
	}
	all.Wait()
	report(t, rows)
}

// report shows the table, and checks what can be seen of all points together.
func report(t *testing.T, rows []*row) {
	t.Helper()
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "operation\trequests\tpoints\tconverged")
	var points, converged int
	var missed []string
	for _, r := range rows {
		_, _ = fmt.Fprintf(table, "%s\t%d\t%d\t%d\n", r.name, len(r.requests), r.points, r.converged)
		points, converged = points+r.points, converged+r.converged
		for _, m := range r.missed {
			missed = append(missed, r.name+", request "+m)
		}
		if err := r.close(); err != nil {
			t.Errorf("%s: %v", r.name, err)
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
