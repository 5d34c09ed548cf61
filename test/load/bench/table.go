package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"text/tabwriter"
	"time"
)

// row is a line of the table: what it costs, in units.
type row struct {
	what           string
	direct, served *way    // nil: not measured so
	budget         *budget // nil: none
	over           *row    // what it is a multiple of
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

// price is what the row costs, measured in the same run.
func (r *row) price() (p price) {
	p.direct = ratio(r.direct, r.over.direct)
	if r.served != nil {
		p.served = ratio(r.served, r.over.served)
	}
	return p
}

// write writes the rows as a table.
func write(out io.Writer, rows []*row) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "what\tin process / over TLS\tbudget\tasked\tCPU time")
	for _, r := range rows {
		held, asked := "", ""
		if r.budget != nil {
			held, asked = r.budget.may.String(), r.budget.asked.String()
		}
		took := fmt.Sprint(median(r.direct).Round(time.Microsecond))
		if r.served != nil {
			took += fmt.Sprint(", ", median(r.served).Round(time.Microsecond))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", r.what, r.price(), held, asked, took)
	}
	return t.Flush()
}

// marked is where a page has the table.
var marked = regexp.MustCompile(`(?s)(<!-- the table of make bench -->\n).*(<!-- its end -->\n)`)

// writeDocs writes the table into a page.
func writeDocs(page string, rows []*row) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	if !marked.Match(text) {
		return fmt.Errorf("%s has no place for the table", page)
	}
	var table bytes.Buffer
	fmt.Fprintln(&table, "| what | in process / over TLS | asked |\n| --- | --- | --- |")
	for _, r := range rows {
		asked := ""
		if r.budget != nil {
			asked = r.budget.asked.String()
		}
		fmt.Fprintf(&table, "| %s | %s | %s |\n", r.what, r.price(), asked)
	}
	fmt.Fprintf(&table, "\nThe first row took %v of CPU time in process, and %v over TLS.\n",
		median(rows[0].direct).Round(time.Microsecond), median(rows[0].served).Round(time.Microsecond))
	return os.WriteFile(page, marked.ReplaceAll(text, append(append([]byte("${1}"), table.Bytes()...), "${2}"...)), 0o600)
}
