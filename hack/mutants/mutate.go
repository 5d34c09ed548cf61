package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"

	rego "github.com/open-policy-agent/opa/v1/ast"
)

// swaps are the operators that take each other's place: one moves a boundary, the other negates.
var swaps = map[string][]string{
	"==": {"!="}, "!=": {"=="}, "<": {"<=", ">="}, "<=": {"<", ">"}, ">": {">=", "<="}, ">=": {">", "<"},
	"&&": {"||"}, "||": {"&&"}, "true": {"false"}, "false": {"true"},
}

// goEdits are the changes of a file of Go. There are none of one that is generated, and of one that only tests use.
func goEdits(name string, source []byte) ([]edit, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	if ast.IsGenerated(file) {
		return nil, nil
	}
	for _, spec := range file.Imports {
		if spec.Path.Value == `"testing"` {
			return nil, nil
		}
	}
	var edits []edit
	at := func(p token.Pos) int { return files.Position(p).Offset }
	replace := func(from, to token.Pos, texts ...string) {
		for _, text := range texts {
			edits = append(edits, edit{at(from), at(to), text})
		}
	}
	condition := func(x ast.Expr) { // stays written, so that its variables are used
		text := string(source[at(x.Pos()):at(x.End())])
		replace(x.Pos(), x.End(), "true || ("+text+")", "false && ("+text+")")
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			replace(n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), swaps[n.Op.String()]...)
		case *ast.UnaryExpr:
			if n.Op == token.NOT {
				replace(n.Pos(), n.X.Pos(), "")
			}
		case *ast.Ident:
			if n.Name == "true" || n.Name == "false" {
				replace(n.Pos(), n.End(), swaps[n.Name]...)
			}
		case *ast.BasicLit:
			if i, err := strconv.Atoi(n.Value); n.Kind == token.INT && err == nil {
				replace(n.Pos(), n.End(), strconv.Itoa(i+1))
			}
		case *ast.IfStmt:
			condition(n.Cond)
		case *ast.SwitchStmt:
			if n.Tag == nil {
				for _, clause := range n.Body.List {
					for _, x := range clause.(*ast.CaseClause).List {
						condition(x)
					}
				}
			}
		case *ast.ExprStmt:
			if call, ok := n.X.(*ast.CallExpr); ok && !logs(call) {
				replace(n.Pos(), n.End(), "")
			}
		}
		return true
	})
	return edits, nil
}

// logs says whether a call writes to the log, which no test has to notice.
func logs(call *ast.CallExpr) bool {
	method, ok := call.Fun.(*ast.SelectorExpr)
	return ok && (method.Sel.Name == "Info" || method.Sel.Name == "Error")
}

// regoToken matches comments and strings whole, so that nothing within them is a token.
var regoToken = regexp.MustCompile("#[^\n]*|\"(?:\\\\.|[^\"\\\\\n])*\"|`[^`]*`|==|!=|<=|>=|<|>|\\b(?:true|false|[0-9]+)\\b|\\bnot +")

// regoEdits are the changes of a module of Rego: tokens, and expressions of bodies that are not asked any more. The expression of a
// rule without a body is its value.
func regoEdits(name string, source []byte) ([]edit, error) {
	module, err := rego.ParseModuleWithOpts(name, string(source), rego.ParserOptions{})
	if err != nil {
		return nil, err
	}
	var edits []edit
	for _, at := range regoToken.FindAllIndex(source, -1) {
		text := string(source[at[0]:at[1]])
		if i, err := strconv.Atoi(text); err == nil {
			edits = append(edits, edit{at[0], at[1], strconv.Itoa(i + 1)})
		}
		for _, other := range swaps[text] {
			edits = append(edits, edit{at[0], at[1], other})
		}
		if strings.HasPrefix(text, "not ") {
			edits = append(edits, edit{at[0], at[1], ""})
		}
	}
	rego.WalkBodies(module, func(body rego.Body) bool {
		for _, x := range body {
			from, text := x.Location.Offset, x.Location.Text
			_, constant := x.Terms.(*rego.Term)
			if constant && string(text) == "true" || !bytes.HasPrefix(source[from:], text) || len(text) == 0 {
				continue
			}
			edits = append(edits, edit{from, from + len(text), "true"})
		}
		return false
	})
	return edits, nil
}

// edits of a file, by its kind.
func edits(name string, source []byte) (all []edit, err error) {
	if strings.HasSuffix(name, ".rego") {
		all, err = regoEdits(name, source)
	} else {
		all, err = goEdits(name, source)
	}
	if err != nil {
		return nil, fmt.Errorf("parsing %s: %w", name, err)
	}
	return all, nil
}
