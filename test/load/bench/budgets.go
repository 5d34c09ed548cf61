package main

import (
	"bufio"
	_ "embed" // for the budgets
	"errors"
	"fmt"
	"slices"
	"strings"
)

//go:embed budgets
var budgetsText string

// tolerated is how much dearer than its budget a row may be: medians of runs on one machine differ by a tenth.
const tolerated = 1.25

// restless is the spread of the unit from which on a run says nothing.
const restless = 0.25

// price is what a row costs, in multiples of another.
type price struct{ direct, served float64 }

func (p price) String() string {
	if p.served == 0 {
		return figure(p.direct)
	}
	return figure(p.direct) + " / " + figure(p.served)
}

// figure writes a number with no more digits than two runs have in common.
func figure(n float64) string {
	switch {
	case n < 1:
		return fmt.Sprintf("%.2f", n)
	case n < 20:
		return fmt.Sprintf("%.1f", n)
	}
	return fmt.Sprintf("%.0f", n)
}

// budget of a row: what it may cost, and what is asked of it.
type budget struct{ may, asked price }

// budgets reads the file, by row.
func budgets() (map[string]*budget, error) {
	all := map[string]*budget{}
	for lines := bufio.NewScanner(strings.NewReader(budgetsText)); lines.Scan(); {
		line, _, _ := strings.Cut(lines.Text(), "#")
		if strings.TrimSpace(line) == "" {
			continue
		}
		var name string
		b := &budget{}
		if _, err := fmt.Sscan(line, &name, &b.may.direct, &b.may.served, &b.asked.direct, &b.asked.served); err != nil {
			return nil, fmt.Errorf("budgets: %q: %w", line, err)
		}
		all[name] = b
	}
	return all, nil
}

// spread returns the difference between the ends of the middle half of the rounds of a way, as a fraction of the median.
func spread(w *way) float64 {
	took := slices.Sorted(slices.Values(w.took))
	return float64(took[len(took)*3/4]-took[len(took)/4]) / float64(median(w))
}

// over names the rows that are over their budgets.
func over(rows []*row) (all []string) {
	for _, r := range rows {
		if r.budget == nil {
			continue
		}
		for _, c := range []struct {
			where          string
			costs, allowed float64
		}{{"in process", r.price().direct, r.budget.may.direct}, {"over TLS", r.price().served, r.budget.may.served}} {
			if c.costs > c.allowed*tolerated {
				all = append(all, fmt.Sprintf("%s: %s %s, budget %s", r.what, figure(c.costs), c.where, figure(c.allowed)))
			}
		}
	}
	return all
}

// settle measures the rows, three times at most, until none is over its budget: a collection of garbage can fall on more than half of the
// rounds of a row. The verdict names what is over its budget in the last run; it is a remark if the unit says that the machine never was calm.
func settle(rows []*row, o *options) (remark string, verdict, err error) {
	unit := rows[0]
	var all []string
	calm := false
	for range 3 {
		if err := measure(ways(rows), o.rounds, o.batch); err != nil {
			return "", nil, err
		}
		if all = over(rows); len(all) == 0 {
			return "", nil, nil
		}
		calm = calm || max(spread(unit.direct), spread(unit.served)) < restless
	}
	what := "over the budget by more than a quarter:\n" + strings.Join(all, "\n")
	if calm {
		return "", errors.New(what), nil
	}
	return fmt.Sprintf("no verdict, because the machine is busy: the unit itself differed by %.0f %% or more in each run; %s\n", restless*100, what), nil, nil
}
