package engine

import (
	"fmt"
	"math"
	"strings"
	"unicode"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Type describes a JSON value.
type Type struct {
	// Kind is what the value must be.
	Kind TypeKind
	// Nullable allows null, which stands for an absent value.
	Nullable bool
	// Fields are the types of an object's members; other members may be anything.
	Fields map[string]*Type
	// Each is the type of the elements of a list, or of the members of an object with arbitrary names; nil allows anything.
	Each *Type
}

// TypeKind is a kind of JSON values, as messages name it.
type TypeKind string

// Kinds of JSON values.
const (
	AnyType        TypeKind = ""
	ObjectType     TypeKind = "an object"
	ListType       TypeKind = "a list"
	StringType     TypeKind = "a string"
	IntegerType    TypeKind = "an integer"
	NumberType     TypeKind = "a number"
	BooleanType    TypeKind = "a boolean"
	StringOrNumber TypeKind = "a string or a number"
)

// OrNull returns the type with null allowed.
func (t *Type) OrNull() *Type {
	nullable := *t
	nullable.Nullable = true
	return &nullable
}

func (t *Type) allows(term *ast.Term) bool {
	switch v := term.Value.(type) {
	case ast.Null:
		return t.Nullable
	case ast.Object:
		return t.Kind == ObjectType
	case *ast.Array:
		return t.Kind == ListType
	case ast.String:
		return t.Kind == StringType || t.Kind == StringOrNumber
	case ast.Boolean:
		return t.Kind == BooleanType
	case ast.Number:
		return t.Kind == NumberType || t.Kind == StringOrNumber || t.Kind == IntegerType && isWhole(v)
	}
	return false
}

func isWhole(n ast.Number) bool {
	if _, ok := n.Int64(); ok {
		return true
	}
	f, _ := n.Float64() // 1e9 is written as a float
	return f == math.Trunc(f)
}

// typeChecks are the values whose types are checked: those that decide whether rules apply, and that facts and outcome depend on.
type typeChecks struct {
	typeOf func(apiVersion, kind string) *Type
	read   *projection // of the input
	// names are the words in the constants of the policy and in its parameters. A field whose name is none of them is not read, although
	// all of its object counts as read.
	names map[string]bool
}

// newTypeChecks returns nil if no types are known.
func newTypeChecks(src Source, p *Policy) *typeChecks {
	if src.Types == nil {
		return nil
	}
	names := map[string]bool{}
	add := func(words string) {
		for _, word := range strings.FieldsFunc(words, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
			names[word] = true
		}
	}
	for _, m := range p.compiler.Modules {
		ast.WalkTerms(m, func(t *ast.Term) bool {
			constant := text(t)
			names[constant] = true
			add(constant) // as of a path, "spec.running"
			return false
		})
	}
	add(string(src.Parameters))
	return &typeChecks{src.Types, follow(p.compiler, p.ruleRefs(ruleFacts, ruleValid, admit.fires(), mutate.fires(), ruleOutcome)...), names}
}

// keyed adds what type checks of the request depend on to what cached decisions depend on. Nil means more than the request.
func (c *typeChecks) keyed(decides *projection) *projection {
	if c == nil || decides == nil {
		return decides
	}
	request := c.read.below("request")
	if request != nil && request.all {
		return nil
	}
	decides.member("kind").include(&projection{all: true})
	for _, name := range objects {
		if read := request.below(name); read != nil {
			decides.member(name).include(read)
		}
	}
	return decides
}

// objects are the members of a request with objects of its kind.
var objects = []string{"object", "oldObject"}

// below returns what is read of a member; nil if it is not read.
func (r *projection) below(name string) *projection {
	switch {
	case r == nil:
		return nil
	case r.all, r.every != nil:
		return &projection{all: true}
	}
	return r.members[name]
}

// each returns what is read of each element, or of each member whose name is not known; nil if nothing is.
func (r *projection) each() *projection {
	if r.all {
		return r
	}
	return r.every
}

// mistyped returns the first value that is read and not of its type; nil if there is none. Names of an object's arbitrary members are
// hidden if they are not the requester's own.
func (c *typeChecks) mistyped(r *projection, of *Type, term *ast.Term, own bool) (wrong *typeError) {
	if r == nil || of == nil || of.Kind == AnyType || term == nil {
		return nil
	}
	if !of.allows(term) {
		return &typeError{want: of.Kind, is: term}
	}
	switch v := term.Value.(type) {
	case ast.Object:
		check := func(read *projection, key, value *ast.Term) bool {
			if wrong = c.mistyped(read, of.field(key), value, own); wrong != nil {
				wrong.path = of.step(key, own) + wrong.path
			}
			return wrong != nil
		}
		if r.each() == nil {
			for _, key := range r.keys {
				if check(r.members[text(key)], key, v.Get(key)) {
					break
				}
			}
			return wrong
		}
		v.Until(func(key, value *ast.Term) bool {
			return (of.Each != nil || c.names[text(key)]) && (check(r.members[text(key)], key, value) || check(r.each(), key, value))
		})
	case *ast.Array:
		for i := 0; r.each() != nil && i < v.Len(); i++ {
			if wrong = c.mistyped(r.each(), of.Each, v.Elem(i), own); wrong != nil {
				wrong.path = fmt.Sprintf("[%d]", i) + wrong.path
				break
			}
		}
	}
	return wrong
}

// field returns the type of a member of an object.
func (t *Type) field(key *ast.Term) *Type {
	if t.Each != nil {
		return t.Each
	}
	return t.Fields[text(key)]
}

// step returns a member as a part of a path.
func (t *Type) step(key *ast.Term, own bool) string {
	switch {
	case t.Each == nil:
		return "." + text(key)
	case own:
		return "[" + text(key) + "]"
	}
	return "[]"
}

// typeError is a value that is not of its type. Messages do not show the value.
type typeError struct {
	path string
	want TypeKind
	is   *ast.Term
}

func (e *typeError) Error() string {
	return fmt.Sprintf("%s: must be %s, is %s", strings.TrimPrefix(e.path, "."), e.want, kindName(e.is))
}

func kindName(t *ast.Term) string {
	switch t.Value.(type) {
	case ast.Null:
		return "null"
	case ast.Object:
		return string(ObjectType)
	case ast.String:
		return string(StringType)
	case ast.Boolean:
		return string(BooleanType)
	case ast.Number:
		return string(NumberType)
	}
	return string(ListType)
}

// request checks the objects of a request. On the mutating endpoint, the API server has not validated the object yet, and denies it
// afterwards with a message of its own.
func (c *typeChecks) request(e endpoint, in Input, input *ast.Term) error {
	if c == nil || e == mutate {
		return nil
	}
	kind := in.Request.Get("kind")
	apiVersion := strings.TrimPrefix(kind.Get("group").Text()+"/"+kind.Get("version").Text(), "/")
	of := c.typeOf(apiVersion, kind.Get("kind").Text()).OrNull()
	for _, name := range objects {
		if wrong := c.mistyped(c.read.below("request").below(name), of, memberOf(input, "request", name), true); wrong != nil {
			if name != "object" || wrong.path == "" {
				wrong.path = name + wrong.path
			}
			return errorf(InputNotUnderstood, "%w", wrong)
		}
	}
	return nil
}

// facts checks the answers of the facts of those names.
func (c *typeChecks) facts(names []string, in Input, facts map[string]Fact, input *ast.Term) error {
	if c == nil {
		return nil
	}
	for _, name := range names {
		f := facts[name]
		if f.Query == nil || f.Query.TestRun {
			continue
		}
		if wrong, object := c.fact(f, c.read.below(ruleFacts).below(name), memberOf(input, ruleFacts, name)); wrong != nil {
			if wrong.path != "" {
				wrong.path = ": " + strings.TrimPrefix(wrong.path, ".")
			}
			wrong.path = "facts." + name + f.Query.named(object, in) + wrong.path
			return errorf(InputNotUnderstood, "%w", wrong)
		}
	}
	return nil
}

// fact checks one answer, and returns the object with the wrong value.
func (c *typeChecks) fact(f Fact, read *projection, answer *ast.Term) (*typeError, Value) {
	q := f.Query
	switch {
	case q.Access != nil:
		return c.mistyped(read, &Type{Kind: BooleanType}, answer, false), Value{}
	case q.Parent || q.Name != "":
		return c.mistyped(read, c.typeOf(q.APIVersion, q.Kind).OrNull(), answer, false), f.Answer.Value
	}
	if wrong := c.mistyped(read, &Type{Kind: ListType}, answer, false); wrong != nil || read == nil || read.each() == nil {
		return wrong, Value{}
	}
	of, all := c.typeOf(q.APIVersion, q.Kind), answer.Value.(*ast.Array)
	for i := range all.Len() {
		if wrong := c.mistyped(read.each(), of, all.Elem(i), false); wrong != nil {
			return wrong, f.Answer.Value.Elements()[i]
		}
	}
	return nil, Value{}
}

// named returns kind and name of an object, if there is one. The requester may not know names in other namespaces.
func (q *Query) named(object Value, in Input) string {
	if !object.IsObject() {
		return ""
	}
	named := ": " + q.Kind
	metadata := object.Get("metadata")
	if namespace := metadata.Get("namespace").Text(); namespace == "" || namespace == in.Request.Get("namespace").Text() {
		named += " " + metadata.Get("name").Text()
	}
	return strings.TrimSuffix(named, " ")
}

// memberOf returns a member of a member of an object; nil if there is none.
func memberOf(object *ast.Term, names ...string) *ast.Term {
	for _, name := range names {
		of, _ := object.Value.(ast.Object)
		if of == nil {
			return nil
		}
		if object = of.Get(ast.StringTerm(name)); object == nil {
			return nil
		}
	}
	return object
}
