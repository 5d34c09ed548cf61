package engine

import (
	"maps"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Most facts name fields of the request and do nothing else:
//
//	facts.vm := {"kind": "VirtualMachine", "name": input.request.object.spec.virtualMachineName, ...}
//
// They need no evaluation, only to be filled in.

// template is such a fact.
type template struct {
	query  Query
	blanks []blank
}

// blank is a member of a query that a field of the request goes into.
type blank struct {
	key  string
	path ast.Ref // below the request
	fill func(q *Query, with string)
}

// templatesOf gives what a policy's facts are made from, in order, if all of them only need to be filled in; else nil.
func (a *accelerated) templatesOf(modules []*ast.Module) (made []*template) {
	values := map[string]*ast.Term{}
	for _, m := range modules {
		for _, r := range m.Rules {
			if !m.Package.Path.Equal(a.pkg) || headName(r) != ruleFacts {
				continue
			}
			name := text(r.Head.Ref()[1])
			if values[name] != nil || !r.Body.Equal(always) {
				return nil
			}
			values[name] = r.Head.Value
		}
	}
	for _, name := range a.facts {
		t := a.template(name, values[name])
		if t == nil {
			return nil
		}
		made = append(made, t)
	}
	return made
}

var (
	always  = ast.NewBody(ast.NewExpr(ast.BooleanTerm(true)))
	request = ast.MustParseRef("input.request")
)

// template gives nil for what has to be evaluated; what is wrong whatever the request is, is told by evaluation, too.
func (a *accelerated) template(name string, fact *ast.Term) *template {
	object, ok := fact.Value.(ast.Object)
	if !ok {
		return nil
	}
	t := &template{}
	example := ast.NewObject() // with something in every blank
	object.Foreach(func(k, v *ast.Term) {
		switch key := text(k); key {
		case "namespace":
			v = t.blank(key, v, func(q *Query, with string) { q.Namespace = with })
		case "name":
			v = t.blank(key, v, func(q *Query, with string) { q.Name = with })
		case "fields":
			v = t.within(key, v, func(q *Query) *map[string]string { return &q.Fields })
		case "labels":
			v = t.within(key, v, func(q *Query) *map[string]string { return &q.Labels })
		}
		example.Insert(k, v)
	})
	if !ast.IsConstant(example) {
		return nil
	}
	q, err := permittedQuery(name, ast.NewTerm(example), a.reads)
	if err != nil || !q.ofKind() {
		return nil
	}
	t.query = *q
	return t
}

// blank notes a term that is a field of the request, and gives an example of it; every other term it gives as it is.
func (t *template) blank(key string, v *ast.Term, fill func(*Query, string)) *ast.Term {
	ref, ok := v.Value.(ast.Ref)
	if !ok || len(ref) <= len(request) || !ref.HasPrefix(request) {
		return v
	}
	path := ref[len(request):]
	for _, name := range path {
		if _, constant := name.Value.(ast.String); !constant {
			return v
		}
	}
	t.blanks = append(t.blanks, blank{key, path, fill})
	return ast.StringTerm("example")
}

// within notes the blanks of an object in the query.
func (t *template) within(key string, v *ast.Term, of func(*Query) *map[string]string) *ast.Term {
	object, ok := v.Value.(ast.Object)
	if !ok {
		return v
	}
	example := ast.NewObject()
	object.Foreach(func(k, v *ast.Term) {
		example.Insert(k, t.blank(key+"."+text(k), v, func(q *Query, with string) {
			filled := maps.Clone(*of(q)) // which is every request's
			filled[text(k)] = with
			*of(q) = filled
		}))
	})
	return ast.NewTerm(example)
}

// fill gives the query of a request.
func (t *template) fill(in Value) (*Query, error) {
	var values []Value
	for _, b := range t.blanks {
		v, ok := along(in, b.path)
		if !ok {
			return nil, undefined(t.query.Fact)
		}
		values = append(values, v)
	}
	q := t.query
	for i, b := range t.blanks {
		with := values[i].Text()
		if with == "" {
			return nil, (shape{kind: aText}).wrong(ruleFacts+"."+q.Fact+"."+b.key, values[i].orNull()).asked()
		}
		b.fill(&q, with)
	}
	return &q, nil
}

// along gives what is at a path of names, if there is anything.
func along(in Value, path ast.Ref) (found Value, ok bool) {
	for _, name := range path {
		if in, ok = in.member(text(name)); !ok {
			return Value{}, false
		}
	}
	return in, true
}

func undefined(fact string) error {
	return errorf(InputNotUnderstood, "facts.%s is undefined for this request", fact)
}
