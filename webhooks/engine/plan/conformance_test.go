package plan

import (
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/test/cases"
	"github.com/open-policy-agent/opa/v1/topdown"

	"sallyport.dev/sallyport/webhooks/engine/builtins"
)

// OPA's own cases, each evaluated by its program and by topdown. A program must give what topdown gives, or nothing at all.
func TestConformance(t *testing.T) {
	set, err := cases.Load(filepath.Join(moduleDir(t, "github.com/open-policy-agent/opa"), "v1/test/cases/testdata/v1"))
	if err != nil {
		t.Fatal(err)
	}
	ran, left := 0, map[string]int{}
	for _, c := range set.Sorted().Cases {
		q, reason := prepare(c)
		if reason == "" {
			reason = q.compare(t, c)
		}
		if reason == "" {
			ran++
			continue
		}
		left[reason]++
	}
	for _, reason := range slices.Sorted(maps.Keys(left)) {
		t.Logf("%4d left out: %s", left[reason], reason)
	}
	t.Logf("%4d of %d cases ran", ran, len(set.Cases))
	if ran < 1500 {
		t.Errorf("only %d cases ran", ran)
	}
}

func moduleDir(t *testing.T, module string) string {
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(dir))
}

type compiledCase struct {
	modules *ast.Compiler
	query   ast.Body
	input   *ast.Term
	data    map[string]any
}

// prepare compiles a case, or tells why policies cannot have it.
func prepare(c cases.TestCase) (q compiledCase, reason string) {
	modules := map[string]*ast.Module{}
	for i, text := range c.Modules {
		name := fmt.Sprintf("test-%d.rego", i)
		m, err := ast.ParseModuleWithOpts(name, text, ast.ParserOptions{Capabilities: builtins.Capabilities()})
		if err != nil {
			return q, "a feature of the language that policies do not have"
		}
		modules[name] = m
	}
	q.modules = ast.NewCompiler().WithCapabilities(builtins.Capabilities())
	if q.modules.Compile(modules); q.modules.Failed() {
		return q, "a builtin that policies may not call"
	}
	var err error
	if q.query, err = q.modules.QueryCompiler().Compile(ast.MustParseBody(c.Query)); err != nil {
		return q, "a builtin that policies may not call"
	}
	if c.InputTerm != nil {
		q.input = ast.MustParseTerm(*c.InputTerm)
	} else if c.Input != nil {
		q.input = ast.NewTerm(ast.MustInterfaceToValue(*c.Input))
	}
	q.data = map[string]any{}
	if c.Data != nil {
		q.data = *c.Data
	}
	return q, ""
}

// compare evaluates both ways.
func (q compiledCase) compare(t *testing.T, c cases.TestCase) (reason string) {
	program, err := Compile(t.Context(), q.modules, q.query, ast.NewTerm(ast.MustInterfaceToValue(q.data)))
	var unsupported *Unsupported
	switch {
	case errors.As(err, &unsupported):
		return unsupported.What
	case err != nil:
		return "no plan: " + err.Error()
	}
	store := inmem.NewFromObject(q.data)
	txn, err := store.NewTransaction(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	slow := topdown.NewQuery(q.query).WithCompiler(q.modules).WithStore(store).WithTransaction(txn).WithStrictBuiltinErrors(true)
	if q.input != nil {
		slow = slow.WithInput(q.input)
	}
	want, wantErr := slow.Run(t.Context())
	ctx, release := builtins.Metered(t.Context())
	defer release()
	got, err := program.Run(ctx, q.input)
	switch {
	case err != nil && wantErr != nil:
		return ""
	case err != nil:
		return "a program has no result where topdown has one: " + err.Error()
	case wantErr != nil:
		t.Errorf("%s: got %v, topdown fails: %v", c.Note, got, wantErr)
	case setOf(got) != setOf(want):
		t.Errorf("%s:\ngot  %s\nwant %s", c.Note, setOf(got), setOf(want))
	}
	return ""
}

func setOf(results topdown.QueryResultSet) string {
	all := ast.NewSet()
	for _, r := range results {
		o := ast.NewObject()
		for name, v := range r {
			if !strings.HasPrefix(string(name), "__localq") { // it is of no use
				o.Insert(ast.StringTerm(string(name)), v)
			}
		}
		all.Add(ast.NewTerm(o))
	}
	return all.String()
}
