package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"sallyport.dev/sallyport/policies"
)

// bench is all that is measured in a run.
type bench struct {
	folder       string
	small, large *sallyport
	gatekeeper   *process // nil if it is not compared with
	operations   int
}

func (b *bench) start(o *options) (err error) {
	b.operations = o.operations
	for _, world := range []struct {
		into       **sallyport
		operations int
	}{{&b.small, smallWorld}, {&b.large, o.operations}} {
		folder, err := os.MkdirTemp(b.folder, "")
		if err != nil {
			return err
		}
		if *world.into, err = startSallyport(world.operations, folder); err != nil {
			return fmt.Errorf("a world with %d operations: %w", world.operations, err)
		}
	}
	if o.gatekeeper == "" {
		return nil
	}
	if err := b.writeFixture(); err != nil {
		return err
	}
	b.gatekeeper, err = launch(exec.Command(o.gatekeeper, b.folder))
	return err
}

func (b *bench) stop() {
	for _, s := range []*sallyport{b.small, b.large} {
		if s != nil && s.process != nil {
			s.stop()
		}
	}
	if b.gatekeeper != nil {
		b.gatekeeper.stop()
	}
}

// writeFixture is for a program that cannot import it.
func (b *bench) writeFixture() error {
	shipped, err := policies.Shipped()
	if err != nil {
		return err
	}
	files := map[string][]byte{"review.json": []byte(reviewFor), "operation.json": []byte(operationFor)}
	for i := range shipped {
		if shipped[i].Name == "operations-supersede" {
			files["parameters.json"] = shipped[i].Spec.Parameters.Raw
		}
	}
	for name, text := range files {
		if !json.Valid(text) {
			return fmt.Errorf("%s is not JSON", name)
		}
		if err := os.WriteFile(filepath.Join(b.folder, name), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// rows are those of the table, of which the first is the unit.
func (b *bench) rows() ([]*row, error) {
	held, err := budgets()
	if err != nil {
		return nil, err
	}
	both := func(of *sallyport, name, what string) *row {
		return &row{what: what, direct: of.inProcess(name), served: of.overTLS(name), budget: held[name]}
	}
	single := func(what string, direct *way) *row { return &row{what: what, direct: direct} }
	two := both(b.small, rowTwo, "two policies")
	large := both(b.large, rowTwo, fmt.Sprintf("%d unfinished operations in place of %d, as a multiple of itself", b.operations, smallWorld))
	large.over, large.budget = two, held["large"]
	rows := []*row{
		both(b.small, rowUnit, "a webhook of controller-runtime that allows everything"),
		both(b.small, rowOne, "one policy"),
		two,
		both(b.small, rowRecorded, "two policies, and a decision record"),
		both(b.large, rowDenied, "a denial, confirmed live"),
		large,
		single("the two policies with OPA's own interface, input through JSON text", b.small.inProcess(rowNaive)),
		single("the same, a query for each request", b.small.inProcess(rowNaiveFresh)),
		single("the rule of one policy in CEL, without asking whether its input can be understood", b.small.inProcess(rowCEL)),
	}
	if b.gatekeeper != nil {
		for _, objects := range []int{100, 5_000, 20_000} {
			rows = append(rows, single(fmt.Sprintf("the rule of one policy in the constraint framework under Gatekeeper, %d objects", objects), &way{
				of: b.gatekeeper, do: func(n int) error { return b.gatekeeper.order("run %d %d", n, objects) },
			}))
		}
	}
	for _, r := range rows {
		if r.over == nil {
			r.over = rows[0]
		}
	}
	return rows, nil
}

// more is what is not measured in units.
func (b *bench) more(out io.Writer, o *options) error {
	for _, s := range []*sallyport{b.small, b.large} {
		if err := s.order("programs"); err != nil {
			return err
		}
	}
	if err := b.garbage(out); err != nil {
		return err
	}
	objects := b.operations - smallWorld
	fmt.Fprintf(out, "\na cached operation of %d bytes of JSON takes %d bytes of memory (budget: 1 KB more than its useful fields)\n",
		len(of(operationFor, operated(0, 0))), (b.large.cached-b.small.cached)/max(objects, 1))
	u, err := b.small.swapUnderLoad(o.windows)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, u)
	return nil
}

// garbage is what decisions allocate.
func (b *bench) garbage(out io.Writer) error {
	const requests = 1_000
	fmt.Fprint(out, "\nallocated by a decision:")
	for _, row := range []struct{ name, what string }{{rowUnit, "that allows everything"}, {rowOne, "one policy"}, {rowTwo, "two policies"}, {rowRecorded, "with a record"}} {
		before, err := b.small.number("allocated")
		if err == nil {
			err = b.small.order("run %s %d", row.name, requests)
		}
		if err != nil {
			return err
		}
		after, err := b.small.number("allocated")
		if err != nil {
			return err
		}
		fmt.Fprintf(out, " %s %.1f KB;", row.what, float64(after-before)/requests/1000)
	}
	fmt.Fprintln(out)
	return nil
}

// profile writes a CPU profile of each row of a subject.
func (b *bench) profile(folder string) error {
	for name, s := range map[string]*sallyport{
		rowUnit: b.small, rowOne: b.small, rowTwo: b.small, rowRecorded: b.small, rowDenied: b.large,
	} {
		w := s.inProcess(name)
		if err := w.do(1_000); err != nil {
			return err
		}
		if err := s.order("profile %s", filepath.Join(folder, name+".pprof")); err != nil {
			return err
		}
		if err := w.do(10_000); err != nil {
			return err
		}
		if err := s.order("profile "); err != nil {
			return err
		}
	}
	return nil
}
