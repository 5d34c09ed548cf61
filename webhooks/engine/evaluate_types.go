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

func (t *Type) allows(v Value) bool {
	switch v.source().kind() {
	case 'n':
		return t.Nullable
	case '{':
		return t.Kind == ObjectType
	case '[':
		return t.Kind == ListType
	case '"':
		return t.Kind == StringType || t.Kind == StringOrNumber
	case '0':
		return t.Kind == NumberType || t.Kind == StringOrNumber || t.Kind == IntegerType && isWhole(v.number())
	default:
		return t.Kind == BooleanType
	}
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
func (c *typeChecks) mistyped(r *projection, of *Type, v Value, own bool) (wrong *typeError) {
	if r == nil || of == nil || of.Kind == AnyType {
		return nil
	}
	if !of.allows(v) {
		return &typeError{want: of.Kind, is: kindName(v)}
	}
	switch v.source().kind() {
	case '{':
		check := func(read *projection, name string, value Value) {
			if wrong = c.mistyped(read, of.field(name), value, own); wrong != nil {
				wrong.path = of.step(name, own) + wrong.path
			}
		}
		if r.each() == nil {
			for _, name := range r.names {
				if value, there := v.member(name); there && wrong == nil {
					check(r.members[name], name, value)
				}
			}
			return wrong
		}
		v.Each(func(name string, value Value) {
			for _, read := range []*projection{r.members[name], r.each()} {
				if wrong == nil && (of.Each != nil || c.names[name]) {
					check(read, name, value)
				}
			}
		})
	case '[':
		if r.each() == nil {
			return nil
		}
		for i, element := range v.Elements() {
			if wrong = c.mistyped(r.each(), of.Each, element, own); wrong != nil {
				wrong.path = fmt.Sprintf("[%d]", i) + wrong.path
				break
			}
		}
	}
	return wrong
}

// field returns the type of a member of an object.
func (t *Type) field(name string) *Type {
	if t.Each != nil {
		return t.Each
	}
	return t.Fields[name]
}

// step returns a member as a part of a path.
func (t *Type) step(name string, own bool) string {
	switch {
	case t.Each == nil:
		return "." + name
	case own:
		return "[" + name + "]"
	}
	return "[]"
}

// typeError is a value that is not of its type. Messages do not show the value.
type typeError struct {
	path string
	want TypeKind
	is   TypeKind
}

func (e *typeError) Error() string {
	return fmt.Sprintf("%s: must be %s, is %s", strings.TrimPrefix(e.path, "."), e.want, e.is)
}

func kindName(v Value) TypeKind {
	switch v.source().kind() {
	case 'n':
		return "null"
	case '{':
		return ObjectType
	case '"':
		return StringType
	case '0':
		return NumberType
	case '[':
		return ListType
	}
	return BooleanType
}

// request checks the objects of a request. On the mutating endpoint, the API server has not validated the object yet, and denies it
// afterwards with a message of its own.
func (c *typeChecks) request(e endpoint, in Input) error {
	if c == nil || e == mutate {
		return nil
	}
	kind := in.Request.Get("kind")
	apiVersion := strings.TrimPrefix(kind.Get("group").Text()+"/"+kind.Get("version").Text(), "/")
	of := c.typeOf(apiVersion, kind.Get("kind").Text()).OrNull()
	for _, name := range objects {
		object, there := in.Request.member(name)
		if !there {
			continue
		}
		if wrong := c.mistyped(c.read.below("request").below(name), of, object, true); wrong != nil {
			if name != "object" || wrong.path == "" {
				wrong.path = name + wrong.path
			}
			return errorf(InputNotUnderstood, "%w", wrong)
		}
	}
	return nil
}

// facts checks the answers of the facts of those names.
func (c *typeChecks) facts(names []string, in Input, facts map[string]Fact) error {
	if c == nil {
		return nil
	}
	for _, name := range names {
		f := facts[name]
		if f.Query == nil || f.Query.TestRun {
			continue
		}
		if wrong, object := c.fact(f, c.read.below(ruleFacts).below(name)); wrong != nil {
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
func (c *typeChecks) fact(f Fact, read *projection) (*typeError, Value) {
	q, answer := f.Query, f.Answer.Value
	switch {
	case q.Access != nil:
		return c.mistyped(read, &Type{Kind: BooleanType}, answer, false), Value{}
	case q.Parent || q.Name != "":
		return c.mistyped(read, c.typeOf(q.APIVersion, q.Kind).OrNull(), answer, false), answer
	}
	if wrong := c.mistyped(read, &Type{Kind: ListType}, answer, false); wrong != nil || read == nil || read.each() == nil {
		return wrong, Value{}
	}
	of := c.typeOf(q.APIVersion, q.Kind)
	for _, object := range answer.Elements() {
		if wrong := c.mistyped(read.each(), of, object, false); wrong != nil {
			return wrong, object
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
