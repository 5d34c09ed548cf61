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

// rule is a rule of the contract, as its METADATA and its head tell of it.
type rule struct {
	kind string // facts, deny, warn, patch, outcome or valid_parameters
	name string // of the fact, or of what is below outcome

	title, description, reason, remedy string
	// final tells that no override helps against a denial.
	final bool

	// code is the HTTP status of a denial, 0 if it depends on the request.
	code int
	// says is what a fact asks for, a warning says, or a patch does; "" if the head does not tell.
	says string
}

// about is the package of a policy, as its METADATA tells of it.
type about struct {
	title, description string
	seeAlso            []string
	rules              []rule
}

// of gives the rules of one kind, in the order in which they are written.
func (a *about) of(kind string) (found []rule) {
	for _, r := range a.rules {
		if r.kind == kind {
			found = append(found, r)
		}
	}
	return found
}

// read takes the Rego of a policy apart. It must parse; whether it is in order, the engine says.
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

// add takes a rule up if it is one of the contract that says something.
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

// addFact takes up a fact once, from those of its rules that tell something.
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

// denies reads the code of a denial.
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

// asks says what a fact asks for, as far as its head tells it.
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
	case get("rehearsal") != nil:
		said = "what would become of a RegoPolicy"
	case get("access") != nil:
		said = "a right of the requester"
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
		said = Code(kind) + selected(get("fields"), "by") + selected(get("labels"), "by labels") + selected(get("except"), "but for some by")
	}
	if text(get("freshness")) == "live" {
		said += ", read live"
	}
	return said
}

// selected names the fields of a query.
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

// written is how a text stands in the Rego; template strings are told by their source.
func written(t *ast.Term) string {
	if word, constant := value[ast.String](t); constant {
		return string(word)
	}
	if t == nil || t.Location == nil {
		return ""
	}
	return strings.Trim(strings.TrimPrefix(string(t.Location.Text), "$"), "\"`")
}

// value gives the value of a term that may be none, if it is of a type.
func value[T ast.Value](t *ast.Term) (found T, ok bool) {
	if t == nil {
		return found, false
	}
	found, ok = t.Value.(T)
	return found, ok
}
