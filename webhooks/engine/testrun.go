package engine

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/cover"
)

// TestRun is the result of running a policy's own tests.
type TestRun struct {
	// Tests are the results by name.
	Tests []TestResult
	// Uncovered are the lines of the policy that no test evaluated, as file:line.
	Uncovered []string
	// Coverage is the share of the policy's lines that tests evaluated, in percent.
	Coverage float64
}

// TestResult is the result of one test rule.
type TestResult struct {
	// Name is package.rule, and Place file:line.
	Name  string `json:"name"`
	Place string `json:"place"`
	// Cases are the rows of a table test that failed.
	Cases []string `json:"cases"`
	// Problem is why the test failed; empty if it passed.
	Problem string `json:"problem"`
	// Output is what the test printed and, if it failed, its actual and expected values, with the place.
	Output string `json:"output"`
	// Took is the duration of the test.
	Took time.Duration `json:"-"`
}

// String returns a line with the test's name, place and problem.
func (t TestResult) String() string {
	text := fmt.Sprintf("%s: test %s: %s", t.Place, t.Name, t.Problem)
	if len(t.Cases) > 0 {
		text += fmt.Sprintf(", in its rows %q", t.Cases)
	}
	if t.Output != "" {
		text += "; " + strings.ReplaceAll(strings.TrimSpace(t.Output), "\n", "; ")
	}
	return text
}

// Passed reports whether every test passed.
func (r *TestRun) Passed() bool {
	return !slices.ContainsFunc(r.Tests, func(t TestResult) bool { return t.Problem != "" })
}

// RunNamedTests runs the tests of a policy or library whose names, as package.rule, match, and measures coverage. Nil matches all.
// The error is [CompileErrors], for tests that cannot run, or if there are none.
func RunNamedTests(ctx context.Context, src Source, names *regexp.Regexp) (*TestRun, error) {
	r, err := TestRunner{Names: names, Coverage: true}.Run(ctx, src)
	if err == nil && len(r.Tests) == 0 && names == nil {
		return nil, CompileErrors{{File: src.Name, Message: "no tests: a policy needs at least one"}}
	}
	return r, err
}

// TestRunner has the options of a test run.
type TestRunner struct {
	// Names, as package.rule, of the tests that are run; nil matches all.
	Names *regexp.Regexp
	// Coverage enables measuring coverage.
	Coverage bool
	// Begins is called before each test. It may be nil.
	Begins func(name, place string)
}

// Run runs the tests of a policy or library, one after another, until the context ends. Tests see data.parameters only where they
// use `with`, so that editing a policy's parameters cannot fail them. The error is [CompileErrors], for tests that cannot run, or
// the cause of the context's end.
func (o TestRunner) Run(ctx context.Context, src Source) (*TestRun, error) {
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
	heard := intercept(src, modules)
	s, err := newSuite(slices.Concat(heard.modules, tests, libraries), tests, heard)
	if err != nil {
		return nil, fmt.Errorf("preparing the tests of %s: %w", src.Name, err)
	}
	if o.Coverage {
		s.coverage = cover.New()
	}
	r := &TestRun{}
	for _, t := range s.tests {
		if o.Names != nil && !o.Names.MatchString(t.name) {
			continue
		}
		if o.Begins != nil {
			o.Begins(t.name, t.location.String())
		}
		r.Tests = append(r.Tests, s.run(ctx, t))
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	slices.SortFunc(r.Tests, func(a, b TestResult) int { return strings.Compare(a.Name, b.Name) })
	if o.Coverage {
		r.cover(s.coverage, modules)
	}
	return r, nil
}

// CountTests counts the tests of modules as a run does, without compiling them. The error is [CompileErrors].
func CountTests(modules []Module) (n int, err error) {
	parsed, errs := parse(modules)
	if len(errs) > 0 {
		return 0, errs
	}
	for _, m := range parsed {
		for _, r := range m.Rules {
			if _, ok := testRef(r); ok {
				n++
			}
		}
	}
	return n, nil
}

// misplacedTests rejects test modules outside <package>_test: inside the policy's package they would add rules to it.
func misplacedTests(src Source, tests []*ast.Module) CompileErrors {
	var errs CompileErrors
	for _, m := range tests {
		name := packageName(m)
		if !strings.HasPrefix(name, src.Package) || !strings.HasSuffix(name, "_test") {
			errs.add(m.Package.Location, "tests of %s must be in a package that ends in _test, not in %s", src.Package, name)
		}
	}
	return errs.ofContract()
}

// cover counts the lines of the policy itself: libraries have tests of their own.
func (r *TestRun) cover(coverage *cover.Cover, modules []*ast.Module) {
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
