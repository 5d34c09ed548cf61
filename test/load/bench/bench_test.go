package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	beSubject()
	os.Exit(m.Run())
}

// Every row runs and says what it is to say, in a world that is large enough for denials. How long it takes is of no interest here.
func TestRows(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	var out bytes.Buffer
	o := options{rounds: 1, batch: time.Millisecond, operations: machines, windows: 2}
	if err := o.run(&out); err != nil && !strings.HasPrefix(err.Error(), "over the budget") {
		t.Fatal(err)
	}
	for _, want := range []string{"two policies, and a decision record", "a denial, confirmed live", "in CEL", "none failed"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// A row that costs more than its budget and a quarter fails the run, unless the unit says that the machine was busy.
func TestBudgets(t *testing.T) {
	held, err := budgets()
	if err != nil || len(held) != 5 {
		t.Fatalf("got %v, %v", held, err)
	}
	took := func(all ...time.Duration) *way { return &way{took: all} }
	unit := &row{direct: took(8, 10, 10, 12), served: took(100, 100, 100, 100)}
	unit.over = unit
	for name, tc := range map[string]struct {
		direct, served time.Duration
		want           int
	}{"cheap": {10, 100, 0}, "a little over": {24, 240, 0}, "over TLS": {20, 260, 1}, "both": {26, 260, 2}} {
		r := &row{
			direct: took(tc.direct, tc.direct, tc.direct, tc.direct), served: took(tc.served, tc.served, tc.served, tc.served),
			over: unit, budget: &budget{may: price{2, 2}},
		}
		if got := over([]*row{unit, r}); len(got) != tc.want {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := spread(unit.direct); got != 0.2 {
		t.Errorf("the unit differs by %v", got)
	}
}
