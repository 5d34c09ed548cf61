package engine

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Query is the query of one fact. It has exactly one of four forms: Access, Parent, TestRun, or a Kind.
type Query struct {
	// Fact is the name under which the answer appears in input.facts.
	Fact string `json:"-"`
	// APIVersion and Kind are those of the objects.
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	// Namespace is the objects' namespace; empty for cluster-scoped kinds, and for a list over all namespaces.
	Namespace string `json:"namespace,omitempty"`
	// Namespaces are further namespaces of a list; nil does not restrict the list, and an empty list selects no objects.
	Namespaces []string `json:"namespaces,omitzero"`
	// Name selects one object; the answer is that object or null. Without it the answer is a list.
	Name string `json:"name,omitempty"`
	// Fields the objects must have with these values; a path through a list (disks[].name) means any of its elements. Together the
	// fields are an index of spec.reads.
	Fields map[string]string `json:"fields,omitempty"`
	// Labels the objects must have.
	Labels map[string]string `json:"labels,omitempty"`
	// Except excludes the objects whose field has one of the values, in any element of the lists that its path goes through.
	Except map[string][]string `json:"except,omitempty"`
	// Parent queries the object whose subresource is requested. Without a Kind it queries only the object's identity, and nothing
	// is read: the answer has apiVersion, kind and metadata with namespace and name.
	Parent bool `json:"parent,omitempty"`
	// Metadata queries only the identity, version and override of an object. Policies cannot set it.
	Metadata bool `json:"metadata,omitempty"`
	// Access queries whether the requester has a right; the answer is a boolean.
	Access *Access `json:"access,omitempty"`
	// TestRun queries the test results of Document, which the engine does not interpret; the answer is the Reader's.
	TestRun bool `json:"testRun,omitempty"`
	// Document is not encoded with the query: records have it in the request.
	Document Value `json:"-"`
	// Live queries the API server instead of a cache.
	Live bool `json:"live,omitempty"`
	// Some lets a live list lack objects that the cache does not have. Policies cannot set it.
	Some bool `json:"some,omitempty"`
	// Part lists what the policy reads of each object of a list; nil means all. A Reader may answer with more.
	Part *Part `json:"part,omitempty"`
}

