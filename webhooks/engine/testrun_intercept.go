package engine

import (
	"errors"
	"fmt"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/types"
)

// Tests read the values of a policy's rules directly and not through the engine, which may reject them. So while tests run, the
// values pass through the engine: deny, warn, patch and outcome are renamed, as the instrumented rules are, and under their own
// names are calls that return the renamed rules' values after the engine has made a decision of them. The same is done for each
// fact, of which the engine makes a query:
//
//	deny := internal.sallyport_said("deny", _sallyport_said_deny, [v | v := valid_input], [o | o := input.request.object])
//	facts.vm := internal.sallyport_said("facts.vm", _sallyport_said_facts.vm, [], [])

const (
	saidName = "internal.sallyport_said"
	// saidPrefix is the prefix of renamed rules.
	saidPrefix = reserved + "said_"
)

var (
	saidFunction = &rego.Function{Name: saidName, Decl: types.NewFunction(types.Args(types.S, types.A, types.A, types.A), types.A)}
	saidBuiltin  = map[string]*ast.Builtin{saidName: {Name: saidName, Decl: saidFunction.Decl}}
)

// interceptor checks the values of a policy's rules.
type interceptor struct {
	modules []*ast.Module // the policy's, rewritten
	rules   outcomeRules
	outcome shape
	reads   []Read
}

// intercept rewrites a policy's rules to pass through an interceptor.
func intercept(src Source, modules []*ast.Module) *interceptor {
	i := &interceptor{outcome: outcomeShape(src.Outcomes), reads: src.Reads}
	pkg := packageRef(src.Package)
	globals := ruleNames(pkg, modules)
	calls := map[string]string{}
	for _, m := range modules {
		if !m.Package.Path.Equal(pkg) {
			i.modules = append(i.modules, m)
			continue
		}
		heard := m.Copy()
		heard.Rules = nil
		known := knownIn(m, globals)
		for _, r := range m.Rules {
			switch name := headName(r); {
			case (name == ruleDeny || name == ruleWarn || name == rulePatch) && isSetRule(r):
				index := ast.IntNumberTerm(len(i.rules))
				key := ast.ArrayTerm(index, linkingVars(r, known), valuesTerm(r.Head.Key))
				i.rules = append(i.rules, outcomeRuleOf(r))
				r = setRule(heard, r, saidPrefix+name, key)
				calls[name] = fmt.Sprintf("[v | v := data.%s.%s], [o | o := input.request.object]", src.Package, ruleValid)
			case name == ruleOutcome && !reads(modules, pkg, ruleOutcome):
				r = renamed(heard, r, saidPrefix+name)
				calls[name] = "[], []"
			case name == ruleFacts && len(r.Head.Ref()) == 2 && r.Head.Ref().IsGround():
				calls[r.Head.Ref().String()] = "[], []"
				r = renamed(heard, r, saidPrefix+name)
			}
			heard.Rules = append(heard.Rules, r)
		}
		i.modules = append(i.modules, heard)
	}
	for name, rest := range calls {
		text := fmt.Sprintf("package %s\n\n%s := %s(%q, %s, %s)\n", src.Package, name, saidName, name, saidPrefix+name, rest)
		m := ast.MustParseModuleWithOpts(text, ast.ParserOptions{})
		m.Package.Location = &ast.Location{File: reserved + name + ".rego"}
		for _, r := range m.Rules {
			ast.WalkNodes(r, func(n ast.Node) bool {
				n.SetLoc(&ast.Location{}) // in no file, so that it does not count for coverage
				return false
			})
		}
		i.modules = append(i.modules, m)
	}
	return i
}

// renamed returns a copy of a rule with another first part of its name.
func renamed(in *ast.Module, original *ast.Rule, name string) *ast.Rule {
	r := original.Copy()
	r.Module = in
	r.Head.SetRef(append(ast.Ref{ast.VarTerm(name)}, r.Head.Ref()[1:]...))
	return r
}

// reads reports whether a policy's own text refers to a rule of the package.
func reads(modules []*ast.Module, pkg ast.Ref, name string) (found bool) {
	full := pkg.Append(ast.StringTerm(name))
	look := func(t *ast.Term) bool {
		ref, _ := t.Value.(ast.Ref)
		found = found || ref.HasPrefix(full) || t.Value.Compare(ast.Var(name)) == 0
		return found
	}
	for _, m := range modules {
		for _, r := range m.Rules {
			for ; r != nil; r = r.Else {
				ast.WalkTerms(r.Body, look)
				for _, said := range []*ast.Term{r.Head.Key, r.Head.Value} {
					if said != nil {
						ast.WalkTerms(said, look)
					}
				}
			}
		}
	}
	return found
}

// option returns the builtin that checks values; values that the engine rejects are added to unusable.
func (i *interceptor) option(unusable *[]error) func(*rego.Rego) {
	return rego.FunctionDyn(saidFunction, func(_ rego.BuiltinContext, operands []*ast.Term) (*ast.Term, error) {
		said, err := i.checkCall(operands)
		if err != nil {
			*unusable = append(*unusable, err)
		}
		return said, nil
	})
}

// checkCall implements the builtin.
func (i *interceptor) checkCall(operands []*ast.Term) (*ast.Term, error) {
	return i.check(text(operands[0]), operands[1], onlyElement(operands[2]), onlyElement(operands[3]))
}

// check returns the values of a rule after making a decision of them, as for a request.
func (i *interceptor) check(name string, said, valid, object *ast.Term) (*ast.Term, error) {
	if name == ruleOutcome {
		return said, i.outcome.check(name, said)
	}
	if strings.HasPrefix(name, ruleFacts) {
		return said, i.checkQuery(text(ast.MustParseRef(name)[1]), said)
	}
	understood := valid != nil && ast.Boolean(true).Equal(valid.Value)
	matches, all := ast.NewSet(), ast.NewSet()
	for _, t := range set(said).Slice() {
		values := t.Value.(*ast.Array).Elem(2).Value.(*ast.Array)
		values.Foreach(all.Add)
		if values.Len() > 0 || understood { // otherwise a request would have failed before
			matches.Add(t)
		}
	}
	decision, err := i.rules.decision(matches)
	if err == nil && understood && object != nil && len(decision.Patches) > 0 {
		err = applies(object, decision.Patches)
	}
	return ast.NewTerm(all), err
}

// checkQuery returns why a query is invalid for any request. A query from input that the policy does not understand is left to
// valid_input.
func (i *interceptor) checkQuery(fact string, said *ast.Term) error {
	_, err := permittedQuery(fact, said, i.reads)
	var wrong *Error
	if errors.As(err, &wrong) && wrong.Cause == InputNotUnderstood {
		return nil
	}
	return err
}

func applies(object *ast.Term, patches []Patch) error {
	text, err := valueOf(object).MarshalJSON()
	if err != nil {
		return err
	}
	if _, _, err = Apply(text, patches); err != nil {
		return fmt.Errorf("patch does not apply to input.request.object: %w", err)
	}
	return nil
}
