package tools

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"sallyport.dev/sallyport/cmd/internal/choice"
	"sallyport.dev/sallyport/cmd/internal/terminal"
	"sallyport.dev/sallyport/cmd/internal/verdict"
	"sallyport.dev/sallyport/cmd/sallyport/junit"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/engine"
)

type policyTestOptions struct {
	coverage float64
	pattern  string
	output   string
	verbose  bool

	passed, failed int
	bad            []string // policies
}

type tested struct {
	policy string
	*engine.TestRun
	// broken are lines that explain why the tests cannot run.
	broken []string
	// short reports that the coverage is too low.
	short bool
}

// reporter shows the tests of one policy after another.
type reporter interface {
	policy(*tested)
	end() error
}

func newPolicyTestCommand() *cobra.Command {
	o := &policyTestOptions{output: "text"}
	command := &cobra.Command{
		Use:   "test [PATH...]",
		Short: "Run the tests of policies",
		Long: "Runs the tests of policies: the rules whose names begin with test_ in files that end in _test.rego.\n\n" +
			"Exit codes: 0 if all tests pass, 1 if a test fails, a policy does not compile or its coverage is below --coverage,\n" +
			"2 if policies cannot be read.",
		Example: `  # Run all tests of a folder, require full coverage, and list the lines that are not covered
  sallyport policy test policies --coverage 100

  # Write a JUnit report for a CI system
  sallyport policy test policies --coverage 100 -o junit > policies.xml

  # Run only some tests, selected by the names that -v prints
  sallyport policy test policies --run 'owner_test\.test_deny' -v`,
		RunE: func(command *cobra.Command, args []string) error { return o.run(command, args) },
	}
	f := command.Flags()
	f.Float64Var(&o.coverage, "coverage", 0, "minimum test coverage of each policy in `percent`")
	f.StringVar(&o.pattern, "run", "", "run only tests whose name (package.rule) matches this regular `expression`; cannot be combined with --coverage")
	choice.Flag(command, &o.output, "output", "o", "`format`: text or junit", "text", "junit")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "also list the tests that pass")
	return command
}

func (o *policyTestOptions) run(command *cobra.Command, paths []string) error {
	var names *regexp.Regexp
	var err error
	if o.pattern != "" {
		if names, err = regexp.Compile(o.pattern); err != nil {
			return fmt.Errorf("--run: %w", err)
		}
		if o.coverage > 0 {
			return errors.New("cannot set --coverage and --run at the same time: coverage is measured over all tests")
		}
	}
	show := map[string]reporter{
		"text": &testPrinter{o: o, out: terminal.Safe(command.OutOrStdout())}, "junit": &testSuites{o: o, out: command.OutOrStdout()},
	}[o.output]
	collection, err := policiesOf(command, paths)
	if err != nil {
		return err
	}
	sources := collection.Sources()
	for i, result := range testAll(command.Context(), sources, names) {
		done := <-result
		r := &tested{policy: sources[i].Name, TestRun: done.run}
		if done.err != nil {
			r.broken = collection.Explain(sources[i], done.err)
		}
		o.count(r)
		show.policy(r)
	}
	if err := show.end(); err != nil {
		return err
	}
	return o.verdict()
}

// ran is how the tests of a policy ended.
type ran struct {
	run *engine.TestRun
	err error
}

// testAll runs the tests of the policies, as many at a time as there are processors. Each channel receives the result of one policy.
func testAll(ctx context.Context, sources []catalog.Source, names *regexp.Regexp) []chan ran {
	results := make([]chan ran, len(sources))
	for i := range results {
		results[i] = make(chan ran, 1)
	}
	go func() {
		var running errgroup.Group
		running.SetLimit(runtime.GOMAXPROCS(0))
		for i := range sources {
			running.Go(func() error {
				run, err := engine.RunNamedTests(ctx, sources[i].Source, names)
				results[i] <- ran{run, err}
				return nil
			})
		}
	}()
	return results
}

func (o *policyTestOptions) count(r *tested) {
	if r.broken != nil {
		o.failed++
		o.bad = append(o.bad, r.policy)
		return
	}
	for _, t := range r.Tests {
		if t.Problem == "" {
			o.passed++
		} else {
			o.failed++
		}
	}
	r.short = r.Coverage < o.coverage
	if r.short || !r.Passed() {
		o.bad = append(o.bad, r.policy)
	}
}

