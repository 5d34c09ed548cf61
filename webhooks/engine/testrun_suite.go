package engine

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/cover"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/tester"
	"github.com/open-policy-agent/opa/v1/topdown"
)

const (
	// testTimeout limits a single test. It is long, so that results do not depend on the machine's speed.
	testTimeout = 2 * time.Minute
	// maxPrinted limits the recorded output of a test.
	maxPrinted = 64 << 10
)

// suite runs compiled tests. OPA's own runner records, for a table test, every local variable at every step, which takes
// several times the time of the decisions that they test; only the names of the rows are needed here.
type suite struct {
	compiler *ast.Compiler
	store    storage.Store
	txn      storage.Transaction
	coverage *cover.Cover // nil if coverage is not measured
	heard    *interceptor
	tests    []test
}

// test is a compiled rule named test_....
type test struct {
	name     string // package.rule
	query    string
	location *ast.Location
	table    bool
}

// newSuite compiles everything as OPA's runner does, which instruments the rows of tables and makes the names of tests unique.
func newSuite(all, tests []*ast.Module, heard *interceptor) (*suite, error) {
	ctx := context.Background()
	compiler := newCompiler(saidBuiltin[saidName], rowBuiltin)
	s := &suite{compiler: compiler.WithEnablePrintStatements(true), store: inmem.New(), heard: heard}
	runner := tester.NewRunner().SetCompiler(s.compiler).SetModules(byName(all)).SetStore(s.store).Filter("^$")
	nothing, err := runner.RunTests(ctx, nil)
	if err != nil {
		return nil, err
	}
	for range nothing { // no test has an empty name
	}
	s.recordRows()
	if s.txn, err = s.store.NewTransaction(ctx); err != nil {
		return nil, err
	}
	files := map[string]bool{}
	for _, m := range tests {
		files[m.Package.Location.File] = true
	}
	for _, m := range s.compiler.Modules {
		for _, r := range m.Rules {
			if ref, ok := testRef(r); ok && files[m.Package.Location.File] {
				s.tests = append(s.tests, test{
					name: packageName(m) + "." + ref.String(), query: m.Package.Path.Extend(ref).String(),
					location: r.Location, table: r.Head.DocKind() == ast.PartialObjectDoc,
				})
			}
		}
	}
	slices.SortFunc(s.tests, func(a, b test) int {
		return cmp.Or(a.location.Compare(b.location), strings.Compare(a.name, b.name))
	})
	return s, nil
}

// testRef returns the part of a test rule's head that names the test: test_x for test_x[row].
func testRef(r *ast.Rule) (ast.Ref, bool) {
	ref := r.Head.Ref().GroundPrefix()
	for i, t := range ref {
		var name string
		switch v := t.Value.(type) {
		case ast.Var:
			name = string(v)
		case ast.String:
			name = string(v)
		}
		if strings.HasPrefix(name, tester.TestPrefix) {
			return ref[:i+1], true
		}
	}
	return nil, false
}

// testFailed is the problem of a test that is not true.
const testFailed = "failed"

// run runs one test.
func (s *suite) run(ctx context.Context, t test) TestResult {
	began := time.Now()
	result := TestResult{Name: t.name, Place: t.location.String()}
	ctx, cancel := context.WithTimeout(ctx, testTimeout)
	defer cancel()
	printed := &printer{}
	seen := &rows{}
	var unusable []error
	value, err := s.evaluate(ctx, t, printed, seen, nil, s.heard.option(&unusable))
	result.Output, result.Took = printed.String(), time.Since(began)
	switch {
	case err != nil:
		result.Problem = err.Error()
	case len(unusable) > 0:
		result.Problem = "a request would fail where this test passes: " + unusable[0].Error()
	case !t.table && value != true:
		result.Problem = testFailed
	case t.table:
		result.Problem, result.Cases = seen.evaluate(value)
	}
	if result.Problem == testFailed {
		result.Output = s.differences(ctx, t, result.Cases) + result.Output
	}
	return result
}

