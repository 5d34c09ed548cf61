package engine

import (
	"context"
	"slices"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"sallyport.dev/sallyport/webhooks/engine/builtins"
)

// Rules that do not read the request are the same for every request: tables in libraries, and the checks of parameters in
// valid_input. They are evaluated once, at compilation, and replaced by their values. A rule that is undefined or whose evaluation
// fails stays, so that every evaluation reports it; so does one that takes long, or whose value is large, because the value would
// stay in memory. This halves the time of a decision of the shipped policies on operations.

const (
	// foldingTime, foldingSteps and foldingMade limit the evaluation of all constants of a policy: expressions, and bytes that
	// builtins allocate. Rules that are not evaluated by then are no constants.
	foldingTime, foldingSteps, foldingMade = 2 * time.Second, 200_000, 8 << 20
	// largestConstant and allConstants limit the text of the values.
	largestConstant, allConstants = 16 << 10, 128 << 10
)

// folding is the evaluation of a policy's constants.
type folding struct {
	tracer
	ctx    context.Context
	cancel topdown.Cancel
	steps  int
	room   float64
}

// TraceEvent cancels after too many steps; their number is the same on each machine.
func (f *folding) TraceEvent(topdown.Event) {
	if f.steps++; f.steps > foldingSteps {
		f.cancel.Cancel()
	}
}

// fits reports whether there is room for a constant.
func (f *folding) fits(value *ast.Term) bool {
	size := builtins.WrittenSize(value, largestConstant)
	if size > min(largestConstant, f.room) {
		return false
	}
	f.room -= size
	return true
}

// fold returns modules in which rules that do not read the request are replaced by their values.
func (a *accelerated) fold(compiled *ast.Compiler, modules []*ast.Module) []*ast.Module {
	if a.disabled.Load() || slices.ContainsFunc(modules, replacesDocuments) {
		return modules
	}
	f := &folding{
		ctx:    builtins.MeteredUpTo(context.Background(), foldingMade),
		cancel: topdown.NewCancel(), room: allConstants,
	}
	defer time.AfterFunc(foldingTime, f.cancel.Cancel).Stop()
	made := make([]*ast.Module, len(modules))
	values := map[string]*ast.Term{}
	for i, m := range modules {
		made[i] = m.Copy()
		made[i].Rules = nil
		for _, r := range m.Rules {
			ref := r.Ref().String()
			value, asked := values[ref]
			if !asked {
				value = a.constant(f, compiled, r.Ref())
				values[ref] = value
				if value != nil {
					made[i].Rules = append(made[i].Rules, valueRule(made[i], r, value))
				}
			}
			if value == nil {
				made[i].Rules = append(made[i].Rules, r)
			}
		}
	}
	return made
}

// replacesDocuments reports whether a module has a `with`, below which a rule may have another value.
func replacesDocuments(m *ast.Module) (found bool) {
	ast.WalkWiths(m, func(*ast.With) bool {
		found = true
		return true
	})
	return found
}

// constant returns the value of the rules of one name; nil if they depend on the request or are undefined.
func (a *accelerated) constant(f *folding, compiled *ast.Compiler, name ast.Ref) *ast.Term {
	rules := compiled.GetRulesExact(name)
	seen := map[*ast.Rule]bool{}
	for _, r := range rules {
		if r.Head.RuleKind() != ast.SingleValue || len(r.Head.Args) > 0 || len(r.Head.Ref()) != 1 || readsRequest(compiled, r, seen) {
			return nil
		}
	}
	value := ast.VarTerm("value")
	query := ast.NewBody(ast.Equality.Expr(value, ast.NewTerm(name)))
	found, err := topdown.NewQuery(query).WithCompiler(compiled).WithStore(a.store).WithTransaction(a.txn).
		WithStrictBuiltinErrors(true).WithCancel(f.cancel).WithQueryTracer(f).Run(f.ctx)
	if err != nil || len(found) != 1 {
		return nil
	}
	if constant := found[0][ast.Var("value")]; f.fits(constant) {
		return constant
	}
	return nil
}

// readsRequest reports whether a rule, or one that it depends on, reads input.
func readsRequest(compiled *ast.Compiler, r *ast.Rule, seen map[*ast.Rule]bool) bool {
	if r == nil || seen[r] {
		return false
	}
	seen[r] = true
	reads := readsRequest(compiled, r.Else, seen)
	ast.WalkTerms(r, func(t *ast.Term) bool {
		reads = reads || t.Equal(ast.InputRootDocument)
		return reads
	})
	for d := range compiled.Graph.Dependencies(r) {
		reads = reads || readsRequest(compiled, d.(*ast.Rule), seen)
	}
	return reads
}

func valueRule(in *ast.Module, original *ast.Rule, value *ast.Term) *ast.Rule {
	r := original.Copy()
	r.Module, r.Annotations, r.Default, r.Else = in, nil, false, nil
	r.Head.Value = value
	r.Body = ast.NewBody(ast.NewExpr(ast.BooleanTerm(true)))
	return r
}
