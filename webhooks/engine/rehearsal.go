package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/cover"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/tester"
)

// testTimeout ends a single test that would not end. It is long, because how fast a machine is must decide nothing.
const testTimeout = 2 * time.Minute

// Rehearsal is the result of running a policy's own tests.
type Rehearsal struct {
	// Tests in the order of their names.
	Tests []TestResult
	// Uncovered are the lines of the policy that no test evaluated, as file:line.
	Uncovered []string
	// Coverage is the share of the policy's lines that tests evaluated, in percent.
	Coverage float64
}

// TestResult is one test rule.
type TestResult struct {
	// Name as package.rule, and Place as file:line.
	Name, Place string
	// Cases are the rows of a table that failed; empty for a test that is no table.
	Cases []string
	// Problem says why the test failed; empty if it passed.
	Problem string
	// Output is what the test printed.
	Output string
	// Took is how long the test ran.
	Took time.Duration
}

// Passed tells whether every test passed.
func (r *Rehearsal) Passed() bool {
	return !slices.ContainsFunc(r.Tests, func(t TestResult) bool { return t.Problem != "" })
}

// Rehearse runs the tests of a policy or library. They see data.parameters only where they say `with`, so that editing a
// policy's parameters cannot fail them. The error is [CompileErrors], for tests that cannot run.
func Rehearse(ctx context.Context, src Source) (*Rehearsal, error) {
	modules, libraries, err := assemble(src)
	if err != nil {
		return nil, err
	}
	tests, errs := parse(src.Tests)
	if errs = append(errs, misplacedTests(src, tests)...); len(errs) > 0 {
		return nil, errs
	}
	all := slices.Concat(modules, tests, libraries)
	if err := compileStrict(all, nil); err != nil {
		return nil, err
	}
	coverage := cover.New()
	runner := tester.NewRunner().SetCompiler(newCompiler().WithEnablePrintStatements(true)).SetModules(byName(all)).
		SetStore(inmem.New()).SetCoverageQueryTracer(coverage).SetTimeout(testTimeout).
		CapturePrintOutput(true).RaiseBuiltinErrors(true)
	results, err := runner.RunTests(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("running the tests of %s: %w", src.Name, err)
	}
	r := &Rehearsal{}
	isTable := tables(tests)
	for result := range results {
		r.Tests = append(r.Tests, testResult(result, isTable[place(result.Location)]))
	}
	slices.SortFunc(r.Tests, func(a, b TestResult) int { return strings.Compare(a.Name, b.Name) })
	if len(r.Tests) == 0 {
		return nil, CompileErrors{{File: src.Name, Message: "there are no tests: a policy needs at least one"}}
	}
	r.cover(coverage, modules)
	return r, nil
}

// misplacedTests refuses test modules outside <package>_test: inside the policy's package they would add rules to it.
func misplacedTests(src Source, tests []*ast.Module) CompileErrors {
	var errs CompileErrors
	for _, m := range tests {
		name := packageName(m)
		if !strings.HasPrefix(name, src.Package) || !strings.HasSuffix(name, "_test") {
			errs.add(m.Package.Location, "tests of %s must be in a package that ends in _test, not in %s", src.Package, name)
		}
	}
	return errs
}

// tables gives the places of the test rules that have a row for each case.
func tables(tests []*ast.Module) map[string]bool {
	found := map[string]bool{}
	for _, m := range tests {
		for _, r := range m.Rules {
			found[place(r.Location)] = r.Head.DocKind() == ast.PartialObjectDoc
		}
	}
	return found
}

func testResult(r *tester.Result, isTable bool) TestResult {
	t := TestResult{
		Name:  strings.TrimPrefix(r.Package, "data.") + "." + r.Name,
		Place: place(r.Location), Output: string(r.Output), Took: r.Duration,
	}
	switch {
	case r.Error != nil:
		t.Problem = r.Error.Error()
	case isTable && len(r.SubResults) == 0:
		t.Problem = "the table has no rows"
	case r.Fail:
		t.Problem = "failed"
		t.Cases = failedCases("", r.SubResults)
	}
	return t
}

func failedCases(prefix string, results tester.SubResultMap) []string {
	var failed []string
	for _, name := range slices.Sorted(maps.Keys(results)) {
		r := results[name]
		if len(r.SubResults) > 0 {
			failed = append(failed, failedCases(prefix+name+"/", r.SubResults)...)
		} else if r.Fail {
			failed = append(failed, prefix+name)
		}
	}
	return failed
}

// cover counts the lines of the policy itself: libraries have tests of their own.
func (r *Rehearsal) cover(coverage *cover.Cover, modules []*ast.Module) {
	own := map[string]*ast.Module{}
	for _, m := range modules {
		own[m.Package.Location.File] = m
	}
	report := coverage.Report(own)
	r.Coverage = report.Coverage
	for _, file := range slices.Sorted(maps.Keys(report.Files)) {
		for _, rows := range report.Files[file].NotCovered {
			r.Uncovered = append(r.Uncovered, fmt.Sprintf("%s:%d", file, rows.Start.Row))
		}
	}
	r.Uncovered = slices.Compact(r.Uncovered) // one line may hold several expressions
}
