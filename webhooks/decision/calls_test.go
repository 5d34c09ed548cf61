package decision

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// order is that in which the files of the package may use each other: each its own line and those below it.
var order = [][]string{
	{"arbitrate.go", "admits.go", "audit.go"},
	{"decider.go"},
	{"response.go", "trace.go"},
	{"override_command.go", "opening.go", "override.go", "patch.go", "secrets.go"},
	{"reads.go"},
	{"evaluation.go"},
	{"decision.go", "denial.go"},
	{"question.go"},
	{"review.go"},
	{"review_request.go"},
	{"doc.go"},
}

func rank(file string) int {
	return slices.IndexFunc(order, func(line []string) bool { return slices.Contains(line, file) })
}

// Calls run one way: from who asks to the gate, and to the decision from what asks for it and from what is made of it.
func TestCallsRunOneWay(t *testing.T) {
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	files := token.NewFileSet()
	var parsed []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		if rank(name) < 0 {
			t.Errorf("%s has no place in the order", name)
		}
		file, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, file)
	}
	uses := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: nothing{}, Error: func(error) {}} // what is imported does not matter
	checked, _ := config.Check("decision", files, parsed, uses)
	seen := 0
	for name, object := range uses.Uses {
		if object.Pkg() != checked || !object.Pos().IsValid() {
			continue
		}
		from, to := files.Position(name.Pos()), files.Position(object.Pos())
		if from.Filename == to.Filename {
			continue
		}
		seen++
		if variable, ok := object.(*types.Var); ok && variable.IsField() { // what is held is not called
			continue
		}
		if rank(from.Filename) > rank(to.Filename) {
			t.Errorf("%s uses %s of %s, which is above it", from, name.Name, to.Filename)
		}
	}
	if seen < 100 {
		t.Errorf("only %d uses were found, which is no test", seen)
	}
}

// nothing imports packages without anything in them.
type nothing struct{}

func (nothing) Import(path string) (*types.Package, error) {
	p := types.NewPackage(path, path[strings.LastIndex(path, "/")+1:])
	p.MarkComplete()
	return p, nil
}
