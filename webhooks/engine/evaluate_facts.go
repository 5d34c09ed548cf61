package engine

import (
	"context"
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
	// Namespaces of a list to look in, beside Namespace; nil does not restrict the list, and an empty list has no objects.
	Namespaces []string `json:"namespaces,omitzero"`
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
	// Part is what the policy reads of each object of a list; nil is all of it. A Reader may answer with more.
	Part *Part `json:"part,omitempty"`
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
	// Part is what the objects of a list were reduced to; nil if they are whole.
	Part *Part
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

// decodeFacts reads the facts of those names from the facts document. Each must be there: an undefined one means that the request lacks
// something its query is made of, and leaving it unasked would leave deny empty.
func (p *Policy) decodeFacts(names []string, document *ast.Term) (map[string]Fact, error) {
	object, ok := document.Value.(ast.Object)
	if !ok {
		return nil, errorf(ContractViolated, "facts is not an object")
	}
	return p.factsOf(names, func(name string) (*ast.Term, bool) {
		term := object.Get(ast.StringTerm(name))
		return term, term != nil
	})
}

// factsOf returns the facts of those names without their answers, by what each asks for.
func (p *Policy) factsOf(names []string, asks func(name string) (*ast.Term, bool)) (map[string]Fact, error) {
	facts := make(map[string]Fact, len(names))
	for _, name := range names {
		term, defined := asks(name)
		if !defined {
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
	asked := *q
	if q.Kind != "" && q.Name == "" && !q.Parent {
		asked.Part = p.fast.part(q.Fact)
	}
	return r.Read(ctx, asked)
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

// group is the part of an apiVersion before the version, with its slash.
func group(apiVersion string) string { return apiVersion[:strings.Index(apiVersion, "/")+1] }

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

// permittedQuery reads a question and holds it to spec.reads, sooner than anything is read.
func permittedQuery(name string, term *ast.Term, reads []Read) (*Query, error) {
	q, err := decodeQuery(name, term)
	if err == nil && q != nil && !q.Parent {
		err = permitted(reads, q)
	}
	return q, err
}

// decodeQuery reads a question, if it has the shape of one; null asks nothing. A value of the wrong type comes from the request and is input that was not
// understood; all else is the policy's mistake.
func decodeQuery(name string, term *ast.Term) (*Query, error) {
	if wrong := factShape(term).wrong(ruleFacts+"."+name, term); wrong != nil {
		return nil, wrong.asked()
	}
	if said := valueOf(term); !said.IsNull() {
		return questionIn(name, said), nil
	}
	return nil, nil
}

// questionIn is what a document asks for.
func questionIn(name string, said Value) *Query {
	q := &Query{
		Fact: name, APIVersion: said.Get("apiVersion").Text(), Kind: said.Get("kind").Text(), Namespace: said.Get("namespace").Text(),
		Name: said.Get("name").Text(), Parent: !said.Get("parent").IsNull(), Live: !said.Get("freshness").IsNull(),
		Fields: membersOf(said, "fields", Value.Text), Labels: membersOf(said, "labels", Value.Text), Except: membersOf(said, "except", Value.Texts),
	}
	maps.DeleteFunc(q.Except, func(_ string, values []string) bool { return len(values) == 0 }) // which says nothing
	if in, ok := said.member("namespaces"); ok {
		q.Namespaces = append([]string{}, in.Texts()...)
	}
	q.Document, q.TestRun = said.member("rehearsal")
	if to, ok := said.member("access"); ok {
		q.Access = &Access{
			Verb: to.Get("verb").Text(), Group: to.Get("group").Text(), Resource: to.Get("resource").Text(),
			Namespace: to.Get("namespace").Text(), Name: to.Get("name").Text(),
		}
	}
	return q
}

// asked is what is wrong with a question.
func (e *shapeError) asked() error {
	if e.input {
		return errorf(InputNotUnderstood, "%w", e)
	}
	return errorf(ContractViolated, "%w", e)
}

// membersOf gives what an object has under a key, by name; nil if it has nothing there.
func membersOf[T any](object Value, key string, as func(Value) T) map[string]T {
	of, ok := object.member(key)
	if !ok {
		return nil
	}
	found := map[string]T{}
	of.Each(func(name string, v Value) { found[name] = as(v) })
	return found
}

// text gives a string term's string, and "" for every other term.
func text(t *ast.Term) string {
	s, _ := t.Value.(ast.String)
	return string(s)
}
