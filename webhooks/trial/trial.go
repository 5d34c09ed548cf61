package trial

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

// Trial is what is tried.
type Trial struct {
	// World has all RegoPolicies as they are.
	World []v1alpha1.RegoPolicy `json:"world"`
	// Candidate takes the place of the one of its name, or comes new.
	Candidate *v1alpha1.RegoPolicy `json:"candidate,omitempty"`
	// Deleted is the name of one that goes. Either it or Candidate is set.
	Deleted string `json:"deleted,omitempty"`
	// Others is an estimate of the memory that policies need which World leaves out, in bytes.
	Others int64 `json:"others,omitempty"`
	// Patchable is what policies may patch.
	Patchable grants.Patchable `json:"patchable,omitzero"`
	// Alone leaves out what becomes of others.
	Alone bool `json:"alone,omitempty"`
}

// step is told where a trial is, for whoever has to say where it was when it ended.
type step func(what string)

// shareForOthers is how much of the time for a trial may have passed when the tests of further policies begin, and how much
// when they are given up: what a library's own tests leave.
const shareForOthers = 0.7

// Run tries. Within is the time that there is: the tests of a library's importers, which come last, are left out rather than
// not ended in time. It does not end by itself before the context does.
func (t *Trial) Run(ctx context.Context, within time.Duration, at step) *Finding {
	began := time.Now()
	if at == nil {
		at = func(string) {}
	}
	p := &performance{Trial: t, finding: &Finding{}, at: at}
	p.perform(ctx, began.Add(time.Duration(float64(within)*shareForOthers)))
	p.finding.Took = time.Since(began).Round(time.Millisecond).String()
	p.finding.bound()
	return p.finding
}

// performance is a trial that is under way.
type performance struct {
	*Trial
	finding *Finding
	at      step
	after   []v1alpha1.RegoPolicy
}

func (p *performance) perform(ctx context.Context, othersUntil time.Time) {
	p.after = p.afterwards()
	p.at("compiling")
	set, states := (&catalog.Catalog{Patchable: p.Patchable}).Build(ctx, p.after, nil)
	if p.Candidate != nil {
		i := slices.IndexFunc(states, func(s catalog.State) bool { return s.Name == p.Candidate.Name })
		if !p.compiled(&states[i]) || !p.fits(set) {
			return
		}
	}
	others := p.concernsOthers()
	if others {
		p.breaks(ctx, states)
	}
	if p.Candidate != nil && len(p.finding.Missing) == 0 {
		p.tests(ctx)
	}
	if others && p.Candidate != nil && p.finding.fine() {
		p.testsOfOthers(ctx, othersUntil)
	}
}

// concernsOthers tells whether policies can break: each is compiled for itself, with the libraries that it imports.
func (p *performance) concernsOthers() bool {
	if p.Alone {
		return false
	}
	return p.Candidate == nil || p.Candidate.Spec.Library || slices.ContainsFunc(p.World, func(o v1alpha1.RegoPolicy) bool {
		return o.Name == p.Candidate.Name && o.Spec.Library
	})
}

// afterwards is the world as it would be.
func (p *performance) afterwards() []v1alpha1.RegoPolicy {
	gone := p.Deleted
	if p.Candidate != nil {
		gone = p.Candidate.Name
	}
	after := slices.DeleteFunc(slices.Clone(p.World), func(o v1alpha1.RegoPolicy) bool { return o.Name == gone })
	if p.Candidate != nil {
		after = append(after, *p.Candidate)
	}
	return after
}

// compiled takes down what became of the candidate. A library that is missing is not the candidate's fault, but without it
// nothing more can be found out about a policy.
func (p *performance) compiled(s *catalog.State) (goOn bool) {
	switch {
	case s.Err == nil:
		return true
	case s.Problem == catalog.LibraryMissing:
		p.finding.Missing = s.Lacking
		return p.concernsOthers()
	}
	p.finding.Problems = problems(s.Name, string(s.Problem), s.Err)
	return false
}

