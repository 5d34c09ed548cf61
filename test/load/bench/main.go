// Command bench measures what a decision costs: CPU time of the process that decides, in its own code and in the kernel, never
// time on the clock. The unit is a webhook of controller-runtime that allows everything. All rows of a run are measured by turns
// on the same machine, and are medians of ratios within the run, because the machine's own speed is nobody's business.
//
//	go run ./test/load/bench
//
// What is measured is alone in its process. The API server that it reads from, and whoever asks it over TLS, are not counted.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

func main() {
	beSubject()
	var o options
	flag.IntVar(&o.rounds, "rounds", 21, "how often each row is measured")
	flag.DurationVar(&o.batch, "batch", 150*time.Millisecond, "CPU time of one measurement")
	flag.IntVar(&o.operations, "operations", largeWorld, "unfinished operations of the large world")
	flag.IntVar(&o.windows, "windows", 80, "quarter seconds of load, in every other one of which a policy is swapped")
	flag.StringVar(&o.gatekeeper, "gatekeeper", "", "`program` that is built of test/load/bench/gatekeeper, to compare with")
	flag.StringVar(&o.profiles, "profiles", "", "`folder` for a CPU profile of each row, in place of a table")
	flag.StringVar(&o.docs, "docs", "", "`page` whose table is to be replaced by this one")
	flag.Parse()
	if err := o.run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type options struct {
	rounds, operations, windows int
	batch                       time.Duration
	gatekeeper, profiles, docs  string
}

func (o *options) run(out io.Writer) error {
	folder, err := os.MkdirTemp("", "sallyport-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	b := &bench{folder: folder}
	defer b.stop()
	if err := b.start(o); err != nil {
		return err
	}
	if o.profiles != "" {
		return b.profile(o.profiles)
	}
	rows, err := b.rows()
	if err != nil {
		return err
	}
	remark, verdict, err := settle(rows, o)
	if err != nil {
		return err
	}
	if err := write(out, rows); err != nil {
		return err
	}
	fmt.Fprint(out, remark)
	if err := b.more(out, o); err != nil || verdict != nil || o.docs == "" {
		return cmp.Or(err, verdict)
	}
	return writeDocs(o.docs, rows)
}
