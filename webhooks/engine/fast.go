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

// accelerated evaluates at compilation what does not depend on the request, and the rest on the part of the input that it reads.
// Facts that only name fields of the request are filled in, and requests without results are cached. Decisions do not depend on it.
type accelerated struct {
	*Policy
	templates map[string]*ast.Term // facts that need no evaluation; nil if some need it

	read    *projection // of the input, by any rule
	parts   map[string]*Part
	decides *projection // all that determines whether deny and warn have results; nil if more than the request does
	cache   decisionCache

	decided  atomic.Int64 // number of decisions
	disabled atomic.Bool  // of a plain policy, or a check has found a different decision on the whole input
}

// linked is called when the policy is compiled, with its own, unmodified modules.
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

// input converts a document to the term that rules are evaluated on.
func (a *accelerated) input(document Value) *ast.Term {
	if a.disabled.Load() {
		return document.orNull()
	}
	return a.read.project(document)
}

// wanted returns the facts of the first round without their answers.
func (a *accelerated) wanted(ctx context.Context, in Input) (map[string]Fact, error) {
	if a.templates == nil || a.disabled.Load() {
		return a.evaluateFacts(ctx, a.first, in, nil, a.input)
	}
	if err := a.checkLeftBehind(); err != nil {
		return nil, err
	}
	return a.factsOf(a.facts, func(name string) (*ast.Term, bool) { return filled(a.templates[name], in.Request) })
}

// part returns what is read of each object of a fact that is a list; nil if all of it may be.
func (a *accelerated) part(fact string) *Part {
	if a.disabled.Load() {
		return nil
	}
	return a.parts[fact]
}

// decideOn evaluates the part of the input that the policy reads, or uses the cache.
func (a *accelerated) decideOn(ctx context.Context, e endpoint, in Input, facts map[string]Fact) (*Decision, error) {
	if a.disabled.Load() {
		return a.evaluateRules(ctx, e, in, facts, Value.orNull)
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