// fits takes down whether the candidate may patch what it matches, and whether there is room for it beside the policies that are
// left out here.
func (p *performance) fits(set *catalog.Set) bool {
	policy := set.Policy(p.Candidate.Name)
	if policy == nil {
		return true
	}
	p.finding.Unpatchable = policy.Unpatchable()
	err := catalog.CheckWeight(policy.Name(), policy.Weight(), p.Others, catalog.MostWeight)
	if err != nil {
		p.finding.Problems = problems(policy.Name(), string(catalog.LimitExceeded), err)
	}
	return err == nil
}

// problems of one kind, one for each place.
func problems(file, kind string, err error) []Problem {
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

// tests runs those of the candidate.
func (p *performance) tests(ctx context.Context) {
	source := catalog.Compose(p.after)[p.Candidate.Name]
	r, err := p.rehearse(ctx, source.Source)
	switch {
	case err != nil:
		kind := catalog.CompileFailed
		var places engine.CompileErrors
		if errors.As(err, &places) && !slices.ContainsFunc(places, func(e engine.CompileError) bool { return !e.Contract }) {
			kind = catalog.ContractBroken
		}
		p.finding.Problems = append(p.finding.Problems, problems(p.Candidate.Name, string(kind), err)...)
	case len(r.Tests) == 0:
		p.finding.Problems = append(p.finding.Problems, Problem{
			Kind: KindTestsMissing, File: p.Candidate.Name, Message: "there is no rule test_... in spec.tests",
		})
	default:
		p.finding.Tests = results(r)
	}
}

// rehearse runs the tests of a source, and keeps a panic to them.
func (p *performance) rehearse(ctx context.Context, source engine.Source) (r *engine.Rehearsal, err error) {
	defer func() {
		if x := recover(); x != nil {
			err = fmt.Errorf("panic: %v\n%s", x, debug.Stack())
		}
	}()
	p.at("preparing the tests of " + source.Name)
	return engine.Rehearsing{Begins: func(name, place string) {
		p.at(fmt.Sprintf("in test %s (%s)", name, place))
	}}.Rehearse(ctx, source)
}

// breaks takes down the policies that are in order and would not be.
func (p *performance) breaks(ctx context.Context, after []catalog.State) {
	var broken []catalog.State
	for _, s := range after {
		if s.Err != nil && (p.Candidate == nil || s.Name != p.Candidate.Name) {
			broken = append(broken, s)
		}
	}
	if len(broken) == 0 {
		return
	}
	p.at("compiling the policies as they are")
	_, before := new(catalog.Catalog).Build(ctx, p.World, nil)
	for _, s := range broken {
		if slices.ContainsFunc(before, func(b catalog.State) bool { return b.Name == s.Name && b.Err == nil }) {
			p.finding.Breaks = append(p.finding.Breaks, Break{Policy: s.Name, Message: firstLine(s.Err)})
		}
	}
}

// testsOfOthers runs the tests of the policies that import the candidate. A test that fails without the candidate, too, is not
// its doing.
func (p *performance) testsOfOthers(ctx context.Context, until time.Time) {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	after := catalog.Compose(p.after)
	var before map[string]catalog.Source
	for _, name := range sortedNames(p.after) {
		source := after[name]
		if name == p.Candidate.Name || !source.Imports(p.Candidate.Name) {
			continue
		}
		failed, err := p.failures(ctx, source.Source)
		if len(failed) > 0 {
			if before == nil {
				before = catalog.Compose(p.World)
			}
			var anyway []engine.TestResult
			if anyway, err = p.failures(ctx, before[name].Source); err == nil {
				failed = without(failed, anyway)
			}
		}
		switch {
		case ctx.Err() != nil:
			p.finding.Untested = append(p.finding.Untested, name)
		case err == nil && len(failed) > 0:
			p.finding.Breaks = append(p.finding.Breaks, Break{Policy: name, Message: "its tests would fail: " + describe(failed[0])})
		}
	}
}

// failures gives the tests that fail. That tests cannot run is not the candidate's doing: the policy compiles with it.
func (p *performance) failures(ctx context.Context, source engine.Source) ([]engine.TestResult, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	r, err := p.rehearse(ctx, source)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(r.Tests, func(t engine.TestResult) bool { return t.Problem == "" }), nil
}

// without leaves out the tests that are also in another list, with the same failure.
func without(failed, anyway []engine.TestResult) []engine.TestResult {
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