func (o *policyTestOptions) verdict() error {
	switch {
	case len(o.bad) > 0:
		return verdict.Bad("policy tests failed: " + strings.Join(o.bad, ", "))
	case o.pattern != "" && o.passed == 0:
		return fmt.Errorf("--run: no test name matches %q", o.pattern)
	}
	return nil
}

// uncovered describes the lines that no test covers.
func (o *policyTestOptions) uncovered(r *tested) string {
	return fmt.Sprintf("not covered by tests (%.0f%% required): %s", o.coverage, strings.Join(r.Uncovered, ", "))
}

type testPrinter struct {
	o   *policyTestOptions
	out io.Writer
}

func (p *testPrinter) policy(r *tested) {
	switch {
	case r.broken != nil:
		fmt.Fprintf(p.out, "FAIL  %s\n%s\n", r.policy, indented(strings.Join(r.broken, "\n")))
		return
	case p.o.pattern != "" && len(r.Tests) == 0:
		return
	}
	word := "ok  "
	if r.short || !r.Passed() {
		word = "FAIL"
	}
	line := fmt.Sprintf("%s  %s  %s", word, r.policy, plural(len(r.Tests), "test", "tests"))
	if p.o.pattern == "" {
		line += fmt.Sprintf(", coverage %.1f%%", r.Coverage)
	}
	fmt.Fprintln(p.out, line)
	for _, t := range r.Tests {
		p.test(t)
	}
	if r.short {
		fmt.Fprintf(p.out, "      %s\n", p.o.uncovered(r))
	}
}

func (p *testPrinter) test(t engine.TestResult) {
	if t.Problem == "" {
		if p.o.verbose {
			fmt.Fprintf(p.out, "      passed  %s\n", t.Name)
		}
		return
	}
	fmt.Fprintf(p.out, "      FAILED  %s: %s: %s\n", t.Place, t.Name, t.Problem)
	for _, row := range t.Cases {
		fmt.Fprintf(p.out, "              row %q\n", row)
	}
	if t.Output != "" {
		fmt.Fprintln(p.out, indented(t.Output))
	}
}

func (p *testPrinter) end() error {
	_, err := fmt.Fprintf(p.out, "%d passed, %d failed\n", p.o.passed, p.o.failed)
	return err
}

// testSuites prints results as JUnit XML: a suite for each policy, a case for each test.
type testSuites struct {
	o      *policyTestOptions
	out    io.Writer
	suites []junit.Suite
}

func (s *testSuites) policy(r *tested) {
	suite := junit.Suite{Name: r.policy}
	if r.broken != nil {
		suite.Cases = []junit.Case{{
			Name: "compiles", Class: r.policy, Place: r.broken[0],
			Error: &junit.Problem{Type: "CompileFailed", Message: r.broken[0], Text: strings.Join(r.broken, "\n")},
		}}
		s.suites = append(s.suites, suite)
		return
	}
	if s.o.pattern == "" {
		suite.Properties = &[]junit.Property{{Name: "coverage", Value: fmt.Sprintf("%.1f", r.Coverage)}}
	}
	for _, t := range r.Tests {
		suite.Cases = append(suite.Cases, caseOf(t))
	}
	if s.o.coverage > 0 {
		covered := junit.Case{Name: "coverage", Class: r.policy}
		if r.short {
			covered.Place = strings.Join(r.Uncovered[:min(1, len(r.Uncovered))], "")
			covered.Failure = &junit.Problem{
				Type: "Coverage", Message: fmt.Sprintf("coverage is %.1f%%, %.0f%% required", r.Coverage, s.o.coverage), Text: s.o.uncovered(r),
			}
		}
		suite.Cases = append(suite.Cases, covered)
	}
	s.suites = append(s.suites, suite)
}

func caseOf(t engine.TestResult) junit.Case {
	c := junit.Case{Name: t.Name, Place: t.Place, Took: t.Took}
	if dot := strings.LastIndex(t.Name, "."); dot >= 0 {
		c.Class, c.Name = t.Name[:dot], t.Name[dot+1:]
	}
	if t.Problem == "" {
		c.Output = t.Output
		return c
	}
	message := t.Problem
	for i, row := range t.Cases {
		message += fmt.Sprintf("%s row %q", verb(i+1, " in", ","), row)
	}
	c.Failure = &junit.Problem{Type: "TestFailed", Message: message, Text: strings.TrimSpace(t.Place + ": " + message + "\n" + t.Output)}
	return c
}

func (s *testSuites) end() error { return junit.Write(s.out, "sallyport policy test", s.suites...) }
