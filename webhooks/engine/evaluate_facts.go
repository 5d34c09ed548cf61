package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Query is what a policy asks for under one name. It has exactly one of four forms: Access, Parent, TestRun, or a Kind.
type Query struct {
	// Fact is the name under which the answer appears in input.facts.
	Fact string `json:"-"`
	// APIVersion and Kind of the objects asked for.
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	// Namespace to look in; empty for cluster-scoped kinds, and for a list over all namespaces.
	Namespace string `json:"namespace,omitempty"`
	// Name asks for one object; the answer is that object or null. Without it the answer is a list.
	Name string `json:"name,omitempty"`
	// Fields the objects must have with these values; a path through a list (disks[].name) means any of its elements. Together the
	// fields are an index of spec.reads.
	Fields map[string]string `json:"fields,omitempty"`
	// Labels the objects must have.
	Labels map[string]string `json:"labels,omitempty"`
	// Except leaves out the objects whose field has one of the values, in any element of the lists that its path goes through.
	Except map[string][]string `json:"except,omitempty"`
	// Parent asks for the object whose subresource is requested. Without a Kind it asks which object that is, and nothing of it is
	// read: the answer has apiVersion, kind and metadata with namespace and name.
	Parent bool `json:"parent,omitempty"`
	// Metadata asks for no more of an object than who it is, its version and its override. Policies have no way to ask for it.
	Metadata bool `json:"metadata,omitempty"`
	// Access asks whether the requester may do something; the answer is a boolean.
	Access *Access `json:"access,omitempty"`
	// TestRun asks what would become of a Document, which the engine does not look into; the answer is what the Reader finds.
	TestRun bool `json:"rehearsal,omitempty"`
	// Document is not written down with the query: records have it in the request.
	Document Value `json:"-"`
	// Live asks for an answer from the API server instead of a cache.
	Live bool `json:"live,omitempty"`
}

