package engine

import (
	"strconv"

	"github.com/open-policy-agent/opa/v1/ast"
)

// In Rego a rule whose body holds but whose value is undefined yields nothing, without an error: a denial whose message
// names a missing field simply vanishes. Tests at full coverage do not find that, because they have the field.
//
// So every deny, warn and patch rule is compiled once more, as an instrumented rule (`yields`), for which each match of the body has a
// list of values: an empty list is a value that is undefined. Matches are told from each other by the rule's number and by the
// variables through which body and value are connected. Results are taken from there, which also tells which rule a denial came
// from.
//
//	deny contains $"{op.metadata.name} is busy" if some op in input.facts.unfinished
//
// becomes
//
//	_sallyport_admit_yields contains [0, [op], [v | v = $"{op.metadata.name} is busy"]] if some op in input.facts.unfinished
//
// A second instrumented rule has the body alone (`fires`). It tells what bodies read, and how far one got.

// endpoint tells the two occasions on which a policy is evaluated: they have instrumented rules of their own, because a request is
// validated and mutated in different calls.
type endpoint string

const (
	admit  endpoint = "admit"
	mutate endpoint = "patch"
)

func (e endpoint) fires() string  { return reserved + string(e) + "_fires" }
func (e endpoint) yields() string { return reserved + string(e) + "_yields" }

func endpointOf(ruleName string) endpoint {
	if ruleName == rulePatch {
		return mutate
	}
	return admit
}

// outcomeRule is a deny, warn or patch rule; instrumented rules name it by its position in Policy.rules.
type outcomeRule struct {
	name     string
	title    string
	reason   string
	remedy   string // "" if its messages tell it
	final    bool   // no override helps against it
	location *ast.Location
}

// instrument makes a module of instrumented rules for each module of a policy; imports stay those of the original.
func instrument(pkg ast.Ref, modules []*ast.Module) (map[string]*ast.Module, []outcomeRule) {
	var rules []outcomeRule
	made := map[string]*ast.Module{}
	globals := ruleNames(pkg, modules)
	for _, m := range modules {
		if !m.Package.Path.Equal(pkg) {
			continue
		}
		instrumented := &ast.Module{Package: m.Package.Copy(), Imports: m.Imports}
		known := knownIn(m, globals)
		for _, r := range m.Rules {
			name := headName(r)
			if name != ruleDeny && name != ruleWarn && name != rulePatch {
				continue
			}
			index := ast.IntNumberTerm(len(rules))
			link := linkingVars(r, known)
			e := endpointOf(name)
			instrumented.Rules = append(instrumented.Rules,
				setRule(instrumented, r, e.fires(), index.Copy()),
				setRule(instrumented, r, e.yields(), ast.ArrayTerm(index, link, values(r.Head.Key))))
			rules = append(rules, outcomeRuleOf(r))
		}
		made[reserved+strconv.Itoa(len(made))+".rego"] = instrumented
	}
	return made, rules
}

func outcomeRuleOf(r *ast.Rule) outcomeRule {
	return outcomeRule{name: headName(r), title: titleIn(r), reason: annotation(r, "reason"), remedy: annotation(r, "remedy"), final: isFinal(r), location: r.Location}
}

// values is a list of what a rule's value is for one match of its body: empty if it is undefined.
func values(key *ast.Term) *ast.Term {
	v := ast.VarTerm(reserved + "value")
	return ast.ArrayComprehensionTerm(v, ast.NewBody(ast.Equality.Expr(v, key.Copy())))
}

func setRule(in *ast.Module, original *ast.Rule, name string, key *ast.Term) *ast.Rule {
	r := original.Copy()
	r.Module = in
	r.Annotations = nil
	r.Head = &ast.Head{
		Name: ast.Var(name), Reference: ast.Ref{ast.VarTerm(name)}, Key: key, Location: original.Head.Location,
	}
	return r
}

// linkingVars are the variables that the body binds and the value uses: one match of the body is told from another by them.
func linkingVars(r *ast.Rule, known ast.VarSet) *ast.Term {
	of := ast.VarVisitorParams{SkipRefCallHead: true, SkipWildcardVars: true}
	used := ast.NewVarVisitor().WithParams(of)
	used.Walk(r.Head.Key)
	of.SkipClosures = true
	bound := ast.NewVarVisitor().WithParams(of)
	bound.Walk(r.Body)
	var link []*ast.Term
	for _, v := range used.Vars().Intersect(bound.Vars()).Diff(known).Diff(ast.ReservedVars).Sorted() {
		link = append(link, ast.NewTerm(v))
	}
	return ast.ArrayTerm(link...)
}

// knownIn are the names that a module does not bind: those of rules, and of what it imports.
func knownIn(m *ast.Module, globals ast.VarSet) ast.VarSet {
	known := globals.Copy()
	for _, i := range m.Imports {
		known.Add(i.Name())
	}
	return known
}

func ruleNames(pkg ast.Ref, modules []*ast.Module) ast.VarSet {
	names := ast.NewVarSet()
	for _, m := range modules {
		if m.Package.Path.Equal(pkg) {
			for _, r := range m.Rules {
				names.Add(ast.Var(headName(r)))
			}
		}
	}
	return names
}
