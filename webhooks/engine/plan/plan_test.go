package plan

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/ir"
)

// Breaks within an iteration, as OPA's planner does not make them yet: none, of the iteration, and of the block around it.
func TestBreaksOfIterations(t *testing.T) {
	const key, value, seen, result = 2, 3, 4, 5
	text := func(i int) ir.Operand { return ir.Operand{Value: ir.StringIndex(i)} }
	variable := func(x ir.Local) ir.Operand { return ir.Operand{Value: x} }
	for breaks, want := range []string{`{{"seen": [1, 2], "went on": true}}`, `{{"seen": [1], "went on": true}}`, `{{"seen": [1]}}`} {
		scan := &ir.ScanStmt{Source: ir.Input, Key: key, Value: value, Block: &ir.Block{Stmts: []ir.Stmt{
			&ir.ArrayAppendStmt{Value: variable(value), Array: seen}, &ir.BreakStmt{Index: uint32(breaks)},
		}}}
		insert := func(name int, v ir.Operand) ir.Stmt {
			return &ir.ObjectInsertStmt{Key: text(name), Value: v, Object: result}
		}
		within := &ir.BlockStmt{Blocks: []*ir.Block{{Stmts: []ir.Stmt{scan, insert(1, ir.Operand{Value: ir.Bool(true)})}}}}
		program, err := lower(&ir.Policy{
			Static: &ir.Static{Strings: []*ir.StringConst{{Value: "seen"}, {Value: "went on"}}}, Funcs: &ir.Funcs{},
			Plans: &ir.Plans{Plans: []*ir.Plan{{Blocks: []*ir.Block{{Stmts: []ir.Stmt{
				&ir.MakeArrayStmt{Target: seen}, &ir.MakeObjectStmt{Target: result}, within, insert(0, variable(seen)), &ir.ResultSetAddStmt{Value: result},
			}}}}}},
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		found, err := program.Run(t.Context(), ast.MustParseTerm("[1, 2]"))
		if got := setOf(found); err != nil || got != want {
			t.Errorf("%d: got %s, %v, want %s", breaks, got, err, want)
		}
	}
}

// A program ends soon after half of its time is over, and when its caller is gone.
func TestProgramsEnd(t *testing.T) {
	modules := ast.MustCompileModules(map[string]string{"p.rego": `package p

p if { some a in input; some b in input; some c in input; some d in input; a == b; b == c; c == d; d == 0 }
`})
	query, err := modules.QueryCompiler().Compile(ast.MustParseBody("data.p.p = x"))
	if err != nil {
		t.Fatal(err)
	}
	program, err := Compile(t.Context(), modules, query, ast.MustParseTerm("{}"))
	if err != nil {
		t.Fatal(err)
	}
	many := make([]*ast.Term, 100_000)
	for i := range many {
		many[i] = ast.InternedTerm(1)
	}
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if found, err := program.Run(soon, ast.ArrayTerm(many...)); !errors.Is(err, errSlow) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, %v", found, err)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if found, err := program.Run(gone, ast.ArrayTerm(many...)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, %v", found, err)
	}
	if found, err := program.Run(t.Context(), ast.ArrayTerm(many[:2]...)); err != nil || len(found) != 0 {
		t.Errorf("later: got %v, %v", found, err)
	}
}
