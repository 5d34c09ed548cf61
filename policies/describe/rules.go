package describe

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// rule is a rule of the policy contract, described by its METADATA and its head.
type rule struct {
	kind string // facts, deny, warn, patch, outcome or valid_parameters
	name string // of the fact or the outcome

	title, description, reason, remedy string
	// final reports that the denial cannot be overridden.
	final bool

	// code is the HTTP status of a denial, 0 if it depends on the request.
	code int
	// says describes the request of a fact, the text of a warning, or the operation of a patch; "" if the head does not show it.
	says string
}

// about describes the package of a policy, from its METADATA.
type about struct {
	title, description string
	seeAlso            []string
	rules              []rule
}

// of returns the rules of one kind, in the order of the source.
func (a *about) of(kind string) (found []rule) {
	for _, r := range a.rules {
		if r.kind == kind {
			found = append(found, r)
		}
	}
	return found
}

// read parses the Rego of a policy. It does not check the policy contract; the engine does.
func read(policy *v1alpha1.RegoPolicy) (*about, error) {
	a := &about{}
	var errs []error
	pkg := "data." + policy.Spec.Package
	for _, m := range policy.Spec.Modules {
		module, err := ast.ParseModuleWithOpts(policy.Name+"/"+m.Name, m.Source, ast.ParserOptions{ProcessAnnotation: true})
		if err != nil {
			errs = append(errs, err)
			continue
		}
		a.packageOf(module)
		if module.Package.Path.String() != pkg {
			continue
		}
		for _, r := range module.Rules {
			a.add(r)
		}
	}
	return a, errors.Join(errs...)
}

func (a *about) packageOf(module *ast.Module) {
	for _, n := range module.Annotations {
		if n.Scope != "package" {
			continue
		}
		if a.title == "" {
			a.title, a.description = n.Title, n.Description
		}
		for _, related := range n.RelatedResources {
			link := "<" + related.Ref.String() + ">"
			if related.Description != "" {
				link = fmt.Sprintf("[%s](%s)", Cell(related.Description), related.Ref.String())
			}
			a.seeAlso = append(a.seeAlso, link)
		}
	}
}

// add adds a rule if it is part of the policy contract and has a description.
func (a *about) add(r *ast.Rule) {
	found := rule{}
	ref := r.Head.Ref()
	if name, ok := ref[0].Value.(ast.Var); ok {
		found.kind = string(name)
	}
	for _, n := range r.Annotations {
		found.annotate(n)
	}
	switch found.kind {
	case "facts":
		a.addFact(&found, r)
		return
	case "deny":
		found.denies(r.Head.Key)
	case "warn":
		found.says = written(r.Head.Key)
	case "patch":
		found.patches(r.Head.Key)
	case "outcome":
		found.name = strings.TrimPrefix(strings.TrimPrefix(ref.String(), "outcome"), ".")
	case "valid_parameters":
	default:
		return
	}
	a.rules = append(a.rules, found)
}

func (r *rule) annotate(n *ast.Annotations) {
	r.final = r.final || n.Custom["override"] == false
	custom := func(key string) string {
		text, _ := n.Custom[key].(string)
		return text
	}
	for _, part := range []struct {
		of   *string
		text string
	}{{&r.title, n.Title}, {&r.description, n.Description}, {&r.reason, custom("reason")}, {&r.remedy, cmp.Or(custom("remedy"), custom("remedyInMessage"))}} {
		if *part.of == "" {
			*part.of = part.text
		}
	}
}

// addFact adds a fact once, with the descriptions of all its rules.
func (a *about) addFact(found *rule, r *ast.Rule) {
	ref := r.Head.Ref()
	if len(ref) != 2 {
		return
	}
	name, _ := ref[1].Value.(ast.String)
	found.name = string(name)
	if r.Head.Value != nil {
		found.says = asks(r.Head.Value)
	}
	known := slices.IndexFunc(a.rules, func(other rule) bool { return other.kind == "facts" && other.name == found.name })
	if known < 0 {
		a.rules = append(a.rules, *found)
		return
	}
	first := &a.rules[known]
	if first.title == "" {
		first.title, first.description = found.title, found.description
	}
	if found.says != "" && !strings.Contains(first.says, found.says) {
		first.says = strings.TrimPrefix(first.says+"; or ", "; or ") + found.says
	}
}

// denies reads the HTTP status of a denial.
func (r *rule) denies(key *ast.Term) {
	head, ok := value[ast.Object](key)
	if !ok {
		return
	}
	r.code = http.StatusForbidden
	if code := head.Get(ast.StringTerm("code")); code != nil {
		number, _ := value[ast.Number](code)
		r.code, _ = number.Int()
	}
}

func (r *rule) patches(key *ast.Term) {
	head, ok := value[ast.Object](key)
	if !ok {
		return
	}
	var words []string
	for _, name := range []string{"op", "path"} {
		word := head.Get(ast.StringTerm(name))
		_, constant := value[ast.String](word)
		if _, template := value[*ast.TemplateString](word); constant || template {
			words = append(words, written(word))
		}
	}
	r.says = strings.Join(words, " ")
}

// asks describes the request of a fact, as far as its head shows it.
func asks(question *ast.Term) string {
	members, ok := value[ast.Object](question)
	if !ok {
		return ""
	}
	get := func(name string) *ast.Term { return members.Get(ast.StringTerm(name)) }
	text := func(t *ast.Term) string {
		word, _ := value[ast.String](t)
		return string(word)
	}
	said := ""
	switch kind := text(get("kind")); {
	case get("parent") != nil:
		said = "the object that the subresource belongs to"
	case get("testRun") != nil:
		said = "the effect of a change of a RegoPolicy"
	case get("access") != nil:
		said = "an access right of the requester"
		if access, ok := value[ast.Object](get("access")); ok {
			verb, resource := text(access.Get(ast.StringTerm("verb"))), text(access.Get(ast.StringTerm("resource")))
			if verb != "" && resource != "" {
				said = fmt.Sprintf("whether the requester may %s %s", Code(verb), Code(resource))
			}
		}
	case kind == "":
		return ""
	case get("name") != nil:
		said = "one " + Code(kind)
	default:
		said = Code(kind) + selected(get("fields"), "by") + selected(get("labels"), "by labels") + selected(get("except"), "except by")
	}
	if text(get("freshness")) == "live" {
		said += ", read live"
	}
	return said
}

// selected lists the fields of a query.
func selected(fields *ast.Term, how string) string {
	members, ok := value[ast.Object](fields)
	if !ok {
		return ""
	}
	var names []string
	for _, key := range members.Keys() {
		if name, constant := value[ast.String](key); constant {
			names = append(names, string(name))
		}
	}
	slices.Sort(names)
	if len(names) == 0 {
		return " " + how
	}
	return " " + how + " " + Codes(names)
}

// written returns a string as it is written in the Rego. Template strings are returned as their source.
func written(t *ast.Term) string {
	if word, constant := value[ast.String](t); constant {
		return string(word)
	}
	if t == nil || t.Location == nil {
		return ""
	}
	return strings.Trim(strings.TrimPrefix(string(t.Location.Text), "$"), "\"`")
}

// value returns the value of a term if it has the type T. The term may be nil.
func value[T ast.Value](t *ast.Term) (found T, ok bool) {
	if t == nil {
		return found, false
	}
	found, ok = t.Value.(T)
	return found, ok
}