// Access is a right, as in a SubjectAccessReview.
type Access struct {
	Verb      string `json:"verb"`
	Group     string `json:"group,omitempty"`
	Resource  string `json:"resource"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
}

// Answer is the result of a query.
type Answer struct {
	// Value is the object or null for a query by name, the list for the others, a boolean for Access, anything for a TestRun.
	Value Value
	// Live reports whether the answer came from the API server and not from a cache.
	Live bool
	// ResourceVersion is the version up to which the answer is complete; empty if unknown.
	ResourceVersion string
	// Part is what the objects of a list were reduced to; nil if they are complete.
	Part *Part
}

// Reader answers the queries of one request. It leaves the object under review out of lists, because a policy evaluates the state
// without the request. An error means "unknown", never "none".
type Reader interface {
	Read(ctx context.Context, q Query) (Answer, error)
}

// Fact is a query with its answer.
type Fact struct {
	Query  *Query // nil if not needed for this request
	Answer Answer
}

// decodeFacts decodes the facts of those names. Each must be defined: an undefined one means that the request lacks something that
// its query uses, and without its answer deny would be empty.
func (p *Policy) decodeFacts(names []string, document *ast.Term) (map[string]Fact, error) {
	object, ok := document.Value.(ast.Object)
	if !ok {
		return nil, errorf(ContractViolated, "facts is not an object")
	}
	facts := make(map[string]Fact, len(names))
	for _, name := range names {
		term := object.Get(ast.StringTerm(name))
		if term == nil {
			return nil, undefined(name)
		}
		q, err := permittedQuery(name, term, p.reads)
		if err != nil {
			return nil, err
		}
		facts[name] = Fact{Query: q}
	}
	return facts, nil
}

// read passes a query to the Reader. It checks queries for objects against spec.reads.
func (p *Policy) read(ctx context.Context, q *Query, r Reader) (Answer, error) {
	if q.Parent && q.Kind == "" {
		if err := p.resolve(ctx, q, r); err != nil {
			return Answer{}, err
		}
	}
	if err := permitted(p.reads, q); err != nil {
		return Answer{}, err
	}
	asked := *q
	if q.Kind != "" && q.Name == "" && !q.Parent {
		asked.Part = p.parts[q.Fact]
	}
	return r.Read(ctx, asked)
}

// resolve sets the identity of the parent in its query, with the version that spec.reads lists for the kind. The parent is read live:
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

// group returns the part of an apiVersion before the version, with its slash.
func group(apiVersion string) string { return apiVersion[:strings.Index(apiVersion, "/")+1] }

// permitted checks a query against spec.reads, which also sets whether it is read live.
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

// isOf reports whether the query is for objects of a kind in spec.reads.
func (q *Query) isOf(r Read) bool { return r.APIVersion == q.APIVersion && r.Kind == q.Kind }

func undefined(fact string) error {
	e := errorf(InputNotUnderstood, "facts.%s is undefined for this request", fact)
	e.fact = fact
	return e
}

// permittedQuery decodes a query and checks it against spec.reads, before anything is read.
func permittedQuery(name string, term *ast.Term, reads []Read) (*Query, error) {
	q, err := decodeQuery(name, term)
	if err == nil && q != nil && !q.Parent {
		err = permitted(reads, q)
	}
	return q, err
}

// decodeQuery decodes a query; null means that none is needed. If a value is of the wrong type where a value of the request may be,
// the input was not understood; all other errors are the policy's.
func decodeQuery(name string, term *ast.Term) (*Query, error) {
	if wrong := factShape(term).wrong(ruleFacts+"."+name, term); wrong != nil {
		return nil, wrong.queryError()
	}
	if said := valueOf(term); !said.IsNull() {
		return queryIn(name, said), nil
	}
	return nil, nil
}

// queryIn returns the query in a document.
func queryIn(name string, said Value) *Query {
	q := &Query{
		Fact: name, APIVersion: said.Get("apiVersion").Text(), Kind: said.Get("kind").Text(), Namespace: said.Get("namespace").Text(),
		Name: said.Get("name").Text(), Parent: !said.Get("parent").IsNull(), Live: !said.Get("freshness").IsNull(),
		Fields: membersOf(said, "fields", Value.Text), Labels: membersOf(said, "labels", Value.Text), Except: membersOf(said, "except", Value.Texts),
	}
	maps.DeleteFunc(q.Except, func(_ string, values []string) bool { return len(values) == 0 }) // it excludes nothing
	if in, ok := said.member("namespaces"); ok {
		q.Namespaces = append([]string{}, in.Texts()...)
	}
	q.Document, q.TestRun = said.member("testRun")
	if to, ok := said.member("access"); ok {
		q.Access = &Access{
			Verb: to.Get("verb").Text(), Group: to.Get("group").Text(), Resource: to.Get("resource").Text(),
			Namespace: to.Get("namespace").Text(), Name: to.Get("name").Text(),
		}
	}
	return q
}

// queryError returns the error of a malformed query.
func (e *shapeError) queryError() error {
	if e.input {
		return errorf(InputNotUnderstood, "%w", e)
	}
	return errorf(ContractViolated, "%w", e)
}

// membersOf returns the members of an object under a key; nil if there are none.
func membersOf[T any](object Value, key string, as func(Value) T) map[string]T {
	of, ok := object.member(key)
	if !ok {
		return nil
	}
	found := map[string]T{}
	of.Each(func(name string, v Value) { found[name] = as(v) })
	return found
}

// text returns the string of a string term, and "" for other terms.
func text(t *ast.Term) string {
	s, _ := t.Value.(ast.String)
	return string(s)
}
