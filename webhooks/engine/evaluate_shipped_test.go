package engine

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/tester"
	"github.com/open-policy-agent/opa/v1/topdown"

	"sallyport.dev/sallyport/policies"
)

// inputs are those with which tests evaluate a policy.
type inputs struct {
	tracer
	of  ast.Ref
	mu  sync.Mutex
	all ast.Set
}

// TraceEvent adds the input of each rule of the policy.
func (i *inputs) TraceEvent(e topdown.Event) {
	if r, ok := e.Node.(*ast.Rule); ok && e.Op == topdown.EnterOp && r.Module.Package.Path.Equal(i.of) && e.Input() != nil {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.all.Add(e.Input())
	}
}

// The programs of the shipped policies give what topdown gives for all inputs of the policies' tests, and topdown never has to step in.
func TestProgramsOfShippedPolicies(t *testing.T) {
	if isInterpreted {
		t.Skip("there are no programs")
	}
	shipped, err := policies.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	var libraries []Module
	for i := range shipped {
		if shipped[i].Spec.Library {
			for _, m := range shipped[i].Spec.Modules {
				libraries = append(libraries, Module{shipped[i].Name + "/" + m.Name, m.Source})
			}
		}
	}
	for i := range shipped {
		if spec := &shipped[i].Spec; !spec.Library {
			t.Run(shipped[i].Name, func(t *testing.T) {
				t.Parallel()
				src := Source{Name: shipped[i].Name, Package: spec.Package, Libraries: libraries, Timeout: spec.Timeout()}
				for _, m := range spec.Modules {
					src.Modules = append(src.Modules, Module{m.Name, m.Source})
				}
				for _, m := range spec.Tests {
					src.Tests = append(src.Tests, Module{"test/" + m.Name, m.Source})
				}
				for _, r := range spec.Reads {
					src.Reads = append(src.Reads, Read{APIVersion: r.APIVersion, Kind: r.Kind, Indexes: r.Indexes})
				}
				if spec.Parameters != nil {
					src.Parameters = spec.Parameters.Raw
				}
				p := mustCompile(t, src)
				for _, place := range p.Interpreted() {
					t.Errorf("%v has no program", place)
				}
				all := inputsOf(t, p, src)
				if all.Len() == 0 {
					t.Fatal("no test has an input")
				}
				for i, input := range all.Slice() {
					if testing.Short() && i%8 != 0 {
						continue
					}
					for _, q := range []*query{p.first.ask, p.second.ask, p.queries[admit], p.queries[mutate], p.outcome} {
						bothWays(t, p, q, input)
					}
				}
			})
		}
	}
}

func inputsOf(t *testing.T, p *Policy, src Source) ast.Set {
	t.Helper()
	modules, used, err := assemble(src)
	if err != nil {
		t.Fatal(err)
	}
	tests, errs := parse(src.Tests)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	found := &inputs{of: p.pkg, all: ast.NewSet()}
	results, err := tester.NewRunner().SetCompiler(newCompiler().WithEnablePrintStatements(true)).SetStore(p.store).
		SetCoverageQueryTracer(found).SetModules(byName(slices.Concat(modules, used, tests))).RunTests(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for range results {
	}
	return found.all
}

// bothWays evaluates a query on an input, as terms and as text.
func bothWays(t *testing.T, p *Policy, q *query, input *ast.Term) {
	t.Helper()
	if q == nil {
		return
	}
	decoded, err := ast.JSON(input.Value)
	if err != nil {
		t.Fatal(err)
	}
	evaluate := func(v Value, interpreted bool) (string, error) {
		found, err := p.evaluate(context.Background(), Input{interpreted: interpreted}, q, v)
		all := ast.NewSet()
		for _, result := range found {
			for _, name := range []ast.Var{"facts", "yields", "outcome"} {
				if v := result[name]; v != nil {
					all.Add(v)
				}
			}
		}
		return all.String(), err
	}
	want, wantErr := evaluate(valueOf(input), true)
	for _, v := range []Value{valueOf(input), shared(decoded)} {
		if got, err := evaluate(v, false); got != want || (err == nil) != (wantErr == nil) {
			t.Errorf("got %s, %v, want %s, %v, for %v", got, err, want, wantErr, input)
		}
		if _, err := q.program.Run(context.Background(), planned(v)); err != nil && wantErr == nil {
			t.Errorf("the program has no result for %v: %v", input, err)
		}
	}
}
