package engine

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/open-policy-agent/opa/v1/ast"
)

// shape describes a denial, warning, patch, outcome or query of a fact. It is used both for the literals in a policy's text, when
// it is compiled, and for the values of its rules, when they are evaluated.
type shape struct {
	kind kind
	keys map[string]shape // of an object
	// needs are the keys that an object must have. Any other may be null, which is the same as absent.
	needs []string
	// noNulls forbids null members.
	noNulls bool
	// each is the shape of every member of an object with arbitrary keys; some requires at least one member, paths requires keys
	// that are field paths.
	each        *shape
	some, paths bool
	// texts and numbers are the allowed values; nil allows all.
	texts   []string
	numbers []int
	begins  string // prefix of a text
}

type kind string

const (
	anything kind = ""
	aText    kind = "a non-empty string"
	anyText  kind = "a string"
	aNumber  kind = "a number"
	anObject kind = "an object"
	theTexts kind = "a set or list of strings"
	aList    kind = "a list of non-empty strings"
	aTrue    kind = "true"
	// something is any value but null.
	something kind = "something"
)

// Allowed codes of a denial, and operations of a patch.
var (
	codes = []int{http.StatusForbidden, http.StatusConflict, http.StatusUnprocessableEntity, http.StatusTooManyRequests}
	ops   = []string{"add", "replace", "remove"}
)

var (
	denialShape = shape{kind: anObject, needs: []string{"reason", "message"}, keys: map[string]shape{
		"reason": {kind: aText}, "message": {kind: aText}, "cause": {kind: aText}, "remedy": {kind: aText}, "code": {kind: aNumber, numbers: codes},
		"details": {kind: anObject, keys: map[string]shape{
			"group": {kind: anyText}, "kind": {kind: anyText}, "name": {kind: anyText}, "uid": {kind: anyText}, "field": {kind: anyText},
		}},
	}}
	warningShape = shape{kind: aText}
	// operationShape is an operation of RFC 6902. A patch is one, or a merge patch of RFC 7386.
	operationShape = shape{kind: anObject, needs: []string{"op", "path"}, keys: map[string]shape{
		"op": {kind: aText, texts: ops}, "path": {kind: aText, begins: "/"}, "value": {},
	}}
	valuedShape  = shape{kind: anObject, needs: []string{"op", "path", "value"}, keys: operationShape.keys}
	removalShape = shape{kind: anObject, needs: operationShape.needs, keys: map[string]shape{
		"op": operationShape.keys["op"], "path": operationShape.keys["path"],
	}}
	mergeShape = shape{kind: anObject, needs: []string{"merge"}, keys: map[string]shape{"merge": {kind: anObject}}}
)

// outcomeShape returns the shape of an outcome with members of those names; nil allows any.
func outcomeShape(names []string) shape {
	s := shape{kind: anObject}
	if names != nil {
		s.keys = map[string]shape{}
	}
	for _, name := range names {
		s.keys[name] = shape{kind: theTexts}
	}
	return s
}

// shapeOf returns the shape of a rule's value.
func shapeOf(ruleName string, said *ast.Term) shape {
	switch ruleName {
	case ruleWarn:
		return warningShape
	case rulePatch:
		return patchShape(said)
	}
	return denialShape
}

func patchShape(term *ast.Term) shape {
	said := valueOf(term)
	if _, merge := said.member("merge"); merge {
		return mergeShape
	}
	switch said.Get("op").Text() {
	case "remove":
		return removalShape
	case "add", "replace":
		return valuedShape
	}
	return operationShape
}

// shapeError is the error of a term.
type shapeError struct {
	at            *ast.Term
	path, problem string
	// input reports whether the term is of the wrong type where a value of the request may be.
	input bool
}

func (e *shapeError) Error() string { return e.path + " " + e.problem }

// check checks the parts of a term that are literals.
func (s shape) check(name string, t *ast.Term) error {
	if wrong := s.wrong(name, t); wrong != nil {
		return wrong
	}
	return nil
}

