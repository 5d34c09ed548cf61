package facts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
	cache cache.Cache
	live  *live

	mu    sync.RWMutex
	kinds map[schema.GroupVersionKind]*kind
}

type kind struct {
	informer cache.Informer
	indexes  []string
}

// NewStore makes a store without kinds. The informers live in cached, whose owner starts it; direct must read past every
// cache and have limits of its own.
func NewStore(cached cache.Cache, direct client.Client) *Store {
	return &Store{cache: cached, live: newLive(direct), kinds: map[schema.GroupVersionKind]*kind{}}
}

// Declare makes sure that each kind of reads has an informer with the indexes asked for. It does not wait for them.
func (s *Store) Declare(ctx context.Context, reads []engine.Read) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range reads {
		if err := s.declare(ctx, r); err != nil {
			return fmt.Errorf("watching %s %s: %w", r.APIVersion, r.Kind, err)
		}
	}
	return nil
}

func (s *Store) declare(ctx context.Context, r engine.Read) error {
	gvk := schema.FromAPIVersionAndKind(r.APIVersion, r.Kind)
	k := s.kinds[gvk]
	if k == nil {
		informer, err := s.cache.GetInformer(ctx, objectOf(gvk), cache.BlockUntilSynced(false))
		if err != nil {
			return err
		}
		k = &kind{informer: informer}
		s.kinds[gvk] = k
	}
	for _, field := range r.Indexes {
		if slices.Contains(k.indexes, field) {
			continue
		}
		err := s.cache.IndexField(ctx, objectOf(gvk), field, func(o client.Object) []string {
			if value, ok := fieldOf(o.(*unstructured.Unstructured), field); ok {
				return []string{value}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("indexing by %s: %w", field, err)
		}
		k.indexes = append(k.indexes, field)
	}
	return nil
}

// Synced tells whether every declared kind has been seen as a whole; if not, the error names the first that has not.
func (s *Store) Synced() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for gvk, k := range s.kinds {
		if !k.informer.HasSynced() {
			return fmt.Errorf("%s: %w", gvk.Kind, ErrNotSynced)
		}
	}
	return nil
}

// synced gives the informer of a kind, or the error that says why the cache cannot answer for it.
func (s *Store) synced(gvk schema.GroupVersionKind) (cache.Informer, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	k := s.kinds[gvk]
	if k == nil {
		return nil, fmt.Errorf("%s is not watched", gvk)
	}
	if !k.informer.HasSynced() {
		return nil, fmt.Errorf("%s: %w", gvk.Kind, ErrNotSynced)
	}
	return k.informer, nil
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

// get reads one object; that it does not exist is an answer.
func get(ctx context.Context, from client.Reader, q engine.Query) (found, error) {
	o := objectOf(schema.FromAPIVersionAndKind(q.APIVersion, q.Kind))
	err := from.Get(ctx, client.ObjectKey{Namespace: q.Namespace, Name: q.Name}, o)
	if client.IgnoreNotFound(err) != nil {
		return found{}, err
	}
	if err != nil {
		return found{}, nil
	}
	return found{objects: []*unstructured.Unstructured{o}, resourceVersion: o.GetResourceVersion()}, nil
}
