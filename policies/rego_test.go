package policies

import (
	"context"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/cover"
	"github.com/open-policy-agent/opa/v1/tester"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Every shipped policy passes its own tests, which reach every line of it.
func TestRego(t *testing.T) {
	policies, err := Shipped()
	if err != nil {
		t.Fatal(err)
	}
	libraries := map[string]*ast.Module{}
	for _, p := range policies {
		if p.Spec.Library {
			parse(t, p, libraries)
		}
	}
	for _, p := range policies {
		t.Run(p.Name, func(t *testing.T) {
			own := map[string]*ast.Module{}
			parse(t, p, own)
			all := map[string]*ast.Module{}
			for _, modules := range []map[string]*ast.Module{libraries, own} {
				for name, module := range modules {
					all[name] = module
				}
			}
			for _, test := range p.Spec.Tests {
				all[p.Name+"/"+test.Name] = parseModule(t, p.Name+"/"+test.Name, test.Source)
			}
			run(t, own, all)
		})
	}
}

func run(t *testing.T, own, all map[string]*ast.Module) {
	t.Helper()
	coverage := cover.New()
	results, err := tester.NewRunner().SetCompiler(ast.NewCompiler().WithStrict(true)).SetModules(all).
		SetCoverageQueryTracer(coverage).RaiseBuiltinErrors(true).RunTests(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	tests := 0
	for result := range results {
		tests++
		if result.Pass() {
			continue
		}
		t.Errorf("%s: %v", result, result.Error)
		for _, failed := range result.SubResults.Iter {
			if failed.Fail {
				t.Errorf("%s: case %s", result.Name, failed.Name)
			}
		}
	}
	if tests == 0 {
		t.Error("no tests")
	}
	for name, file := range coverage.Report(own).Files {
		if file.Coverage < 100 {
			t.Errorf("%s: %v %% covered, not %v", name, file.Coverage, file.NotCovered)
		}
	}
}

func parse(t *testing.T, p v1alpha1.RegoPolicy, into map[string]*ast.Module) {
	t.Helper()
	for _, module := range p.Spec.Modules {
		into[p.Name+"/"+module.Name] = parseModule(t, p.Name+"/"+module.Name, module.Source)
	}
}

func parseModule(t *testing.T, name, source string) *ast.Module {
	t.Helper()
	module, err := ast.ParseModuleWithOpts(name, source, ast.ParserOptions{ProcessAnnotation: true})
	if err != nil {
		t.Fatal(err)
	}
	return module
}
