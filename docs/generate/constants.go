package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// constant is a string constant of the API that has a type, and what its comment says.
type constant struct {
	name, typ, value string
	// doc is the comment in one line, group the one of the block that it is in.
	doc, group string
}

func readConstants(folder string) ([]constant, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	var all []constant
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			return nil, fmt.Errorf("reading constants: %w", err)
		}
		for _, declaration := range tree.Decls {
			if block, ok := declaration.(*ast.GenDecl); ok && block.Tok == token.CONST {
				all = append(all, constantsOf(block)...)
			}
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no constants in %s", folder)
	}
	return all, nil
}

func constantsOf(block *ast.GenDecl) (all []constant) {
	for _, s := range block.Specs {
		spec, ok := s.(*ast.ValueSpec)
		if !ok || len(spec.Names) != 1 || len(spec.Values) != 1 {
			continue
		}
		typ, typed := spec.Type.(*ast.Ident)
		literal, text := spec.Values[0].(*ast.BasicLit)
		if !typed || !text || literal.Kind != token.STRING {
			continue
		}
		value, err := strconv.Unquote(literal.Value)
		if err != nil {
			continue // the parser has taken it
		}
		c := constant{name: spec.Names[0].Name, typ: typ.Name, value: value, doc: line(spec.Doc.Text())}
		if block.Lparen.IsValid() {
			c.group = line(block.Doc.Text())
		} else {
			c.doc = line(block.Doc.Text())
		}
		all = append(all, c)
	}
	return all
}

func ofType(constants []constant, typ string) (found []constant) {
	for _, c := range constants {
		if c.typ == typ {
			found = append(found, c)
		}
	}
	return found
}

// meaning is what the comment says without the name that Go comments begin with: "ModeWarn lets the request pass" is about
// Warn that it "Lets the request pass".
func (c *constant) meaning() string {
	text := strings.TrimPrefix(c.doc, c.name+" ")
	for _, empty := range []string{"means that ", "means ", "is "} {
		if rest, found := strings.CutPrefix(text, empty); found {
			text = strings.ReplaceAll(rest, ", or that ", ", or ")
			break
		}
	}
	return capital(text)
}

// line makes one line of a comment.
func line(text string) string { return strings.Join(strings.Fields(text), " ") }

func capital(text string) string {
	if first, _, _ := strings.Cut(text, " "); first == "" || strings.Contains(strings.TrimRight(first, ".,;:"), ".") {
		return text // a path is a name, and begins as it does
	}
	return strings.ToUpper(text[:1]) + text[1:]
}
