package facts

import (
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

// ErrNotSynced means that the cache of a kind has not seen the whole of it yet.
var ErrNotSynced = errors.New("not synced yet")

// Store holds what policies may ask for: an informer with indexes for each kind they read, and the way to the API server.
type Store struct {
	cache      cache.Cache
	live       *live
	testRunner TestRunner // nil if nothing is tested
	home       string     // the namespace that no policy is told of
	may        func(policy, group, resource string) (allowed, known bool)
	pace       pace

	mu      sync.RWMutex
	kinds   map[schema.GroupVersionKind]*kind
	routes  map[schema.GroupVersionKind]*route // to what is only read live
	used    []engine.Read
	life    context.Context // of what Watch began
	changed func()
	// relisted is closed when the list of what policies may read changes.
	relisted chan struct{}
}

// kind is what the store has of one kind. It is guarded by the store's lock.
type kind struct {
	informer informer             // nil as long as nothing is watched
	indexes  []string             // that the informer has
	wanted   []string             // the indexes that it is to have
	declared bool                 // for good
	readers  []string             // policies that have asked for it
	unwanted time.Time            // since when nobody asks for it any more
	resource schema.GroupResource // empty until it is known
	refused  time.Time            // when its watch was refused first
	failing  time.Time            // when its list failed first
	seen     string               // the version that had been seen then
	failed   error                // why its list has failed, as long as nothing was seen
	pursued  bool                 // somebody is at it
	trouble  error                // why it cannot be read, as far as that is known
}

// informer with the objects that it has seen.
type informer = toolscache.SharedIndexInformer

// NewStore makes a store without kinds. The informers live in cached, whose owner starts it. It should be the store's own:
// what restricts a cache to some objects of a kind would have policies believe that there are no others. [Compact] must be
// its transform. direct must read past every cache and have limits of its own; it should have the same RESTMapper as cached, which
// could else hold up all reads while it asks what kinds there are. Without a cache everything is read from direct.
func NewStore(cached cache.Cache, direct client.Client) *Store {
	s := &Store{
		cache: cached, live: newLive(direct), kinds: map[schema.GroupVersionKind]*kind{},
		routes: map[schema.GroupVersionKind]*route{}, changed: func() {},
		may:      func(string, string, string) (allowed, known bool) { return true, true },
		relisted: make(chan struct{}),
		pace: pace{
			patience: 3 * time.Second, first: time.Second, longest: 30 * time.Second, grace: time.Minute, doubt: 10 * time.Second,
			stale: time.Minute, recheck: time.Minute,
		},
	}
	s.live.refused = s.doubted
	return s
}

// Declare makes sure that each kind of reads has an informer with the indexes asked for. It does not wait for them, but for
// the API server to say what the kinds are. It is for reads that never change; others are for Watch.
func (s *Store) Declare(ctx context.Context, reads []engine.Read) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range reads {
		k := s.want(r)
		of, err := s.inform(ctx, kindOf(r), k.informer, without(k.wanted, k.indexes))
		if err != nil {
			return fmt.Errorf("watching %s %s: %w", r.APIVersion, r.Kind, err)
		}
		k.informer, k.indexes, k.declared = of, slices.Clone(k.wanted), true
	}
	s.used = append(s.used, reads...)
	return nil
}

// want gives the entry of a kind, with the indexes of a read among those that it is to have.
func (s *Store) want(r engine.Read) *kind {
	k := s.kinds[kindOf(r)]
	if k == nil {
		k = &kind{}
		s.kinds[kindOf(r)] = k
	}
	k.wanted, k.unwanted = append(k.wanted, without(r.Indexes, k.wanted)...), time.Time{}
	return k
}

// inform gives a kind's informer, a new one if there is none yet, with further indexes. One that runs already is indexed
// while it goes on answering.
func (s *Store) inform(ctx context.Context, gvk schema.GroupVersionKind, of informer, indexes []string) (informer, error) {
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
		if of.GetIndexer().GetIndexers()[name] != nil { // an attempt failed after it, or the same fields are listed in another order
			continue
		}
		if err := of.AddIndexers(toolscache.Indexers{name: byFields(fields)}); err != nil {
			return nil, fmt.Errorf("indexing by %s: %w", index, err)
		}
	}
	return of, nil
}

func indexName(fields []string) string { return "fields:" + strings.Join(fields, ",") }

// anywhere stands for all namespaces. Objects of cluster-scoped kinds are in none, and are found whichever is asked for.
const anywhere = "*"

// byFields files objects by fields together, within their namespace and anywhere.
func byFields(fields []string) toolscache.IndexFunc {
	return func(o any) (filed []string, err error) {
		of := o.(*object)
		for _, key := range of.keys(fields) {
			filed = append(filed, of.namespace+"/"+key)
			if of.namespace != "" {
				filed = append(filed, anywhere+"/"+key)
			}
		}
		return filed, nil
	}
}

// Synced tells whether every kind that is used to decide has been seen as a whole; if not, the error names the first that
// has not.
func (s *Store) Synced() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, r := range s.used {
		if k := s.kinds[kindOf(r)]; k == nil || !k.answers(r) {
			return fmt.Errorf("%s: %w", r.Kind, ErrNotSynced)
		}
	}
	return nil
}

// answers tells whether the informer has seen the whole of the kind and has the indexes of a read.
func (k *kind) answers(r engine.Read) bool {
	return k.informer != nil && k.informer.HasSynced() && len(without(r.Indexes, k.indexes)) == 0
}

// synced gives the informer of a kind, or the error that says why the cache cannot answer for it.
func (s *Store) synced(gvk schema.GroupVersionKind) (informer, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	k := s.kinds[gvk]
	if k == nil {
		return nil, fmt.Errorf("%s is not watched", gvk)
	}
	if k.informer == nil || !k.informer.HasSynced() {
		return nil, fmt.Errorf("%s: %w", gvk.Kind, ErrNotSynced)
	}
	return k.informer, nil
}

func kindOf(r engine.Read) schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(r.APIVersion, r.Kind)
}

// without gives what is in a list but not in another one.
func without(list, others []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(others, s) })
}

// found is what a question brought up, before the object under review is left out.
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
		return named(of.GetIndexer(), q)
	}
	objects, err := listed(of.GetIndexer(), q)
	return found{objects: objects, resourceVersion: of.LastSyncResourceVersion()}, err
}

// named gives the object of a query's name.
func named(objects toolscache.Indexer, q engine.Query) (found, error) {
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

// listed gives the objects that a query for a list asks for.
func listed(objects toolscache.Indexer, q engine.Query) (selected []*object, err error) {
	filed, err := filed(objects, q)
	for _, o := range filed {
		if o := o.(*object); o.labelled(q.Labels) && !o.excepted(q.Except) {
			selected = append(selected, o)
		}
	}
	return selected, err
}

// filed gives the objects of a query's namespace and fields.
func filed(objects toolscache.Indexer, q engine.Query) (all []any, err error) {
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
		places = []string{anywhere}
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

// getMetadata reads who an object is, its version and generation, whether it is going, and its override.
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

// get reads one object; that it does not exist is an answer.
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
	made, err := newObject(o)
	return found{objects: []*object{made}, resourceVersion: o.GetResourceVersion()}, err
}
