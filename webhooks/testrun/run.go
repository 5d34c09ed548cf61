package testrun

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/grants"
)

// Run is the input of a test run.
type Run struct {
	// World has all existing RegoPolicies.
	World []v1alpha1.RegoPolicy `json:"world"`
	// Candidate is the new RegoPolicy, which replaces the one of its name. Either it or Deleted is set.
	Candidate *v1alpha1.RegoPolicy `json:"candidate,omitempty"`
	// Deleted is the name of a RegoPolicy to delete.
	Deleted string `json:"deleted,omitempty"`
	// Patchable is what policies may patch.
	Patchable grants.Patchable `json:"patchable,omitzero"`
	// Alone skips the effects on other policies.
	Alone bool `json:"alone,omitempty"`
}

// step is called with the current step, for messages if the run is killed.
type step func(what string)

// shareForOthers is the share of the time after which the tests of other policies end. They begin after the candidate's own tests.
const shareForOthers = 0.7

// Run runs the test run. Within is the available time: the tests of a library's importers, which come last, are skipped if they
// would not end in time. It does not end by itself before the context does.
func (t *Run) Run(ctx context.Context, within time.Duration, at step) *Finding {
	began := time.Now()
	if at == nil {
		at = func(string) {}
	}
	e := &execution{Run: t, finding: &Finding{}, at: at}
	e.perform(ctx, began.Add(time.Duration(float64(within)*shareForOthers)))
	e.finding.Took = time.Since(began).Round(time.Millisecond).String()
	e.finding.truncate()
	return e.finding
}

// execution is the state of a test run.
type execution struct {
	*Run
	finding *Finding
	at      step
	after   []v1alpha1.RegoPolicy
}

func (e *execution) perform(ctx context.Context, othersUntil time.Time) {
	e.after = e.afterwards()
	e.at("compiling")
	set, states := (&catalog.Catalog{Patchable: e.Patchable}).Build(ctx, e.after, nil)
	if e.Candidate != nil {
		i := slices.IndexFunc(states, func(s catalog.State) bool { return s.Name == e.Candidate.Name })
		if !e.recordCompilation(&states[i]) {
			return
		}
		if p := set.Policy(e.Candidate.Name); p != nil && p.Mutates() {
			e.finding.Unpatchable = catalog.Unpatchable(e.Candidate.Spec.Match, e.Patchable)
		}
	}
	others := e.concernsOthers()
	if others {
		e.recordBreaks(ctx, states)
	}
	if e.Candidate != nil && len(e.finding.Missing) == 0 {
		e.tests(ctx)
	}
	if others && e.Candidate != nil && e.finding.ok() {
		e.testsOfOthers(ctx, othersUntil)
	}
}

// concernsOthers reports whether other policies can break: each is compiled by itself, with the libraries that it imports.
func (e *execution) concernsOthers() bool {
	if e.Alone {
		return false
	}
	return e.Candidate == nil || e.Candidate.Spec.Library || slices.ContainsFunc(e.World, func(o v1alpha1.RegoPolicy) bool {
		return o.Name == e.Candidate.Name && o.Spec.Library
	})
}

// afterwards returns the world after the change.
func (e *execution) afterwards() []v1alpha1.RegoPolicy {
	gone := e.Deleted
	if e.Candidate != nil {
		gone = e.Candidate.Name
	}
	after := slices.DeleteFunc(slices.Clone(e.World), func(o v1alpha1.RegoPolicy) bool { return o.Name == gone })
	if e.Candidate != nil {
		after = append(after, *e.Candidate)
	}
	return after
}

// recordCompilation records the candidate's compilation errors. A missing library is not the candidate's error, but a policy cannot be
// tested without it.
func (e *execution) recordCompilation(s *catalog.State) (goOn bool) {
	switch {
	case s.Err == nil:
		return true
	case s.Problem == v1alpha1.ReasonLibraryMissing:
		e.finding.Missing = s.Lacking
		return e.concernsOthers()
	}
	e.finding.Problems = problems(s.Name, s.Problem, s.Err)
	return false
}

// problems returns the problems of one kind, one for each place.
func problems(file string, kind v1alpha1.ConditionReason, err error) []Problem {
	var places engine.CompileErrors
	if !errors.As(err, &places) {
		return []Problem{{Kind: kind, File: file, Message: err.Error()}}
	}
	all := make([]Problem, len(places))
	for i, e := range places {
		all[i] = Problem{Kind: kind, File: e.File, Line: e.Row, Column: e.Col, Message: e.Message}
	}
	return all
}

