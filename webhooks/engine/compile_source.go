package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"sallyport.dev/sallyport/webhooks/engine/builtins"
)

// Source is everything that a policy is compiled from.
type Source struct {
	// Name is the name of the policy, for messages.
	Name string
	// Package is the package of the outcome rules, dotted and without "data": "sallyport.operations.supersede".
	Package string
	// Modules are the policy's modules, all in Package or below it.
	Modules []Module
	// Libraries are modules that Modules may import; those that are not imported do not become part of the policy.
	Libraries []Module
	// Tests are modules in packages named after what they test with _test appended; they are not part of the revision.
	Tests []Module
	// Parameters is the JSON object that the policy sees as data.parameters; empty means {}.
	Parameters []byte
	// Schema is the JSON Schema of the input document; empty means any. A reference that it does not allow is an error.
	Schema []byte
	// Reads lists the kinds that facts may query.
	Reads []Read
	// Outcomes are the members that an outcome may have, each a set of strings; nil allows any outcome. They belong to the caller,
	// not to the policy, and are not part of the revision.
	Outcomes []string `json:"-"`
	// Types returns the type of the objects of a kind, never nil. If Types is nil, types are not checked. They belong to the caller.
	Types func(apiVersion, kind string) *Type `json:"-"`
	// Timeout limits one decision: facts, evaluation and the confirmation of a denial.
	Timeout time.Duration
}

// Module is one Rego file.
type Module struct{ Name, Source string }

// Read is a kind that facts may query, and the fields that they may select by.
type Read struct {
	APIVersion, Kind string
	Indexes          []string
	// Live makes every fact of the kind be read from the API server, so that the kind is not cached.
	Live bool
}

// CompileError is one problem with a policy's text. Row and Col count from one; zero means the policy as a whole.
type CompileError struct {
	File     string
	Row, Col int
	Message  string
	// Contract reports whether the text compiles as Rego but violates the contract between policies and Sallyport.
	Contract bool
	// Parameters reports whether the error is in the parameters rather than the text.
	Parameters bool
}

// Error returns file:line:column: message.
func (e CompileError) Error() string {
	if e.Row == 0 {
		return fmt.Sprintf("%s: %s", e.File, e.Message)
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Row, e.Col, e.Message)
}

// CompileErrors lists all errors of a policy, a line each.
type CompileErrors []CompileError

// Error returns a line for each error.
func (es CompileErrors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

func (es *CompileErrors) add(loc *ast.Location, format string, args ...any) {
	e := CompileError{Message: fmt.Sprintf(format, args...)}
	if loc != nil {
		e.File, e.Row, e.Col = loc.File, loc.Row, loc.Col
	}
	*es = append(*es, e)
}

func (es *CompileErrors) addOPA(errs ast.Errors) {
	for _, e := range errs {
		name, undefined := strings.CutPrefix(e.Message, "undefined function ")
		if use := builtins.Withheld(name); undefined && use != "" {
			e.Message = fmt.Sprintf("undefined function %s: Sallyport withholds this builtin; use %s", name, use)
		}
		es.add(e.Location, "%s", e.Message+have(e))
	}
}

// have returns what the error of a type has and wants, such as " (have: (string, string, ???); want: ...)", or "".
func have(e *ast.Error) string {
	if e.Code != ast.TypeErr || e.Details == nil {
		return ""
	}
	var parts []string
	for _, line := range e.Details.Lines() {
		if line = strings.Join(strings.Fields(line), " "); line != "" {
			parts = append(parts, line)
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, "; ") + ")"
}

// ofContract marks errors as violations of the contract and removes duplicates: several rules can call the faulty function.
func (es CompileErrors) ofContract() CompileErrors {
	seen := map[CompileError]bool{}
	var each CompileErrors
	for _, e := range es {
		if e.Contract = true; !seen[e] {
			seen[e] = true
			each = append(each, e)
		}
	}
	return each
}

// orNil keeps an empty list from becoming a non-nil error.
func (es CompileErrors) orNil() error {
	if len(es) == 0 {
		return nil
	}
	return es
}

// parse parses modules with their annotations. It continues after a module with errors, so that all are reported at once.
func parse(modules []Module) ([]*ast.Module, CompileErrors) {
	var errs CompileErrors
	var parsed []*ast.Module
	options := ast.ParserOptions{ProcessAnnotation: true, Capabilities: builtins.Capabilities()}
	for _, m := range modules {
		module, err := ast.ParseModuleWithOpts(m.Name, m.Source, options)
		var located ast.Errors
		switch {
		case err == nil:
			if at := tooDeep(module); at != nil {
				errs.add(at, "comprehensions, templates and every are nested more than %d deep: move them into rules or functions", mostNested)
				continue
			}
			if at := builtins.TooLarge(module); at != nil {
				errs.add(at, "%v", builtins.ErrNumber)
				continue
			}
			parsed = append(parsed, module)
		case errors.As(err, &located):
			errs.addOPA(located)
		default:
			errs = append(errs, CompileError{File: m.Name, Message: err.Error()})
		}
	}
	return parsed, errs
}

// imported returns the library modules that modules reach, directly or through other libraries.
func imported(modules, libraries []*ast.Module) []*ast.Module {
	var picked []*ast.Module
	seen := map[*ast.Module]bool{}
	for queue := slices.Clone(modules); len(queue) > 0; queue = queue[1:] {
		walkData(queue[0], func(ref ast.Ref) {
			for _, library := range libraries {
				if !seen[library] && ref.HasPrefix(library.Package.Path) {
					seen[library] = true
					picked = append(picked, library)
					queue = append(queue, library)
				}
			}
		})
	}
	return picked
}

// unresolved returns errors for references into data that nothing defines. OPA treats a missing package as an empty one, so that a
// rule with such a reference would never apply.
func unresolved(modules, libraries []*ast.Module) CompileErrors {
	var errs CompileErrors
	present := []ast.Ref{dataParameters}
	for _, m := range slices.Concat(modules, libraries) {
		present = append(present, m.Package.Path)
	}
	for _, m := range slices.Concat(modules, libraries) {
		walkData(m, func(ref ast.Ref) {
			if !slices.ContainsFunc(present, ref.HasPrefix) {
				errs.add(ref[0].Location, "%s is neither a parameter nor in this policy or a library", ref)
			}
		})
	}
	return errs
}

// unknownRules returns errors for references to rules that a package does not have. They would be undefined, so that the referring
// rule would never apply.
func unknownRules(compiled *ast.Compiler) CompileErrors {
	var errs CompileErrors
	for _, m := range compiled.Modules {
		walkData(m, func(ref ast.Ref) {
			for _, of := range compiled.Modules {
				depth := len(of.Package.Path)
				if len(ref) <= depth || !ref.HasPrefix(of.Package.Path) {
					continue
				}
				if rule := ref[:depth+1]; rule.IsGround() && len(compiled.GetRulesWithPrefix(rule)) == 0 {
					errs.add(ref[0].Location, "%s has no rule %s", packageName(of), ref[depth])
				}
				return
			}
		})
	}
	return errs
}

// walkData visits the references into data in imports and rules, without the name of the package itself.
func walkData(m *ast.Module, visit func(ast.Ref)) {
	look := func(ref ast.Ref) bool {
		if ref.HasPrefix(ast.DefaultRootRef) {
			visit(ref)
		}
		return false
	}
	for _, i := range m.Imports {
		ast.WalkRefs(i, look)
	}
	for _, r := range m.Rules {
		ast.WalkRefs(r, look)
	}
}
