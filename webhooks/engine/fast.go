package engine

import (
	"context"
	"sync/atomic"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Way is how a decision was made. Whichever it is, the decision is the same.
type Way string

// The ways of decisions.
const (
	// Evaluated: the rules were evaluated.
	Evaluated Way = ""
	// Cached: they were evaluated before, for a request that is the same in all that they read, and said nothing.
	Cached Way = "remembered"
)

// accelerator is what only makes the decisions of a policy fast. They are the same with any other, of which there are two:
// [accelerated] and [plain].
type accelerator interface {
	// fold gives the modules that are evaluated in place of those that compiled is made of.
	fold(compiled *ast.Compiler, modules []*ast.Module) []*ast.Module
	// linked is told when the policy is compiled. The modules are its own, as they were written.
	linked(modules []*ast.Module)
	// spawn runs an evaluation on a goroutine of its own.
	spawn(evaluation func())
	// part returns what is read of each object of a fact that is a list; nil if all of it may be.
	part(fact string) *Part
	// wanted returns the facts of the first round without their answers.
	wanted(ctx context.Context, in Input) (map[string]Fact, error)
	// input gives of a document what rules are evaluated on.
	input(document Value) *ast.Term
	// judge decides on facts that are known.
	judge(ctx context.Context, e endpoint, in Input, facts map[string]Fact) (*Decision, error)
	// unfollowed is for [Policy.Unfollowed].
	unfollowed() CompileErrors
}

// Option changes how a policy is compiled.
type Option func(*Policy)

// Plain leaves out whatever only makes decisions fast: rules are evaluated as they are written, each time, on the whole input. A document
// of more values than a policy may read cannot be decided about then, whatever the policy reads of it.
func Plain(p *Policy) { p.fast = plain{p} }

// plain does nothing that would make a decision fast.
type plain struct{ *Policy }

func (plain) fold(_ *ast.Compiler, modules []*ast.Module) []*ast.Module { return modules }
func (plain) linked([]*ast.Module)                                      {}
func (plain) spawn(evaluation func())                                   { go evaluation() }
func (plain) input(document Value) *ast.Term                            { return document.orNull() }
func (plain) unfollowed() CompileErrors                                 { return nil }
func (plain) part(string) *Part                                         { return nil }

func (p plain) wanted(ctx context.Context, in Input) (map[string]Fact, error) {
	return p.evaluateFacts(ctx, p.first, in, nil, p.input)
}

func (p plain) judge(ctx context.Context, e endpoint, in Input, facts map[string]Fact) (*Decision, error) {
	return p.evaluateRules(ctx, e, in, facts, p.input)
}

// accelerated evaluates what does not depend on the request at compilation, and the rest on as little of the input as it reads. Facts
// that only name fields of the request are filled in, and a request about which there was nothing to say is found in a cache.
type accelerated struct {
	*Policy
	templates map[string]*ast.Term // what facts are wanted, without evaluation; nil if that cannot be

	read    *projection // what anything in the policy reads of the input
	parts   map[string]*Part
	decides *projection // what decides of the request whether deny and warn have anything to say; nil if more than that decides it
	cache   decisionCache

	decided    atomic.Int64 // how many decisions were made
	distrusted atomic.Bool  // a check has shown that a decision would have been another one without all this
}

func (a *accelerated) linked(modules []*ast.Module) {
	if a.first.ask != nil && a.second.ask == nil {
		a.templates = a.templatesOf(modules)
	}
	a.read = follow(a.compiler, a.outputs()...)
	a.parts = a.read.parts(a.facts)
	bodies := follow(a.compiler, a.named(ruleValid, admit.fires())...)
	if bodies.all || bodies.every != nil || bodies.members["now"] != nil {
		return
	}
	if request := bodies.members["request"]; request == nil {
		a.decides = &projection{}
	} else if !request.all {
		a.decides = request
	}
}

func (a *accelerated) input(document Value) *ast.Term {
	if a.distrusted.Load() {
		return document.orNull()
	}
	return a.read.of(document)
}

func (a *accelerated) wanted(ctx context.Context, in Input) (map[string]Fact, error) {
	if a.templates == nil {
		return a.evaluateFacts(ctx, a.first, in, nil, a.input)
	}
	if err := a.cutOffNow(); err != nil {
		return nil, err
	}
	return a.factsOf(a.facts, func(name string) (*ast.Term, bool) { return filled(a.templates[name], in.Request) })
}

func (a *accelerated) part(fact string) *Part {
	if a.distrusted.Load() {
		return nil
	}
	return a.parts[fact]
}

// judge decides on as little of the input as the policy reads, or by the cache.
func (a *accelerated) judge(ctx context.Context, e endpoint, in Input, facts map[string]Fact) (*Decision, error) {
	if a.distrusted.Load() {
		return plain{a.Policy}.judge(ctx, e, in, facts)
	}
	var decision *Decision
	var err error
	if key, values := a.cacheKey(e, in, facts); key != nil && a.cache.has(key, values) {
		decision = &Decision{Facts: facts, Way: Cached}
	} else if decision, err = a.evaluateRules(ctx, e, in, facts, a.read.of); key != nil && err == nil && decision.silent() {
		a.cache.put(key, values)
	}
	if a.decided.Add(1)%checkedShare == 1 && !a.read.all && in.Request.Values() == 0 {
		return a.check(ctx, e, in, facts, decision, err)
	}
	return decision, err
}

// silent tells whether the policy had nothing to say.
func (d *Decision) silent() bool { return len(d.Denials)+len(d.Warnings)+len(d.Patches) == 0 }
