package engine

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Names of the contract's rules.
const (
	ruleFacts   = "facts"
	ruleValid   = "valid_input"
	ruleDeny    = "deny"
	ruleWarn    = "warn"
	rulePatch   = "patch"
	ruleOutcome = "outcome"
	// ruleParameters is evaluated once, at compilation, so that an error in a table is reported to its author and not to
	// requesters.
	ruleParameters = "valid_parameters"
)

// reserved is the prefix of rules that the engine adds to a policy's package.
const reserved = "_sallyport_"

var (
	inputFacts     = ast.MustParseRef("input.facts")
	dataParameters = ast.MustParseRef("data.parameters")
)

var camelCase = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)

// contract checks what can be checked without a request: the form of the contract's rules, their annotations, and that every fact
// that is read is also queried.
type contract struct {
	pkg     ast.Ref
	modules []*ast.Module
	errs    CompileErrors
	facts   []string
	has     map[string]bool
	// parameters is the first rule valid_parameters, if any.
	parameters *ast.Rule
	// literals finds the literal values of rules; outcome is the shape of an outcome.
	literals literals
	outcome  shape
	reads    []Read
}

func checkContract(src Source, modules, libraries []*ast.Module) (*contract, CompileErrors) {
	c := &contract{
		pkg: packageRef(src.Package), modules: modules, has: map[string]bool{},
		literals: slices.Concat(modules, libraries), outcome: outcomeShape(src.Outcomes), reads: src.Reads,
	}
	described := false
	for _, m := range modules {
		if !m.Package.Path.HasPrefix(c.pkg) {
			c.errs.add(m.Package.Location, "package %s is not spec.package %s or below it", packageName(m), src.Package)
			continue
		}
		described = c.packageAnnotations(m) || described
		if m.Package.Path.Equal(c.pkg) {
			for _, r := range m.Rules {
				c.rule(r)
			}
		}
	}
	for _, m := range modules {
		c.checkFactReads(m)
		checkNegations(m, modules, &c.errs)
	}
	for _, m := range libraries {
		c.library(m)
	}
	whole := &ast.Location{File: src.Name}
	if !described {
		c.errs.add(whole, "package %s has no METADATA with title and description", src.Package)
	}
	if !c.has[ruleValid] {
		c.errs.add(whole, "rule %s is missing: without it, a missing field would silently allow the request", ruleValid)
	}
	if !c.has[ruleDeny] && !c.has[ruleWarn] && !c.has[rulePatch] && !c.has[ruleOutcome] {
		c.errs.add(whole, "package %s defines none of deny, warn, patch and outcome", src.Package)
	}
	return c, c.errs
}

func (c *contract) rule(r *ast.Rule) {
	ref := r.Head.Ref()
	name := headName(r)
	c.has[name] = true
	switch {
	case strings.HasPrefix(name, reserved):
		c.errs.add(r.Location, "rule names beginning with %s are reserved", reserved)
	case name == ruleFacts:
		c.factRule(r, ref)
	case name == ruleDeny || name == ruleWarn || name == rulePatch:
		if !isSetRule(r) {
			c.errs.add(r.Location, "%s must be written `%s contains ... if`", name, name)
		}
		c.checkAnnotations(r, name)
		if r.Head.Key != nil {
			c.checkShapes(r, name, func(said *ast.Term) shape { return shapeOf(name, said) }, r.Head.Key)
		}
	case name == ruleParameters && c.parameters == nil:
		c.parameters = r
		fallthrough
	case name == ruleValid, name == ruleParameters:
		if len(ref) != 1 || r.Head.RuleKind() != ast.SingleValue || len(r.Head.Args) > 0 {
			c.errs.add(r.Location, "%s must be written `%s if`", name, name)
		}
	case name == ruleOutcome:
		c.checkAnnotations(r, name)
		c.checkOutcome(r, ref)
	}
}

// checkShapes checks the literal values of a rule.
func (c *contract) checkShapes(r *ast.Rule, name string, of func(said *ast.Term) shape, said *ast.Term) {
	for _, found := range c.literals.resolve(r, said) {
		if wrong := of(found).wrong(name, found); wrong != nil {
			c.errs.add(cmp.Or(wrong.at.Location, r.Location), "%v", wrong)
		}
	}
}

// checkOutcome checks outcome, or a member of it whose name is known.
func (c *contract) checkOutcome(r *ast.Rule, ref ast.Ref) {
	said := r.Head.Value
	if r.Head.RuleKind() == ast.MultiValue {
		said = ast.SetTerm(r.Head.Key)
	}
	for i := len(ref) - 1; i > 0; i-- {
		said = ast.ObjectTerm([2]*ast.Term{ref[i], said})
	}
	c.checkShapes(r, ruleOutcome, func(*ast.Term) shape { return c.outcome }, said)
}

func (c *contract) factRule(r *ast.Rule, ref ast.Ref) {
	switch {
	case r.Default:
		c.errs.add(r.Location, "a fact cannot have a default: use null if the fact is not needed")
	case r.Else != nil:
		c.errs.add(r.Location, "a fact cannot have else: write a rule for each case")
	case len(ref) != 2 || !ref.IsGround() || r.Head.RuleKind() != ast.SingleValue || len(r.Head.Args) > 0:
		c.errs.add(r.Location, "a fact must be written `facts.<name> := ...` with a constant name")
	default:
		name := string(ref[1].Value.(ast.String))
		if !slices.Contains(c.facts, name) {
			c.facts = append(c.facts, name)
		}
		c.checkQuery(r, name)
	}
}

