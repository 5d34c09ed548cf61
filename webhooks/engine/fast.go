package engine

import (
	"context"
	"sync/atomic"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Way is how a decision was made. The decision does not depend on it.
type Way string

// Ways of decisions.
const (
	// Evaluated means that the rules were evaluated.
	Evaluated Way = ""
	// Cached means that they were evaluated before, for a request with the same values of all that they read, without results.
	Cached Way = "remembered"
)

// accelerator has the optimizations of a policy. Decisions are the same with both implementations, [accelerated] and [plain].
type accelerator interface {
	// fold returns the modules to evaluate in place of those that compiled is made of.
	fold(compiled *ast.Compiler, modules []*ast.Module) []*ast.Module
	// linked is called when the policy is compiled, with its own, unmodified modules.
	linked(modules []*ast.Module)
	// spawn runs an evaluation on another goroutine.
	spawn(evaluation func())
	// part returns what is read of each object of a fact that is a list; nil if all of it may be.
	part(fact string) *Part
	// wanted returns the facts of the first round without their answers.
	wanted(ctx context.Context, in Input) (map[string]Fact, error)
	// input converts a document to the term that rules are evaluated on.
	input(document Value) *ast.Term
	// decideOn decides with known facts.
	decideOn(ctx context.Context, e endpoint, in Input, facts map[string]Fact) (*Decision, error)
	// unfollowed implements [Policy.Unfollowed].
	unfollowed() CompileErrors
}

// Option changes how a policy is compiled.
type Option func(*Policy)

// Plain disables all optimizations: unmodified rules are evaluated, each time, on the whole input. A document with more
// values than a policy may read then fails, whatever the policy reads of it.
func Plain(p *Policy) { p.fast = plain{p} }

// plain has no optimizations.
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

func (p plain) decideOn(ctx context.Context, e endpoint, in Input, facts map[string]Fact) (*Decision, error) {
	return p.evaluateRules(ctx, e, in, facts, p.input)
}

// accelerated evaluates at compilation what does not depend on the request, and the rest on the part of the input that it reads.
// Facts that only name fields of the request are filled in, and requests without results are cached.
type accelerated struct {
	*Policy
	templates map[string]*ast.Term // facts that need no evaluation; nil if some need it

	read    *projection // of the input, by any rule
	parts   map[string]*Part
	decides *projection // all that determines whether deny and warn have results; nil if more than the request does
	cache   decisionCache

	decided  atomic.Int64 // number of decisions
	disabled atomic.Bool  // a check has found a different decision without the optimizations
}

func (a *accelerated) linked(modules []*ast.Module) {
	if a.first.ask != nil && a.second.ask == nil {
		a.templates = a.templatesOf(modules)
	}
	a.read = follow(a.compiler, a.outputs()...)
	a.parts = a.read.parts(a.facts)
	bodies := follow(a.compiler, a.ruleRefs(ruleValid, admit.fires())...)
	if bodies.all || bodies.every != nil || bodies.members["now"] != nil {
		return
	}
	if request := bodies.members["request"]; request == nil {
		a.decides = &projection{}
	} else if !request.all {
		a.decides = request
	}
	a.decides = a.types.keyed(a.decides)
}

func (a *accelerated) input(document Value) *ast.Term {
	if a.disabled.Load() {
		return document.orNull()
	}
	return a.read.project(document)
}

func (a *accelerated) wanted(ctx context.Context, in Input) (map[string]Fact, error) {
	if a.templates == nil {
		return a.evaluateFacts(ctx, a.first, in, nil, a.input)
	}
	if err := a.checkLeftBehind(); err != nil {
		return nil, err
	}
	return a.factsOf(a.facts, func(name string) (*ast.Term, bool) { return filled(a.templates[name], in.Request) })
}

func (a *accelerated) part(fact string) *Part {
	if a.disabled.Load() {
		return nil
	}
	return a.parts[fact]
}

// decideOn evaluates the part of the input that the policy reads, or uses the cache.
func (a *accelerated) decideOn(ctx context.Context, e endpoint, in Input, facts map[string]Fact) (*Decision, error) {
	if a.disabled.Load() {
		return plain{a.Policy}.decideOn(ctx, e, in, facts)
	}
	var decision *Decision
	var err error
	if key, values := a.cacheKey(e, in, facts); key != nil && a.cache.has(key, values) {
		decision = &Decision{Facts: facts, Way: Cached}
	} else if decision, err = a.evaluateRules(ctx, e, in, facts, a.read.project); key != nil && err == nil && decision.silent() {
		a.cache.put(key, values)
	}
	if a.decided.Add(1)%checkedShare == 1 && !a.read.all && in.Request.Values() == 0 {
		return a.check(ctx, e, in, facts, decision, err)
	}
	return decision, err
}

// silent reports whether the policy had no results.
func (d *Decision) silent() bool { return len(d.Denials)+len(d.Warnings)+len(d.Patches) == 0 }
