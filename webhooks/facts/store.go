package facts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/engine"
)

// ErrNotSynced means that the cache of a kind has not synced yet.
var ErrNotSynced = errors.New("not synced yet")

// Store answers queries: it has an informer with indexes for each kind that policies read, and a client for live reads.
type Store struct {
	cache        cache.Cache
	live         *live
	testRunner   TestRunner // nil if tests cannot be run
	ownNamespace string     // the namespace whose objects are hidden from policies
	may          func(policy, group, resource string) (allowed, known bool)
	pace         pace

	mu      sync.RWMutex
	kinds   map[reading]*kind
	used    []engine.Read
	changed func()
}

// informer is a cache of the objects of a kind.
type informer = toolscache.SharedIndexInformer

// NewStore returns a store without kinds. The informers are in cached, whose owner starts it. The store should be its only user:
// a restriction to some objects of a kind would hide the others from policies. Its transform must be [Compact]. direct must bypass
// every cache and have rate limits of its own; it should share cached's RESTMapper, which could otherwise block all reads during
// discovery. If cached is nil, all reads use direct.
func NewStore(cached cache.Cache, direct client.Client) *Store {
	s := &Store{
		cache: cached, live: newLive(direct), kinds: map[reading]*kind{}, changed: func() {},
		may:  func(string, string, string) (allowed, known bool) { return true, true },
		pace: pace{first: time.Second, longest: 30 * time.Second, recheck: time.Minute, grace: time.Minute, doubt: 30 * time.Second},
	}
	s.live.onForbidden, s.live.cached = s.requestRecheck, s.synced
	return s
}

// Declare makes sure that each kind of reads that is cached has an informer with the needed indexes. It waits for discovery, but not for
// the informers to sync. It is for reads that never change; for others use Watch.
func (s *Store) Declare(ctx context.Context, reads []engine.Read) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = append(s.used, cached(reads)...)
	for _, r := range cached(reads) {
		k := s.entryFor(r)
		of, err := s.ensureInformer(ctx, kindOf(r), k.informer, difference(k.wanted, k.indexes))
		if err != nil {
			return fmt.Errorf("watching %s %s: %w", r.APIVersion, r.Kind, err)
		}
		k.informer, k.indexes = of, slices.Clone(k.wanted)
	}
	return nil
}

// cached returns the reads that an informer answers.
func cached(reads []engine.Read) []engine.Read {
	return slices.DeleteFunc(slices.Clone(reads), func(r engine.Read) bool { return r.Live })
}

// entryFor returns the entry of a kind, and adds the indexes that r needs.
func (s *Store) entryFor(r engine.Read) *kind {
	k := s.kinds[readingOf(r)]
	if k == nil {
		k = &kind{}
		s.kinds[readingOf(r)] = k
	}
	k.wanted, k.unwanted = append(k.wanted, difference(r.Indexes, k.wanted)...), time.Time{}
	return k
}

// ensureInformer returns a kind's informer, a new one if of is nil, with further indexes. A running informer keeps answering meanwhile.
func (s *Store) ensureInformer(ctx context.Context, gvk schema.GroupVersionKind, of informer, indexes []string) (informer, error) {
	if of == nil {
		made, err := s.cache.GetInformer(ctx, emptyOf(gvk), cache.BlockUntilSynced(false))
		if err != nil {
			return nil, err
		}
		var ok bool
		if of, ok = made.(informer); !ok {
			return nil, fmt.Errorf("a %T has no objects to look at", made)
		}
	}
	for _, index := range indexes {
		fields := engine.IndexFields(index)
		name := indexName(fields)
		if of.GetIndexer().GetIndexers()[name] != nil { // added by an attempt that failed later, or for the same fields in another order
			continue
		}
		if err := of.AddIndexers(toolscache.Indexers{name: byFields(fields)}); err != nil {
			return nil, fmt.Errorf("indexing by %s: %w", index, err)
		}
	}
	return of, nil
}

func indexName(fields []string) string { return "fields:" + strings.Join(fields, ",") }

// allNamespaces stands for all namespaces in index keys. Objects of cluster-scoped kinds have no namespace, and are found in each.
const allNamespaces = "*"

// byFields returns an index by several fields together, within a namespace and anywhere.
func byFields(fields []string) toolscache.IndexFunc {
	return func(o any) (filed []string, err error) {
		of := o.(*object)
		for _, key := range of.keys(fields) {
			filed = append(filed, of.namespace+"/"+key)
			if of.namespace != "" {
				filed = append(filed, allNamespaces+"/"+key)
			}
		}
		return filed, nil
	}
}

// Synced returns an error that names the first kind of the active policies that has not synced; nil if all have.
func (s *Store) Synced() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, r := range s.used {
		if k := s.kinds[readingOf(r)]; k == nil || !k.canAnswer(r) {
			return fmt.Errorf("%s: %w", r.Kind, ErrNotSynced)
		}
	}
	return nil
}

