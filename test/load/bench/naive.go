package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
)

// naive asks the same two policies with OPA's own interface. Their input goes through JSON text; the fresh way makes a query for
// each request too, as the constraint framework does.
func (w *world) naive() (prepared, fresh judge, err error) {
	compiler, stores, err := w.forOPA()
	if err != nil {
		return nil, nil, err
	}
	var options [][]func(*rego.Rego)
	var ready []rego.PreparedEvalQuery
	for _, name := range []string{"applicability", "supersede"} {
		pkg := "data.sallyport.operations." + name
		o := []func(*rego.Rego){
			rego.Query(fmt.Sprintf("valid = %s.valid_input; deny = %s.deny", pkg, pkg)), rego.Compiler(compiler), rego.Store(stores["operations-"+name]),
		}
		query, err := rego.New(o...).PrepareForEval(context.Background())
		if err != nil {
			return nil, nil, err
		}
		options, ready = append(options, o), append(ready, query)
	}
	prepared = denies(len(ready), func(i int, input any) (rego.ResultSet, error) {
		return ready[i].Eval(context.Background(), rego.EvalInput(input))
	})
	fresh = denies(len(ready), func(i int, input any) (rego.ResultSet, error) {
		return rego.New(append([]func(*rego.Rego){rego.Input(input)}, options[i]...)...).Eval(context.Background())
	})
	return prepared, fresh, nil
}

// forOPA gives all modules, compiled, and the parameters of each policy.
func (w *world) forOPA() (*ast.Compiler, map[string]storage.Store, error) {
	modules := map[string]*ast.Module{}
	stores := map[string]storage.Store{}
	for i := range w.policies {
		p := &w.policies[i]
		for _, m := range p.Spec.Modules {
			module, err := ast.ParseModule(m.Name, m.Source)
			if err != nil {
				return nil, nil, err
			}
			modules[p.Name+"/"+m.Name] = module
		}
		if p.Spec.Parameters != nil {
			var parameters any
			if err := json.Unmarshal(p.Spec.Parameters.Raw, &parameters); err != nil {
				return nil, nil, err
			}
			stores[p.Name] = inmem.NewFromObject(map[string]any{"parameters": parameters})
		}
	}
	compiler := ast.NewCompiler()
	if compiler.Compile(modules); compiler.Failed() {
		return nil, nil, compiler.Errors
	}
	return compiler, stores, nil
}

// denies asks each of n policies.
func denies(n int, ask func(i int, input any) (rego.ResultSet, error)) judge {
	return func(request map[string]any, machine any, unfinished []any) (bool, error) {
		text, err := json.Marshal(map[string]any{
			"request": request, "now": "2026-11-20T10:00:00.000000000Z", "facts": map[string]any{"vm": machine, "unfinished": unfinished},
		})
		if err != nil {
			return false, err
		}
		var input any
		if err := json.Unmarshal(text, &input); err != nil {
			return false, err
		}
		denied := false
		for i := range n {
			results, err := ask(i, input)
			if err != nil {
				return false, err
			}
			if len(results) == 0 || results[0].Bindings["valid"] != true {
				return false, fmt.Errorf("a policy does not understand its input: %v", results)
			}
			denied = denied || len(results[0].Bindings["deny"].([]any)) > 0
		}
		return denied, nil
	}
}
