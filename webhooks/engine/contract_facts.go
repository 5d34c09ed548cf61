package engine

import (
	"cmp"
	"maps"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Shapes of the queries of facts.
var (
	anyAccess = shape{kind: anObject, noNulls: true, needs: []string{"verb", "resource"}, keys: map[string]shape{
		"verb": {kind: aText}, "resource": {kind: aText}, "group": {kind: anyText}, "namespace": {kind: anyText}, "name": {kind: anyText},
	}}
	anyTexts  = shape{kind: anObject, noNulls: true, each: &shape{kind: aText}}
	freshness = shape{kind: aText, texts: []string{"live"}}

	// ofKind are the keys of a query for objects of a kind that queries for one object and for lists have in common.
	ofKind = map[string]shape{
		"apiVersion": {kind: aText}, "kind": {kind: aText}, "namespace": {kind: aText}, "freshness": freshness,
	}
	ofList = map[string]shape{
		"fields": {kind: anObject, noNulls: true, some: true, paths: true, each: anyTexts.each}, "labels": anyTexts, "namespaces": {kind: aList},
		"except": {kind: anObject, noNulls: true, paths: true, each: &shape{kind: aList}},
	}
	ofOne = map[string]shape{"name": {kind: aText}}
	// forms are the kinds of queries that are identified by a key, in order of precedence.
	forms = []struct {
		key   string
		shape shape
	}{
		{"access", queryShape([]string{"access"}, map[string]shape{"access": anyAccess, "freshness": freshness})},
		{"parent", queryShape([]string{"parent"}, map[string]shape{"parent": {kind: aTrue}, "freshness": freshness})},
		{"testRun", queryShape([]string{"testRun"}, map[string]shape{"testRun": {kind: something}, "freshness": freshness})},
		{"name", queryShape([]string{"apiVersion", "kind"}, ofKind, ofOne)},
	}
	// anyQuery is the shape of a list query. It also has the keys of the other kinds, because one of them may have been meant.
	anyQuery = queryShape([]string{"apiVersion", "kind"}, ofKind, ofList, ofOne, map[string]shape{"access": {}, "parent": {}, "testRun": {}})
)

func queryShape(needs []string, keys ...map[string]shape) shape {
	s := shape{kind: anObject, noNulls: true, needs: needs, keys: map[string]shape{}}
	for _, some := range keys {
		maps.Copy(s.keys, some)
	}
	return s
}

// factShape is the shape of a fact. A fact is null if it is not needed.
func factShape(term *ast.Term) shape {
	said := valueOf(term)
	if said.IsNull() {
		return shape{}
	}
	for _, form := range forms {
		if _, has := said.member(form.key); has {
			return form.shape
		}
	}
	return anyQuery
}

// queryShape checks the literal query of a fact against its shape and spec.reads.
func (c *contract) checkQuery(r *ast.Rule, name string) {
	before := len(c.errs)
	c.checkShapes(r, ruleFacts+"."+name, factShape, r.Head.Value)
	if len(c.errs) > before {
		return
	}
	for _, found := range c.literals.resolve(r, r.Head.Value) {
		q := queryIn(name, valueOf(found))
		if q.Kind == "" || q.APIVersion == "" { // no kind, or known only when it is evaluated
			continue
		}
		if _, open := q.Fields[""]; open { // the name of the field is not known yet
			q.Fields = nil
		}
		if err := permitted(c.reads, q); err != nil {
			object := found.Value.(ast.Object)
			at := object.Get(ast.StringTerm("kind")).Location
			if slices.ContainsFunc(c.reads, q.isOf) {
				at = cmp.Or(object.Get(ast.StringTerm("fields")).Value.(ast.Object).Keys()[0].Location, at)
			}
			c.errs.add(cmp.Or(at, r.Location), "%v", err)
		}
	}
}