// tests runs the candidate's tests.
func (e *execution) tests(ctx context.Context) {
	source := catalog.Compose(e.after)[e.Candidate.Name]
	r, err := e.runTests(ctx, source.Source)
	switch {
	case err != nil:
		kind := v1alpha1.ReasonCompileFailed
		var places engine.CompileErrors
		if errors.As(err, &places) && !slices.ContainsFunc(places, func(e engine.CompileError) bool { return !e.Contract }) {
			kind = v1alpha1.ReasonContractBroken
		}
		e.finding.Problems = append(e.finding.Problems, problems(e.Candidate.Name, kind, err)...)
	case len(r.Tests) == 0:
		e.finding.Problems = append(e.finding.Problems, Problem{
			Kind: v1alpha1.ReasonTestsMissing, File: e.Candidate.Name, Message: "spec.tests has no rule test_...",
		})
	default:
		e.finding.Tests = results(r)
	}
}

// runTests runs the tests of a source, and turns a panic into an error.
func (e *execution) runTests(ctx context.Context, source engine.Source) (r *engine.TestRun, err error) {
	defer func() {
		if x := recover(); x != nil {
			err = fmt.Errorf("panic: %v\n%s", x, debug.Stack())
		}
	}()
	e.at("preparing the tests of " + source.Name)
	return engine.TestRunner{Begins: func(name, place string) {
		e.at(fmt.Sprintf("running test %s (%s)", name, place))
	}}.Run(ctx, source)
}

// recordBreaks records the valid policies that would break.
func (e *execution) recordBreaks(ctx context.Context, after []catalog.State) {
	var broken []catalog.State
	for _, s := range after {
		if s.Err != nil && (e.Candidate == nil || s.Name != e.Candidate.Name) {
			broken = append(broken, s)
		}
	}
	if len(broken) == 0 {
		return
	}
	e.at("compiling the current policies")
	_, before := new(catalog.Catalog).Build(ctx, e.World, nil)
	for _, s := range broken {
		if slices.ContainsFunc(before, func(b catalog.State) bool { return b.Name == s.Name && b.Err == nil }) {
			e.finding.Breaks = append(e.finding.Breaks, Break{Policy: s.Name, Message: firstLine(s.Err)})
		}
	}
}

// testsOfOthers runs the tests of the policies that import the candidate. A test that also fails without the candidate does not
// count.
func (e *execution) testsOfOthers(ctx context.Context, until time.Time) {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	after := catalog.Compose(e.after)
	var before map[string]catalog.Source
	for _, name := range sortedNames(e.after) {
		source := after[name]
		if name == e.Candidate.Name || !source.Imports(e.Candidate.Name) {
			continue
		}
		failed, err := e.failures(ctx, source.Source)
		if len(failed) > 0 {
			if before == nil {
				before = catalog.Compose(e.World)
			}
			var anyway []engine.TestResult
			if anyway, err = e.failures(ctx, before[name].Source); err == nil {
				failed = subtract(failed, anyway)
			}
		}
		switch {
		case ctx.Err() != nil:
			e.finding.Untested = append(e.finding.Untested, name)
		case err == nil && len(failed) > 0:
			e.finding.Breaks = append(e.finding.Breaks, Break{Policy: name, Message: "its tests would fail: " + failed[0].String()})
		}
	}
}

// failures returns the tests that fail. Tests that cannot run do not count: the policy compiles with the candidate.
func (e *execution) failures(ctx context.Context, source engine.Source) ([]engine.TestResult, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	r, err := e.runTests(ctx, source)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(r.Tests, func(t engine.TestResult) bool { return t.Problem == "" }), nil
}

// subtract removes the tests that another list has with the same failure.
func subtract(failed, anyway []engine.TestResult) []engine.TestResult {
	return slices.DeleteFunc(failed, func(t engine.TestResult) bool {
		return slices.ContainsFunc(anyway, func(a engine.TestResult) bool {
			return a.Name == t.Name && a.Problem == t.Problem && slices.Equal(a.Cases, t.Cases)
		})
	})
}

func sortedNames(objects []v1alpha1.RegoPolicy) []string {
	names := make([]string, len(objects))
	for i := range objects {
		names[i] = objects[i].Name
	}
	slices.SortFunc(names, cmp.Compare[string])
	return names
}
