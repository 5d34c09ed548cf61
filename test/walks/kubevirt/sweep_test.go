//go:build kubevirt

package kubevirt

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sallyport.dev/sallyport/test/support/mortal"
	"sallyport.dev/sallyport/test/support/shipped"
)

// befalling is what befalls one request of a manager. One that is kept arrives at the API server when all is over.
type befalling struct {
	name   string
	befall func(p *mortal.Process, at int, keep func(request func() error))
}

func instead(with func(request func() error) error) func(*mortal.Process, int, func(func() error)) {
	return func(p *mortal.Process, at int, _ func(func() error)) { p.Befall(at, with) }
}

var requestFaults = []befalling{
	{"failed", instead(func(func() error) error { return apierrors.NewInternalError(errors.New("broken")) })},
	{"conflict", instead(func(func() error) error {
		return apierrors.NewConflict(schema.GroupResource{Resource: "things"}, "thing", errors.New("it has changed"))
	})},
	{"forbidden", instead(func(func() error) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "thing", errors.New("not now"))
	})},
	{"hung, and arrives late", func(p *mortal.Process, at int, keep func(func() error)) {
		p.Befall(at, func(request func() error) error {
			keep(request)
			return context.DeadlineExceeded
		})
	}},
	{"reply lost", instead(func(request func() error) error {
		if err := request(); err != nil {
			return err
		}
		return errReplyLost
	})},
	{"killed before", func(p *mortal.Process, at int, _ func(func() error)) { p.Die(at, false) }},
	{"killed after", func(p *mortal.Process, at int, _ func(func() error)) { p.Die(at, true) }},
}

// sweepAtOnce is how many points are tried at a time. They mostly wait for KubeVirt.
const sweepAtOnce = 8

// TestFaultSweep runs every operation with every fault at every request, some of these: it must end as without one.
func TestFaultSweep(t *testing.T) {
	s := newSite(t)
	judge := shipped.Arbiter(t)
	rows := make([]*sweepRow, len(lives))
	each(len(rows), func(i int) {
		rows[i] = &sweepRow{site: s, life: lives[i], judge: judge}
		t.Run(lives[i].name, func(t *testing.T) {
			out := rows[i].play(t, nil, 0)
			rows[i].requests, rows[i].end = out.requests, out.end
		})
	})
	if t.Failed() {
		return
	}
	type point struct {
		row   *sweepRow
		at    int
		fault *befalling
	}
	var points []point
	every := 13
	if testing.Short() {
		every = 97
	}
	turn := 0
	for _, r := range rows {
		for at := 1; at <= r.requests; at++ {
			turn++ // so that every fault has its turn, however many there are
			for i := range requestFaults {
				if turn++; turn%every == 0 {
					points = append(points, point{r, at, &requestFaults[i]})
				}
			}
		}
	}
	each(len(points), func(i int) {
		p := points[i]
		t.Run(fmt.Sprintf("%s/request %d %s", p.row.life.name, p.at, p.fault.name), func(t *testing.T) {
			out := p.row.play(t, p.fault, p.at)
			if diff := cmp.Diff(p.row.end, out.end); diff != "" {
				t.Errorf("it ends otherwise (-undisturbed +with the fault):\n%s\non the way there was\n%s", diff, strings.Join(out.log, "\n"))
			}
			p.row.count(!t.Failed())
		})
	})
	report(t, rows)
}

// each calls do with all numbers below n, some at a time.
func each(n int, do func(i int)) {
	var all sync.WaitGroup
	slots := make(chan struct{}, sweepAtOnce)
	for i := range n {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			do(i)
		})
	}
	all.Wait()
}

func report(t *testing.T, rows []*sweepRow) {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "operation\trequests\tcases\ttried\tconverged")
	for _, r := range rows {
		_, _ = fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\n", r.life.name, r.requests, r.requests*len(requestFaults), r.tried, r.converged)
	}
	_ = table.Flush()
	t.Logf("\n%s", text.String())
}