// checkFactReads rejects reads of facts that are never queried: they would be undefined, so that the rule would never apply.
func (c *contract) checkFactReads(m *ast.Module) {
	ast.WalkRefs(m, func(ref ast.Ref) bool {
		if !ref.HasPrefix(inputFacts) {
			return false
		}
		if len(ref) == len(inputFacts) {
			c.errs.add(ref[0].Location, "input.facts must be followed by the name of a fact")
			return false
		}
		name, constant := ref[len(inputFacts)].Value.(ast.String)
		if !constant {
			c.errs.add(ref[0].Location, "input.facts must be followed by a constant name, not %s", ref[len(inputFacts)])
		} else if !slices.Contains(c.facts, string(name)) {
			c.errs.add(ref[0].Location, "input.facts.%s is read but there is no rule facts.%s", string(name), string(name))
		}
		return false
	})
}

func (c *contract) library(m *ast.Module) {
	c.packageAnnotations(m)
	checkNegations(m, []*ast.Module{m}, &c.errs)
	ast.WalkRefs(m, func(ref ast.Ref) bool {
		if ref.HasPrefix(ast.InputRootRef) || ref.HasPrefix(dataParameters) {
			c.errs.add(ref[0].Location, "a library must not read %s: pass values as arguments", ref)
		}
		return false
	})
}

func (c *contract) packageAnnotations(m *ast.Module) (described bool) {
	for _, a := range m.Annotations {
		if a.Scope != "package" {
			continue
		}
		described = described || a.Title != "" && a.Description != ""
		c.checkCustomKeys(a, "")
	}
	return described
}

// checkAnnotations requires of every deny rule a title, a reason and a remedy.
func (c *contract) checkAnnotations(r *ast.Rule, name string) {
	for _, a := range r.Annotations {
		c.checkCustomKeys(a, name)
	}
	if name != ruleDeny {
		return
	}
	reason, remedy := annotation(r, "reason"), cmp.Or(annotation(r, "remedy"), annotation(r, "remedyInMessage"))
	if titleIn(r) == "" || remedy == "" || !camelCase.MatchString(reason) {
		c.errs.add(r.Location, "deny needs METADATA with title, custom.reason (CamelCase) and custom.remedy, or custom.remedyInMessage if each denial says it")
	}
	if given := valueOf(r.Head.Key).Get("reason").Text(); given != "" && reason != "" && given != reason {
		c.errs.add(r.Location, "deny has the reason %q, but its METADATA has custom.reason %q", given, reason)
	}
}

// checkCustomKeys rejects unknown keys under custom. name is the rule's.
func (c *contract) checkCustomKeys(a *ast.Annotations, name string) {
	for key, value := range a.Custom {
		switch {
		case key == "reason", key == "remedy", key == "remedyInMessage", key == "override" && name == ruleDeny && value == false:
		case key == "override":
			c.errs.add(a.Location, "METADATA custom.override is allowed only on deny, and only as false: the denial cannot be overridden")
		default:
			c.errs.add(a.Location, "METADATA custom.%s is unknown: allowed are reason, remedy, remedyInMessage and override", key)
		}
	}
}

// isFinal reports whether a rule's METADATA excludes overrides.
func isFinal(r *ast.Rule) bool {
	return slices.ContainsFunc(r.Annotations, func(a *ast.Annotations) bool { return a.Custom["override"] == false })
}

// annotated returns the first non-empty text of a rule's own METADATA, or "".
func annotated(r *ast.Rule, says func(*ast.Annotations) string) string {
	for _, a := range r.Annotations {
		if text := says(a); text != "" {
			return text
		}
	}
	return ""
}

func titleIn(r *ast.Rule) string {
	return annotated(r, func(a *ast.Annotations) string { return a.Title })
}

func descriptionIn(r *ast.Rule) string {
	return annotated(r, func(a *ast.Annotations) string { return a.Description })
}

// annotation returns a string under custom, or "".
func annotation(r *ast.Rule, key string) string {
	return annotated(r, func(a *ast.Annotations) string {
		text, _ := a.Custom[key].(string)
		return text
	})
}

func headName(r *ast.Rule) string {
	if v, ok := r.Head.Ref()[0].Value.(ast.Var); ok {
		return string(v)
	}
	return ""
}

func isSetRule(r *ast.Rule) bool {
	return len(r.Head.Ref()) == 1 && r.Head.RuleKind() == ast.MultiValue && len(r.Head.Args) == 0 && r.Else == nil && !r.Default
}

func packageRef(dotted string) ast.Ref {
	ref := ast.Ref{ast.DefaultRootDocument}
	for segment := range strings.SplitSeq(dotted, ".") {
		ref = append(ref, ast.StringTerm(segment))
	}
	return ref
}

func packageName(m *ast.Module) string { return dotted(m.Package.Path) }

// dotted is the inverse of packageRef.
func dotted(pkg ast.Ref) string { return strings.TrimPrefix(pkg.String(), "data.") }
