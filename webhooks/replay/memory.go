package replay

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
	"sallyport.dev/sallyport/webhooks/record"
)

// memory has the facts of a record.
type memory struct {
	subject facts.Subject
	answers []*answer
}

// answer is one fact of one policy, or of none ("").
type answer struct {
	policy, fact string
	query        engine.Query
	key          string
	live         bool
	part         *engine.Part
	version      string
	content      any
	value        func() (engine.Value, error)
}

func newMemory(recorded *record.Record, review *decision.Review) *memory {
	m := &memory{subject: review.Subject()}
	m.remember("", recorded.Facts)
	for _, p := range recorded.Policies {
		m.remember(p.Policy, p.Facts)
	}
	return m
}

func (m *memory) remember(policy string, known map[string]record.Fact) {
	for _, name := range slices.Sorted(maps.Keys(known)) {
		f := known[name]
		if f.Query == nil || f.TooLarge { // it was not needed, or is not in the record
			continue
		}
		m.answers = append(m.answers, &answer{
			policy: policy, fact: name, query: *f.Query, key: keyOf(*f.Query, f.Document),
			live: f.Live, part: f.Part, version: f.ResourceVersion, content: f.Value,
			value: sync.OnceValues(func() (engine.Value, error) { return engine.ValueOf(f.Value) }),
		})
	}
}

// keyOf returns the same key for equal queries, whatever their names and freshness. document is the digest of a test run's
// document.
func keyOf(q engine.Query, document string) string {
	q.Live, q.Part = false, nil
	except := make(map[string][]string, len(q.Except))
	for field, values := range q.Except {
		except[field] = slices.Compact(slices.Sorted(slices.Values(values)))
	}
	if q.Except = nil; len(except) > 0 {
		q.Except = except
	}
	text, err := json.Marshal(q)
	if err != nil {
		panic(err) // it can always be marshalled
	}
	return string(text) + document
}

// reader answers the queries of one policy.
type reader struct {
	*memory
	policy string

	mu      sync.Mutex
	missing []engine.Query // queries without an answer
	given   []*answer
}

// Read implements engine.Reader. Every answer counts as live: the record has the answers of the confirmation.
func (r *reader) Read(_ context.Context, q engine.Query) (engine.Answer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.subject.Is(q) && !q.Parent && !q.Metadata {
		return engine.Answer{Value: r.subject.Old, Live: true}, nil
	}
	known := r.byPreference(q)
	if q.Parent && q.Kind == "" {
		return r.parent(q, known)
	}
	key := keyOf(q, record.DigestOf(&q))
	for _, a := range known {
		if a.key == key && a.part.Covers(q.Part) {
			r.given = append(r.given, a)
			v, err := a.value()
			return engine.Answer{Value: v, Live: true, ResourceVersion: a.version, Part: a.part}, err
		}
	}
	for _, a := range known {
		if content, ok := a.derive(q); ok {
			r.given = append(r.given, a)
			v, err := engine.ValueOf(content)
			return engine.Answer{Value: v, Live: true, ResourceVersion: a.version}, err
		}
	}
	if q.Metadata { // it could not be read then, or no policy denied
		return engine.Answer{}, facts.ErrUnreadable
	}
	return engine.Answer{}, r.recordMissing(q)
}

// parent returns the identity of the parent, if it was recorded.
func (r *reader) parent(q engine.Query, known []*answer) (engine.Answer, error) {
	for _, a := range known {
		if is := a.query; is.Parent {
			v, err := engine.ValueOf(map[string]any{
				"apiVersion": is.APIVersion, "kind": is.Kind, "metadata": map[string]any{"namespace": is.Namespace, "name": is.Name},
			})
			return engine.Answer{Value: v, Live: true}, err
		}
	}
	if r.policy == "" {
		// The override on the parent is only read if a policy denies the request, and none did.
		return engine.Answer{Live: true}, nil
	}
	return engine.Answer{}, r.recordMissing(q)
}

func (r *reader) recordMissing(q engine.Query) error {
	r.missing = append(r.missing, q)
	return fmt.Errorf("the record has no answer to: %s", &q)
}

// byPreference sorts the answers: those to the policy itself first, then the newest.
func (r *reader) byPreference(q engine.Query) []*answer {
	rank := func(a *answer) int {
		switch {
		case a.policy == r.policy && a.fact == q.Fact:
			return 0
		case a.policy == r.policy:
			return 1
		case a.live:
			return 2
		}
		return 3
	}
	sorted := slices.Clone(r.answers)
	slices.SortStableFunc(sorted, func(a, b *answer) int { return rank(a) - rank(b) })
	return sorted
}

// derive answers a query from the answer to a wider one, if that has everything.
func (a *answer) derive(q engine.Query) (content any, ok bool) {
	if q.Kind == "" || a.query.Access != nil || a.query.Metadata && !q.Metadata || a.part != nil {
		return nil, false
	}
	if q.Name != "" {
		return a.one(q)
	}
	list, isList := a.content.([]any)
	if !isList || !a.sameKind(q) || !contains(a.query, q) {
		return nil, false
	}
	narrowed := make([]any, 0, len(list))
	for _, o := range list {
		if object, ok := o.(map[string]any); ok && facts.Selects(q, &unstructured.Unstructured{Object: object}) {
			narrowed = append(narrowed, o)
		}
	}
	return narrowed, true
}

// one finds an object by its name. Only a list of all objects can show that it does not exist.
func (a *answer) one(q engine.Query) (content any, ok bool) {
	list, isList := a.content.([]any)
	if !isList {
		list = []any{a.content}
	}
	for _, o := range list {
		object, _ := o.(map[string]any)
		u := &unstructured.Unstructured{Object: object}
		same := a.sameKind(q) || a.query.Parent && u.GetAPIVersion() == q.APIVersion && u.GetKind() == q.Kind
		if same && object != nil && u.GetName() == q.Name && u.GetNamespace() == q.Namespace {
			return o, true
		}
	}
	all := a.query
	all.Name = ""
	return nil, isList && a.sameKind(q) && contains(a.query, engine.Query{Namespace: q.Namespace})
}

func (a *answer) sameKind(q engine.Query) bool {
	return a.query.APIVersion == q.APIVersion && a.query.Kind == q.Kind
}

// contains reports whether the wide query selects everything that the narrow list query selects.
func contains(wide, narrow engine.Query) bool {
	for field, value := range wide.Fields {
		if narrow.Fields[field] != value {
			return false
		}
	}
	for key, value := range wide.Labels {
		if narrow.Labels[key] != value {
			return false
		}
	}
	for field, values := range wide.Except {
		for _, value := range values {
			if !slices.Contains(narrow.Except[field], value) {
				return false
			}
		}
	}
	within := wide.Places()
	places := narrow.Places()
	outside := func(place string) bool { return !slices.Contains(within, place) }
	return wide.Name == "" && (within == nil || places != nil && !slices.ContainsFunc(places, outside))
}

// Names of fields that records omit.
var (
	secretFields = []string{"data", "stringData"}
	lastApplied  = corev1.LastAppliedConfigAnnotation
)

// holdsSecret reports whether a document contains a Secret, at any depth.
func holdsSecret(document any) bool {
	switch node := document.(type) {
	case map[string]any:
		if node["kind"] == "Secret" && node["apiVersion"] == "v1" {
			return true
		}
		for _, child := range node {
			if holdsSecret(child) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(node, holdsSecret)
	}
	return false
}