// evaluate returns the value of a test rule; nil if it is undefined. An error of a builtin fails the test, too. The tracer may be
// nil.
func (s *suite) evaluate(ctx context.Context, t test, printed *printer, seen *rows, tracer topdown.QueryTracer, more func(*rego.Rego)) (any, error) {
	var failures []topdown.Error
	prepared, err := rego.New(
		rego.Store(s.store), rego.Transaction(s.txn), rego.Compiler(s.compiler), rego.Query(t.query),
		rego.PrintHook(topdown.NewPrintHook(printed)), rego.BuiltinErrorList(&failures), seen.option(), more,
	).PrepareForEval(ctx)
	if err != nil {
		return nil, err
	}
	options := []rego.EvalOption{rego.EvalTransaction(s.txn)}
	if tracer != nil {
		options = append(options, rego.EvalQueryTracer(tracer))
	}
	if s.coverage != nil {
		options = append(options, rego.EvalQueryTracer(s.coverage))
	}
	results, err := prepared.Eval(ctx, options...)
	switch {
	case err != nil:
		return nil, err
	case len(failures) == 1:
		return nil, &failures[0]
	case len(failures) > 1:
		return nil, fmt.Errorf("%v", failures)
	case len(results) == 0:
		return nil, nil
	}
	return results[0].Expressions[0].Value, nil
}

// rows records the rows of a table that began.
type rows struct{ names []string }

// rowBuiltin is called by a table at the beginning of each row, in place of OPA's builtin, which reports rows only to tracers: tracing takes
// half as long again.
var rowBuiltin = &ast.Builtin{Name: "internal.sallyport_row", Decl: ast.InternalTestCase.Decl}

// recordRows makes the compiled tables call rowBuiltin.
func (s *suite) recordRows() {
	for _, m := range s.compiler.Modules {
		ast.WalkExprs(m, func(e *ast.Expr) bool {
			if e.IsCall() && e.Operator().Equal(ast.InternalTestCase.Ref()) {
				e.SetOperator(ast.NewTerm(rowBuiltin.Ref()))
			}
			return false
		})
	}
}

// option returns the implementation of rowBuiltin, which also reports the row to tracers.
func (r *rows) option() func(*rego.Rego) {
	report := topdown.GetBuiltin(ast.InternalTestCase.Name)
	return rego.FunctionDyn(&rego.Function{Name: rowBuiltin.Name, Decl: rowBuiltin.Decl}, func(ctx rego.BuiltinContext, operands []*ast.Term) (*ast.Term, error) {
		r.names = append(r.names, rowOf(operands[0]))
		return ast.BooleanTerm(true), report(ctx, operands, func(*ast.Term) error { return nil })
	})
}

// rowOf returns the name of the row of a table that begins: its keys.
func rowOf(keys *ast.Term) string {
	var path []string
	if names, ok := keys.Value.(*ast.Array); ok {
		names.Foreach(func(name *ast.Term) { path = append(path, keyText(name)) })
	}
	return strings.Join(path, "/")
}

// keyText returns a key of the value of the table: a string unquoted, other values as JSON.
func keyText(t *ast.Term) string {
	if name, ok := t.Value.(ast.String); ok {
		return string(name)
	}
	encoded, err := valueOf(t).MarshalJSON()
	if err != nil {
		return t.String()
	}
	return string(encoded)
}

// evaluate returns the problem of a table, and the rows that failed: those that are not true in its value.
func (r *rows) evaluate(value any) (problem string, fell []string) {
	passed, fallen := map[string]bool{}, map[string]bool{}
	classify("", value, passed, fallen)
	for _, name := range r.names {
		if !passed[name] {
			fallen[name] = true
		}
	}
	for name := range fallen {
		fell = append(fell, name)
	}
	slices.Sort(fell)
	switch {
	case len(passed)+len(fallen) == 0:
		return "the table has no rows", nil
	case len(fell) > 0:
		return testFailed, fell
	}
	return "", nil
}

// classify divides the rows of a table's value into those that are true and all others.
func classify(name string, value any, passed, fallen map[string]bool) {
	object, nested := value.(map[string]any)
	switch {
	case nested:
		for key, inner := range object {
			classify(strings.TrimPrefix(name+"/"+key, "/"), inner, passed, fallen)
		}
	case value == true:
		passed[name] = true
	case name != "" || value != nil:
		fallen[name] = true
	}
}

// printer keeps the beginning of the output.
type printer struct{ bytes.Buffer }

// Write never fails; it drops what exceeds the limit.
func (p *printer) Write(text []byte) (int, error) {
	if room := maxPrinted - p.Len(); room > 0 {
		p.Buffer.Write(text[:min(len(text), room)])
	}
	return len(text), nil
}
