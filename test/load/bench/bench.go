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

// rows are those of the table.
func (b *bench) rows(gatekeeper bool) []*row {
	both := func(of *sallyport, what, name, budget string) *row {
		return &row{what: what, direct: of.inProcess(name), served: of.overTLS(name), budget: budget}
	}
	two := both(b.small, "two policies", rowTwo, "1.5 / 1.3")
	large := both(b.large, fmt.Sprintf("the same with %d unfinished operations in place of %d, of itself", b.operations, smallWorld), rowTwo, "1.1")
	large.over = two
	rows := []*row{
		both(b.small, "a webhook of controller-runtime that allows everything", rowUnit, "1"),
		both(b.small, "one policy", rowOne, "1.2 / 1.2"),
		two,
		both(b.small, "two policies, and a decision record", rowRecorded, "2.5 / 1.8"),
		both(b.large, "a denial, confirmed live", rowDenied, "15 / 6"),
		large,
		{what: "the two policies with OPA's own interface, input through JSON text", direct: b.small.inProcess(rowNaive)},
		{what: "the same, a query for each request", direct: b.small.inProcess(rowNaiveFresh)},
		{what: "the rule of one policy in CEL", direct: b.small.inProcess(rowCEL)},
	}
	if gatekeeper {
		for _, objects := range []int{100, 5_000, 20_000} {
			rows = append(rows, &row{
				what:   fmt.Sprintf("the rule of one policy in the constraint framework, %d objects", objects),
				direct: &way{of: b.gatekeeper, do: func(n int) error { return b.gatekeeper.order("run %d %d", n, objects) }},
			})
		}
	}
	return rows
}

// more is what is not measured in units.
func (b *bench) more(out io.Writer, o *options) error {
	for _, s := range []*sallyport{b.small, b.large} {
		if err := s.order("programs"); err != nil {
			return err
		}
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