func (s shape) wrong(name string, t *ast.Term) *shapeError {
	wrong := func(format string, args ...any) *shapeError {
		return &shapeError{at: t, path: name, problem: fmt.Sprintf(format, args...)}
	}
	if !isLiteral(t) || s.kind == anything {
		return nil
	}
	if !s.kind.is(t) {
		e := wrong("must be %s, not %s", s.kind, describe(t))
		_, list := t.Value.(*ast.Array)
		e.input = s.kind == aText || s.kind == anyText || s.kind == something || s.kind == aList && list
		return e
	}
	switch v := t.Value.(type) {
	case ast.Object:
		return s.members(name, t, v)
	case ast.String:
		if s.texts != nil && !slices.Contains(s.texts, string(v)) {
			return wrong("is %q, not %s", string(v), enumerated(s.texts, "or"))
		}
		if !strings.HasPrefix(string(v), s.begins) {
			return wrong("is %q, which does not begin with %q", string(v), s.begins)
		}
	case ast.Number:
		if n, whole := v.Int(); s.numbers != nil && (!whole || !slices.Contains(s.numbers, n)) {
			return wrong("is %s, not one of %s", v, strings.Trim(fmt.Sprint(s.numbers), "[]"))
		}
	}
	return nil
}

// members checks the members of an object in the order of their keys, so that the message is always the same.
func (s shape) members(name string, t *ast.Term, object ast.Object) *shapeError {
	if s.some && object.Len() == 0 {
		return &shapeError{at: t, path: name, problem: "must have a field"}
	}
	complete := true
	for _, key := range object.Keys() {
		if !isLiteral(key) {
			complete = false
			continue
		}
		of, known := s.keys[text(key)]
		if s.each != nil {
			of = *s.each
		}
		if !known && s.keys != nil {
			return &shapeError{at: key, path: name, problem: fmt.Sprintf("has no key %v: %s", key, s.suggestKey(text(key)))}
		}
		if s.paths && !isPath(text(key)) {
			return &shapeError{at: key, path: name, problem: notAPath(text(key))}
		}
		member := object.Get(key)
		if _, null := member.Value.(ast.Null); null && !s.noNulls && !slices.Contains(s.needs, text(key)) {
			continue
		}
		if wrong := of.wrong(text(key), member); wrong != nil {
			wrong.path = name + "." + wrong.path
			return wrong
		}
	}
	for _, key := range s.needs {
		if complete && object.Get(ast.StringTerm(key)) == nil {
			return &shapeError{at: t, path: name, problem: "has no " + key}
		}
	}
	return nil
}

// suggestKey suggests the key that may have been meant, and lists the allowed ones.
func (s shape) suggestKey(key string) string {
	names := slices.Sorted(maps.Keys(s.keys))
	allowed := "allowed are " + enumerated(names, "and")
	near := slices.MinFunc(append(names, key+"???"), func(a, b string) int {
		return levenshtein.ComputeDistance(a, key) - levenshtein.ComputeDistance(b, key)
	})
	if far := levenshtein.ComputeDistance(near, key); far > 2 || far >= len(near) {
		return allowed
	}
	return fmt.Sprintf("did you mean %q? %s", near, allowed)
}

func enumerated(words []string, last string) string {
	switch n := len(words); n {
	case 0:
		return "none"
	case 1:
		return words[0]
	default:
		return strings.Join(words[:n-1], ", ") + " " + last + " " + words[n-1]
	}
}

func (k kind) is(t *ast.Term) bool {
	if k == something {
		return t.Value.Compare(ast.NullValue) != 0
	}
	switch v := t.Value.(type) {
	case ast.Boolean:
		return k == aTrue && bool(v)
	case ast.String:
		return k == anyText || k == aText && v != ""
	case *ast.TemplateString:
		return k == anyText || k == aText
	case ast.Number:
		return k == aNumber
	case ast.Object:
		return k == anObject
	case *ast.Array:
		return k == theTexts && anyText.all(v.Foreach) || k == aList && aText.all(v.Foreach)
	case ast.Set:
		return k == theTexts && anyText.all(v.Foreach)
	}
	return false
}

// all reports whether the elements that are literals are of the kind.
func (k kind) all(each func(func(*ast.Term))) bool {
	only := true
	each(func(t *ast.Term) { only = only && (!isLiteral(t) || k.is(t)) })
	return only
}

// isLiteral reports whether a term's type is known without evaluating it. The elements of a collection may still be unknown.
func isLiteral(t *ast.Term) bool {
	switch t.Value.(type) {
	case ast.Null, ast.Boolean, ast.Number, ast.String, *ast.TemplateString, *ast.Array, ast.Set, ast.Object:
		return true
	}
	return false
}

// describe describes a term without its value, which may contain a Secret.
func describe(t *ast.Term) string {
	if text(t) == "" && anyText.is(t) {
		return `""`
	}
	return ast.ValueName(t.Value)
}
