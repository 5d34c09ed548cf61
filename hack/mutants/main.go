// Command mutants says how much the tests notice: it changes one token of the code at a time, at random, and runs the tests that
// should fail then. `make mutants` runs it; nothing is changed in the working tree.
//
// Kept libraries (gremlins, go-mutesting) do not mutate Rego, do not take a seeded sample, and know only `go test` of one package.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
)

// enough is the share of the mutants, in percent, that the tests have to catch.
const enough = 95

// explanations is the file of the survivors that no test can catch.
const explanations = "hack/mutants/explained.txt"

func main() {
	seed := flag.Uint64("seed", 1, "which sample is drawn: the same tree and seed give the same")
	n := flag.Int("n", 100, "how many mutants are drawn")
	wide := flag.Bool("wide", false, "run also the walks on a control plane, for what the packages' own tests do not catch")
	jobs := flag.Int("jobs", 3, "how many mutants are tried at a time: tests that a mutant lets wait leave the processors to others")
	verbose := flag.Bool("verbose", false, "print also what is caught, and by which package")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: mutants [flags] [folder...], from the root of the repository")
		flag.PrintDefaults()
	}
	flag.Parse()
	folders := flag.Args()
	if len(folders) == 0 {
		folders = []string{"webhooks", "reconcilers", "certs", "policies"}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, settings{seed: *seed, n: *n, jobs: max(*jobs, 1), wide: *wide, verbose: *verbose, folders: folders})
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

type settings struct {
	seed          uint64
	n, jobs       int
	wide, verbose bool
	folders       []string
}

// run judges mutants until there are n that compile, and prints what became of each.
func run(ctx context.Context, out io.Writer, s settings) error {
	t, err := load(ctx, s.folders)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(explanations)
	if err != nil {
		return fmt.Errorf("reading what is explained: %w", err)
	}
	reasons, err := parseExplained(string(text))
	if err != nil {
		return err
	}
	mutants, err := t.mutants(s.seed)
	if err != nil {
		return err
	}
	r, err := newRunner(ctx, t, s.wide)
	if err != nil {
		return err
	}
	defer r.close()
	var c counts
	for v := range r.verdicts(ctx, mutants, reasons, s.jobs) {
		err = errors.Join(err, v.err)
		if ctx.Err() == nil && v.err == nil {
			c.add(out, v, s.verbose)
		}
		if c.all() == s.n || ctx.Err() != nil {
			break
		}
	}
	if err := errors.Join(err, ctx.Err()); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d mutants: %d caught (%s), %d survived, %d explained\n", c.all(), c.caught, c.by(), c.survived, c.explained)
	if c.caught*100 < enough*(c.all()-c.explained) {
		return fmt.Errorf("the tests caught fewer than %d %% of the mutants that are not explained", enough)
	}
	return nil
}

type counts struct {
	caught, survived, explained int
	stages                      [stages]int
}

func (c *counts) add(out io.Writer, v verdict, verbose bool) {
	switch {
	case v.broken:
	case v.reason != "":
		c.explained++
		if verbose {
			fmt.Fprintf(out, "explained: %s\n  %s\n", v.mutant, v.reason)
		}
	case v.by != "":
		c.caught++
		c.stages[v.stage]++
		if verbose {
			fmt.Fprintf(out, "caught by %s: %s\n", v.by, v.mutant)
		}
	default:
		c.survived++
		fmt.Fprintf(out, "SURVIVED %s\n  after %s\n", v.mutant, strings.Join(v.ran, " "))
	}
}

func (c *counts) all() int { return c.caught + c.survived + c.explained }

func (c *counts) by() string {
	return fmt.Sprintf("%d by their own package, %d by one that imports it, %d by a walk", c.stages[own], c.stages[importing], c.stages[walking])
}

// parseExplained reads paragraphs: the file, "- " and the line before, "+ " and the line after, and then the reason. It gives the
// reasons by the key of the mutant.
func parseExplained(text string) (map[string]string, error) {
	reasons := map[string]string{}
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		var lines []string
		for line := range strings.Lines(paragraph) {
			if !strings.HasPrefix(line, "#") && strings.TrimSpace(line) != "" {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
		if len(lines) == 0 {
			continue
		}
		if len(lines) < 4 || !strings.HasPrefix(lines[1], "-") || !strings.HasPrefix(lines[2], "+") {
			return nil, fmt.Errorf("%s: want a file, '- before', '+ after' and a reason in the paragraph of %s", explanations, lines[0])
		}
		reasons[strings.Join(lines[:3], "\n")] = strings.Join(lines[3:], " ")
	}
	return reasons, nil
}

// mutant is a file with one change.
type mutant struct {
	file          string
	line          int
	before, after string // the line, or the first of more
	source        []byte // the whole file, changed
}

func (m mutant) String() string {
	return fmt.Sprintf("%s:%d\n  - %s\n  + %s", m.file, m.line, m.before, m.after)
}

// key names the mutant even if the file's other lines change.
func (m mutant) key() string {
	return strings.TrimSpace(m.file) + "\n" + strings.TrimSpace("- "+m.before) + "\n" + strings.TrimSpace("+ "+m.after)
}

// edit replaces what is between two offsets.
type edit struct {
	from, to int
	text     string
}

func (e edit) apply(file string, source []byte) mutant {
	changed := append(append(append([]byte{}, source[:e.from]...), e.text...), source[e.to:]...)
	start := bytes.LastIndexByte(source[:e.from], '\n') + 1
	return mutant{
		file: file, line: 1 + bytes.Count(source[:e.from], []byte("\n")), source: changed,
		before: lineAt(source, start), after: lineAt(changed, start),
	}
}

func lineAt(source []byte, start int) string {
	line, _, _ := bytes.Cut(source[start:], []byte("\n"))
	return string(bytes.TrimSpace(line))
}
