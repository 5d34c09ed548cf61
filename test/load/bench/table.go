package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// row is a line of the table: what it costs, in units.
type row struct {
	what           string
	direct, served *way // nil: not measured so
	budget         string
	// over is what the row is a multiple of, in place of the units; nil for the units.
	over *row
}

// ratio is the median of the rounds' ratios: each is of two batches that ran after each other.
func ratio(a, b *way) float64 {
	all := make([]float64, len(a.took))
	for i := range all {
		all[i] = float64(a.took[i]) / float64(b.took[i])
	}
	slices.Sort(all)
	return all[len(all)/2]
}

func median(w *way) time.Duration {
	took := slices.Sorted(slices.Values(w.took))
	return took[len(took)/2]
}

func (r *row) cell(w, unit *way) string {
	if w == nil {
		return "–"
	}
	return fmt.Sprintf("%.2f", ratio(w, unit))
}

// write writes the rows, of which the first is the unit.
func write(out io.Writer, rows []*row) error {
	unit := rows[0]
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "what\tin process\tover TLS\tbudget\tCPU time")
	for _, r := range rows {
		over := r.over
		if over == nil {
			over = unit
		}
		took := fmt.Sprint(median(r.direct).Round(time.Microsecond))
		if r.served != nil {
			took += fmt.Sprint(", ", median(r.served).Round(time.Microsecond))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", r.what, r.cell(r.direct, over.direct), r.cell(r.served, over.served), r.budget, took)
	}
	return t.Flush()
}