// synced returns the informer of a kind, or why the cache cannot answer for it.
func (s *Store) synced(gvk schema.GroupVersionKind) (informer, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	k := s.kinds[reading{gvk, false}]
	switch {
	case k == nil:
		return nil, fmt.Errorf("%s is not watched", gvk)
	case !k.synced():
		return nil, fmt.Errorf("%s: %w", gvk.Kind, cmp.Or(k.problem, ErrNotSynced))
	}
	return k.informer, nil
}

func kindOf(r engine.Read) schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(r.APIVersion, r.Kind)
}

// difference returns the elements of list that are not in others.
func difference(list, others []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(others, s) })
}

// found is the result of a query, before the object under review is removed.
type found struct {
	objects         []*object
	resourceVersion string
	part            *engine.Part // that the objects were reduced to
}

// cached answers from the informer of the query's kind.
func (s *Store) cached(q engine.Query) (found, error) {
	of, err := s.synced(schema.FromAPIVersionAndKind(q.APIVersion, q.Kind))
	if err != nil {
		return found{}, err
	}
	if q.Name != "" {
		return byName(of.GetIndexer(), q)
	}
	objects, err := selectList(of.GetIndexer(), q)
	return found{objects: objects, resourceVersion: of.LastSyncResourceVersion()}, err
}

// byName returns the object of a query's name.
func byName(objects toolscache.Indexer, q engine.Query) (found, error) {
	for _, namespace := range []string{q.Namespace, ""} {
		o, there, err := objects.GetByKey(toolscache.ObjectName{Namespace: namespace, Name: q.Name}.String())
		if err != nil {
			return found{}, err
		}
		if there {
			one := o.(*object)
			return found{objects: []*object{one}, resourceVersion: one.resourceVersion}, nil
		}
	}
	return found{}, nil
}

// selectList returns the objects that a list query selects.
func selectList(objects toolscache.Indexer, q engine.Query) (selected []*object, err error) {
	filed, err := lookUp(objects, q)
	for _, o := range filed {
		if o := o.(*object); o.hasLabels(q.Labels) && !o.isExcepted(q.Except) {
			selected = append(selected, o)
		}
	}
	return selected, err
}

// lookUp returns the objects of a query's namespaces and fields.
func lookUp(objects toolscache.Indexer, q engine.Query) (all []any, err error) {
	places := q.Places()
	if len(q.Fields) == 0 && places == nil {
		return objects.List(), nil
	}
	index, key := toolscache.NamespaceIndex, ""
	if len(q.Fields) > 0 {
		fields := slices.Sorted(maps.Keys(q.Fields))
		index, key = indexName(fields), "/"
		for _, field := range fields {
			key = extended(key, q.Fields[field])
		}
	}
	if places == nil {
		places = []string{allNamespaces}
	}
	for _, namespace := range append(places, "") {
		some, err := objects.ByIndex(index, namespace+key)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

func emptyOf(gvk schema.GroupVersionKind) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(gvk)
	return o
}

func listOf(gvk schema.GroupVersionKind) *unstructured.UnstructuredList {
	l := &unstructured.UnstructuredList{}
	l.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	return l
}

// getMetadata reads an object's identity, version, generation, deletion timestamp and override.
func getMetadata(ctx context.Context, from client.Reader, key client.ObjectKey, into *unstructured.Unstructured) error {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(into.GroupVersionKind())
	if err := from.Get(ctx, key, o); err != nil {
		return unreadable(err)
	}
	into.SetNamespace(o.Namespace)
	into.SetName(o.Name)
	into.SetUID(o.UID)
	into.SetResourceVersion(o.ResourceVersion)
	into.SetGeneration(o.Generation)
	into.SetDeletionTimestamp(o.DeletionTimestamp)
	if text, there := o.Annotations[v1alpha1.AnnotationOverride]; there {
		into.SetAnnotations(map[string]string{v1alpha1.AnnotationOverride: text})
	}
	return nil
}

// get reads one object. A missing object is not an error.
func get(ctx context.Context, from client.Reader, q engine.Query) (found, error) {
	o := emptyOf(schema.FromAPIVersionAndKind(q.APIVersion, q.Kind))
	key := client.ObjectKey{Namespace: q.Namespace, Name: q.Name}
	var err error
	if q.Metadata {
		err = getMetadata(ctx, from, key, o)
	} else {
		err = from.Get(ctx, key, o)
	}
	if client.IgnoreNotFound(err) != nil {
		return found{}, err
	}
	if err != nil {
		return found{}, nil
	}
	made, err := newFact(o)
	return found{objects: []*object{made}, resourceVersion: o.GetResourceVersion()}, err
}
