package engine

import (
	"strconv"

	"github.com/open-policy-agent/opa/v1/ast"
)

// In Rego a rule whose body holds but whose value is undefined yields nothing, without an error: a denial whose message names a
// missing field vanishes. Tests with full coverage do not find that, because their input has the field.
//
// So every deny, warn and patch rule is compiled a second time, as an instrumented rule (`yields`), which has for each match of the
// body a list of values: an empty list is an undefined value. A match is identified by the rule's number and by the variables that
// connect body and value. Results are read from these rules, so that the rule of each denial is known.
//
//	deny contains $"{op.metadata.name} is busy" if some op in input.facts.unfinished
//
// becomes
//
//	_sallyport_admit_yields contains [0, [op], [v | v = $"{op.metadata.name} is busy"]] if some op in input.facts.unfinished
//
// A second instrumented rule has the body alone (`fires`). It is used to find out what bodies read, and where they stop.

// endpoint is the occasion of an evaluation. Each has its own instrumented rules, because a request is validated and mutated in
// different calls.
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

// outcomeRule is a deny, warn or patch rule; instrumented rules refer to it by its position in Policy.rules.
type outcomeRule struct {
	name     string
	title    string
	reason   string
	remedy   string // of its METADATA; "" if each denial has its own
	final    bool   // it cannot be overridden
	location *ast.Location
}

// instrument returns a module of instrumented rules for each module of a policy, with the same imports.
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
				setRule(instrumented, r, e.yields(), ast.ArrayTerm(index, link, valuesTerm(r.Head.Key))))
			rules = append(rules, outcomeRuleOf(r))
		}
		made[reserved+strconv.Itoa(len(made))+".rego"] = instrumented
	}
	return made, rules
}

func outcomeRuleOf(r *ast.Rule) outcomeRule {
	return outcomeRule{name: headName(r), title: titleIn(r), reason: annotation(r, "reason"), remedy: annotation(r, "remedy"), final: isFinal(r), location: r.Location}
}

// valuesTerm returns the list of a rule's value for one match of its body: empty if it is undefined.
func valuesTerm(key *ast.Term) *ast.Term {
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

// linkingVars returns the variables that the body binds and the value uses: they distinguish the matches of the body.
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

// knownIn returns the names that a module does not bind: those of rules and imports.
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