// Access names what the requester would do, as a SubjectAccessReview does.
type Access struct {
	Verb      string `json:"verb"`
	Group     string `json:"group,omitempty"`
	Resource  string `json:"resource"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
}

// Answer is what a Reader found.
type Answer struct {
	// Value is the object or null for a query by name, the list for the others, a boolean for Access, anything for a TestRun.
	Value Value
	// Live tells that the answer came from the API server and not from a cache.
	Live bool
	// ResourceVersion up to which the answer is known to be complete; empty where it has none.
	ResourceVersion string
}

// Reader answers the queries of one request. It leaves the object under review out of lists, because a policy judges the
// world that the request would change. An error means "unknown", never "none".
type Reader interface {
	Read(ctx context.Context, q Query) (Answer, error)
}

// Fact is a query with its answer, as the decision record keeps it.
type Fact struct {
	Query  *Query // nil: not wanted for this request
	Answer Answer
}

// decodeFacts reads the facts document. Every declared fact must be there: an undefined one means that the request lacks
// something its query is made of, and leaving it unasked would leave deny empty.
func (p *Policy) decodeFacts(document *ast.Term) (map[string]Fact, error) {
	object, ok := document.Value.(ast.Object)
	if !ok {
		return nil, errorf(ContractViolated, "facts is not an object")
	}
	facts := make(map[string]Fact, len(p.facts))
	for _, name := range p.facts {
		term := object.Get(ast.StringTerm(name))
		if term == nil {
			return nil, undefined(name)
		}
		if _, null := term.Value.(ast.Null); null {
			facts[name] = Fact{}
			continue
		}
		q, err := decodeQuery(name, term)
		if err == nil && !q.Parent { // sooner than anything is read
			err = permitted(p.reads, q)
		}
		if err != nil {
			return nil, err
		}
		facts[name] = Fact{Query: q}
	}
	return facts, nil
}

// read is the way of every question from a policy to a Reader. What asks for objects is held to spec.reads, by what it really
// asks for.
func (p *Policy) read(ctx context.Context, q *Query, r Reader) (Answer, error) {
	if q.Parent && q.Kind == "" {
		if err := p.resolve(ctx, q, r); err != nil {
			return Answer{}, err
		}
	}
	if err := permitted(p.reads, q); err != nil {
		return Answer{}, err
	}
	return r.Read(ctx, *q)
}

// resolve puts into the query for a parent which object that is, in the version that spec.reads has of its kind. It is read live:
// a Scale names its parent and no more.
func (p *Policy) resolve(ctx context.Context, q *Query, r Reader) error {
	is, err := r.Read(ctx, *q)
	if err != nil {
		return err
	}
	metadata := is.Value.Get("metadata")
	q.APIVersion, q.Kind = is.Value.Get("apiVersion").Text(), is.Value.Get("kind").Text()
	q.Namespace, q.Name, q.Live = metadata.Get("namespace").Text(), metadata.Get("name").Text(), true
	for _, listed := range p.reads {
		if listed.Kind == q.Kind && group(listed.APIVersion) == group(q.APIVersion) {
			q.APIVersion = listed.APIVersion
			break
		}
	}
	return nil
}

// group is the part of an apiVersion before the version.
func group(apiVersion string) string {
	before, _, grouped := strings.Cut(apiVersion, "/")
	if !grouped {
		return ""
	}
	return before
}

// permitted holds a query against spec.reads, which also says whether it is to be answered live.
func permitted(reads []Read, q *Query) error {
	if q.Access != nil || q.TestRun {
		return nil
	}
	i := slices.IndexFunc(reads, q.isOf)
	switch {
	case i < 0 && q.Parent:
		return errorf(ContractViolated, "facts.%s asks for the object whose subresource is requested, of kind %s %s, which spec.reads does not list: "+
			"add {apiVersion: %[2]s, kind: %[3]s, freshness: Live} to spec.reads", q.Fact, q.APIVersion, q.Kind)
	case i < 0:
		return errorf(ContractViolated, "facts.%s asks for %s %s, which spec.reads does not list", q.Fact, q.APIVersion, q.Kind)
	}
	if len(q.Fields) > 0 && !reads[i].indexes(q.Fields) {
		return errorf(ContractViolated, "facts.%s looks %s up by %s, which is not among its indexes in spec.reads", q.Fact, q.Kind,
			strings.Join(slices.Sorted(maps.Keys(q.Fields)), ","))
	}
	q.Live = q.Live || reads[i].Live
	return nil
}

// isOf tells whether the query asks for objects of a kind that is read.
func (q *Query) isOf(r Read) bool { return r.APIVersion == q.APIVersion && r.Kind == q.Kind }

func decodeQuery(name string, term *ast.Term) (*Query, error) {
	object, ok := term.Value.(ast.Object)
	if !ok {
		return nil, errorf(ContractViolated, "facts.%s is neither null nor an object", name)
	}
	q := &Query{Fact: name}
	d := queryDecoder{path: "facts." + name}
	object.Foreach(func(key, value *ast.Term) { d.member(q, key, value) })
	if d.err == nil {
		d.err = q.check(d.path)
	}
	return q, d.err
}

// ofKind tells whether the query asks for objects of a kind.
func (q *Query) ofKind() bool { return !q.Parent && q.Access == nil && !q.TestRun }

// check refuses queries whose parts do not fit together.
func (q *Query) check(path string) error {
	forms := 0
	for _, set := range []bool{q.Parent, q.Access != nil, q.TestRun, q.Kind != "" || q.APIVersion != ""} {
		if set {
			forms++
		}
	}
	narrowed := q.Fields != nil || q.Labels != nil || q.Except != nil
	switch {
	case forms != 1:
		return errorf(ContractViolated, "%s must have exactly one of kind, parent, access and rehearsal", path)
	case q.Access != nil && (q.Access.Verb == "" || q.Access.Resource == ""):
		return errorf(ContractViolated, "%s.access needs verb and resource", path)
	case !q.ofKind() && (narrowed || q.Name != "" || q.Namespace != ""):
		return errorf(ContractViolated, "%s: parent, access and rehearsal take no selection", path)
	case q.ofKind() && (q.Kind == "" || q.APIVersion == ""):
		return errorf(ContractViolated, "%s needs apiVersion and kind", path)
	case q.Name != "" && narrowed:
		return errorf(ContractViolated, "%s has a name: fields, labels and except are for lists", path)
	}
	return nil
}

// queryDecoder reads the members of a query and keeps the first error. A value of the wrong type comes from the request and
// is input that was not understood; an unknown key is the policy's mistake.
type queryDecoder struct {
	path string
	err  error
}

func (d *queryDecoder) fail(cause Cause, key, problem string) {
	if d.err == nil {
		d.err = errorf(cause, "%s.%s %s", d.path, key, problem)
	}
}

func (d *queryDecoder) member(q *Query, keyTerm, value *ast.Term) {
	key := text(keyTerm)
	switch key {
	case "apiVersion":
		q.APIVersion = d.text(key, value)
	case "kind":
		q.Kind = d.text(key, value)
	case "namespace":
		q.Namespace = d.text(key, value)
	case "name":
		q.Name = d.text(key, value)
	case "fields":
		if q.Fields = d.texts(key, value); len(q.Fields) == 0 {
			d.fail(ContractViolated, key, "must have a field")
		}
	case "labels":
		q.Labels = d.texts(key, value)
	case "except":
		q.Except = d.lists(key, value)
	case "freshness":
		if q.Live = text(value) == "live"; !q.Live {
			d.fail(ContractViolated, key, `must be "live"`)
		}
	case "parent":
		if q.Parent = ast.Boolean(true).Equal(value.Value); !q.Parent {
			d.fail(ContractViolated, key, "must be true")
		}
	case "access":
		q.Access = d.access(value)
	case "rehearsal":
		q.TestRun, q.Document = true, valueOf(value)
		if q.Document.IsNull() {
			d.fail(InputNotUnderstood, key, "is null: say null for the whole fact where nothing is to be rehearsed")
		}
	default:
		d.fail(ContractViolated, key, "is not known")
	}
}

func (d *queryDecoder) text(key string, value *ast.Term) string {
	s := text(value)
	if s == "" {
		d.fail(InputNotUnderstood, key, fmt.Sprintf("is %v, not a non-empty string", value))
	}
	return s
}

func (d *queryDecoder) texts(key string, value *ast.Term) map[string]string {
	texts := map[string]string{}
	d.members(key, value, func(k string, v *ast.Term) { texts[k] = d.text(key+"."+k, v) })
	return texts
}

func (d *queryDecoder) lists(key string, value *ast.Term) map[string][]string {
	lists := map[string][]string{}
	d.members(key, value, func(k string, v *ast.Term) {
		if !isPath(k) {
			d.fail(ContractViolated, key, notAPath(k))
			return
		}
		array, ok := v.Value.(*ast.Array)
		if !ok {
			d.fail(ContractViolated, key+"."+k, "must be a list of strings")
			return
		}
		array.Foreach(func(element *ast.Term) { lists[k] = append(lists[k], d.text(key+"."+k, element)) })
	})
	return lists
}

func (d *queryDecoder) access(value *ast.Term) *Access {
	a := &Access{}
	d.members("access", value, func(k string, v *ast.Term) {
		into, known := map[string]*string{
			"verb": &a.Verb, "group": &a.Group, "resource": &a.Resource, "namespace": &a.Namespace, "name": &a.Name,
		}[k]
		if !known {
			d.fail(ContractViolated, "access."+k, "is not known")
			return
		}
		s, ok := v.Value.(ast.String)
		if !ok { // "" is the core group, and every namespace
			d.fail(InputNotUnderstood, "access."+k, fmt.Sprintf("is %v, not a string", v))
		}
		*into = string(s)
	})
	return a
}

func (d *queryDecoder) members(key string, value *ast.Term, each func(string, *ast.Term)) {
	object, ok := value.Value.(ast.Object)
	if !ok {
		d.fail(ContractViolated, key, "must be an object")
		return
	}
	object.Foreach(func(k, v *ast.Term) { each(text(k), v) })
}

// text gives a string term's string, and "" for every other term.
func text(t *ast.Term) string {
	s, _ := t.Value.(ast.String)
	return string(s)
}
