package facts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/webhooks/engine"
)

// ErrNotSynced means that the cache of a kind has not seen the whole of it yet.
var ErrNotSynced = errors.New("not synced yet")

// Store holds what policies may ask for: an informer with indexes for each kind they read, and the way to the API server.
type Store struct {
	cache     cache.Cache
	live      *live
	rehearser Rehearser // nil if nothing is rehearsed
	pace      pace

	mu      sync.RWMutex
	kinds   map[schema.GroupVersionKind]*kind
	used    []engine.Read
	life    context.Context // of what Watch began
	changed func()
}

// kind is what the store has of one kind. It is guarded by the store's lock.
type kind struct {
	informer cache.Informer       // nil as long as nothing is watched
	indexes  []string             // that the informer has
	wanted   []string             // the indexes that it is to have
	declared bool                 // for good
	unwanted time.Time            // since when nobody asks for it any more
	resource schema.GroupResource // that it was watched by
	refused  time.Time            // when its watch was refused first
	pursued  bool                 // somebody is at it
	trouble  error                // why it cannot be read, as far as that is known
}

// NewStore makes a store without kinds. The informers live in cached, whose owner starts it. It should be the store's own:
// what restricts a cache to some objects of a kind would have policies believe that there are no others. direct must read
// past every cache and have limits of its own; it should have the same RESTMapper as cached, which could else hold up all
// reads while it asks what kinds there are.
func NewStore(cached cache.Cache, direct client.Client) *Store {
	return &Store{
		cache: cached, live: newLive(direct), kinds: map[schema.GroupVersionKind]*kind{}, changed: func() {},
		pace: pace{
			patience: 3 * time.Second, first: time.Second, longest: 30 * time.Second, grace: time.Minute, doubt: 10 * time.Second,
		},
	}
}

// Declare makes sure that each kind of reads has an informer with the indexes asked for. It does not wait for them, but for
// the API server to say what the kinds are. It is for reads that never change; others are for Watch.
func (s *Store) Declare(ctx context.Context, reads []engine.Read) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range reads {
		k := s.want(r)
		informer, err := s.inform(ctx, kindOf(r), k.informer, without(k.wanted, k.indexes))
		if err != nil {
			return fmt.Errorf("watching %s %s: %w", r.APIVersion, r.Kind, err)
		}
		k.informer, k.indexes, k.declared = informer, slices.Clone(k.wanted), true
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
func (s *Store) inform(ctx context.Context, gvk schema.GroupVersionKind, informer cache.Informer, indexes []string) (cache.Informer, error) {
	if informer == nil {
		var err error
		if informer, err = s.cache.GetInformer(ctx, objectOf(gvk), cache.BlockUntilSynced(false)); err != nil {
			return nil, err
		}
	}
	for _, field := range indexes {
		err := s.cache.IndexField(ctx, objectOf(gvk), field, func(o client.Object) []string {
			if value, ok := fieldOf(o.(*unstructured.Unstructured), field); ok {
				return []string{value}
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("indexing by %s: %w", field, err)
		}
	}
	return informer, nil
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
func (s *Store) synced(gvk schema.GroupVersionKind) (cache.Informer, error) {
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
	objects         []*unstructured.Unstructured
	resourceVersion string
}

// cached answers from the informer of the query's kind.
func (s *Store) cached(ctx context.Context, q engine.Query) (found, error) {
	gvk := schema.FromAPIVersionAndKind(q.APIVersion, q.Kind)
	informer, err := s.synced(gvk)
	if err != nil {
		return found{}, err
	}
	if q.Name != "" {
		return get(ctx, s.cache, q)
	}
	list := listOf(gvk)
	options := append(selection(q), client.UnsafeDisableDeepCopy) // converted at once, never changed
	if len(q.Fields) > 0 {
		options = append(options, client.MatchingFields(q.Fields))
	}
	if err := s.cache.List(ctx, list, options...); err != nil {
		return found{}, err
	}
	f := found{resourceVersion: lastSeen(informer)}
	for i := range list.Items {
		if !excepted(&list.Items[i], q.Except) {
			f.objects = append(f.objects, &list.Items[i])
		}
	}
	return f, nil
}

func lastSeen(informer cache.Informer) string {
	if shared, ok := informer.(toolscache.SharedInformer); ok {
		return shared.LastSyncResourceVersion()
	}
	return ""
}

// selection is the part of a query that caches and the API server understand alike.
func selection(q engine.Query) []client.ListOption {
	var options []client.ListOption
	if q.Namespace != "" {
		options = append(options, client.InNamespace(q.Namespace))
	}
	if len(q.Labels) > 0 {
		options = append(options, client.MatchingLabels(q.Labels))
	}
	return options
}

// Selects tells whether a query for a list asks for an object of its kind.
func Selects(q engine.Query, o *unstructured.Unstructured) bool {
	for field, value := range q.Fields {
		if found, ok := fieldOf(o, field); !ok || found != value {
			return false
		}
	}
	return (q.Namespace == "" || q.Namespace == o.GetNamespace()) &&
		labels.SelectorFromSet(q.Labels).Matches(labels.Set(o.GetLabels())) && !excepted(o, q.Except)
}

func excepted(o *unstructured.Unstructured, except map[string][]string) bool {
	for field, values := range except {
		if value, ok := fieldOf(o, field); ok && slices.Contains(values, value) {
			return true
		}
	}
	return false
}

// fieldOf gives the string at a dotted path.
func fieldOf(o *unstructured.Unstructured, path string) (string, bool) {
	value, ok, err := unstructured.NestedString(o.Object, strings.Split(path, ".")...)
	return value, ok && err == nil
}

func objectOf(gvk schema.GroupVersionKind) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(gvk)
	return o
}

func listOf(gvk schema.GroupVersionKind) *unstructured.UnstructuredList {
	l := &unstructured.UnstructuredList{}
	l.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	return l
}

// get reads one object, which is nobody's to change; that it does not exist is an answer.
func get(ctx context.Context, from client.Reader, q engine.Query) (found, error) {
	o := objectOf(schema.FromAPIVersionAndKind(q.APIVersion, q.Kind))
	err := from.Get(ctx, client.ObjectKey{Namespace: q.Namespace, Name: q.Name}, o, client.UnsafeDisableDeepCopy)
	if client.IgnoreNotFound(err) != nil {
		return found{}, err
	}
	if err != nil {
		return found{}, nil
	}
	return found{objects: []*unstructured.Unstructured{o}, resourceVersion: o.GetResourceVersion()}, nil
}
