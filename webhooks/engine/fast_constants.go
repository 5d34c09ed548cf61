package engine

import (
	"context"
	"slices"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"sallyport.dev/sallyport/webhooks/engine/builtins"
)

// What does not read the request is the same for every request: tables in libraries, and whether parameters can be read, which
// valid_input asks each time. Such rules are evaluated once, at compilation, and stand as their values in what is evaluated
// for requests. One that has no value, or whose evaluation fails, stays as it is and says so each time; so does one that takes long
// to evaluate, or whose value is large: it would be kept in memory for good.

const (
	// foldingTime, foldingSteps and foldingMade bound the evaluation of all constants of a policy: expressions, and bytes that builtins
	// make. Whatever is not evaluated then is no constant.
	foldingTime, foldingSteps, foldingMade = 2 * time.Second, 200_000, 8 << 20
	// largestConstant and allConstants are how much is kept, as it is written.
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

// TraceEvent ends what takes too many steps, which are the same on each machine.
func (f *folding) TraceEvent(topdown.Event) {
	if f.steps++; f.steps > foldingSteps {
		f.cancel.Cancel()
	}
}

// keep tells whether there is room for a constant.
func (f *folding) keep(value *ast.Term) bool {
	size := builtins.WrittenSize(value, largestConstant)
	if size > min(largestConstant, f.room) {
		return false
	}
	f.room -= size
	return true
}

// fold gives modules in which rules that do not read the request are their values.
func (a *accelerated) fold(compiled *ast.Compiler, modules []*ast.Module) []*ast.Module {
	if slices.ContainsFunc(modules, replacesDocuments) {
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

// replacesDocuments tells whether there is a `with` in a module: a rule may have another value below it.
func replacesDocuments(m *ast.Module) (found bool) {
	ast.WalkWiths(m, func(*ast.With) bool {
		found = true
		return true
	})
	return found
}

// constant gives the value of the rules of one name, nil if they depend on the request or have none.
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
	if constant := found[0][ast.Var("value")]; f.keep(constant) {
		return constant
	}
	return nil
}

// readsRequest tells whether a rule, or one that it depends on, reads input.
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
