package facts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/webhooks/engine"
)

// unselectable remembers the fields that the API server cannot select by. It can select by metadata, by a few fields of each built-in
// kind, and by the selectableFields of custom resources, but publishes no list. An entry expires, because a definition may gain a
// selectable field.
type unselectable struct{ known *utilcache.LRUExpireCache }

// fieldOf is a field of a kind.
type fieldOf struct {
	schema.GroupVersionKind
	path string
}

const (
	// maxUnselectable limits the fields that are remembered: policies may take names of fields from the request.
	maxUnselectable = 1000
	// unselectableFor is the lifetime of an entry.
	unselectableFor = time.Minute
)

func newUnselectable() unselectable {
	return unselectable{utilcache.NewLRUExpireCache(maxUnselectable)}
}

// has reports whether the API server cannot select by a field.
func (f unselectable) has(gvk schema.GroupVersionKind, path string) bool {
	_, refused := f.known.Get(fieldOf{gvk, path})
	return refused || strings.Contains(path, "[]")
}

// split separates the selectors of a query: asked is for the API server, left is applied here.
func (f unselectable) split(q engine.Query) (asked, left engine.Query) {
	gvk := schema.FromAPIVersionAndKind(q.APIVersion, q.Kind)
	asked = q
	asked.Fields, left.Fields = partition(q.Fields, func(path string) bool { return f.has(gvk, path) })
	asked.Except, left.Except = partition(q.Except, func(path string) bool { return f.has(gvk, path) })
	return asked, left
}

func partition[V any](all map[string]V, ours func(path string) bool) (asked, left map[string]V) {
	asked, left = maps.Clone(all), maps.Clone(all)
	maps.DeleteFunc(asked, func(path string, _ V) bool { return ours(path) })
	maps.DeleteFunc(left, func(path string, _ V) bool { return !ours(path) })
	return asked, left
}

// list reads the objects that a query selects. Selectors that the API server does not support are applied here.
func (l *live) list(ctx context.Context, q engine.Query) (found, error) {
	if q.Some {
		if f, ok, err := l.some(ctx, q); ok {
			return f, err
		}
	}
	if _, err := labels.ValidatedSelectorFromSet(q.Labels); err != nil { // an invalid value could select by more labels
		return found{}, fmt.Errorf("invalid labels: %w", err)
	}
	asked, left := l.unselectable.split(q)
	f, err := l.pages(ctx, asked, left)
	if !apierrors.IsBadRequest(err) {
		return f, err
	}
	if learned, failed := l.probeFields(ctx, asked); failed != nil || !learned {
		return found{}, errors.Join(failed, err)
	}
	asked, left = l.unselectable.split(q)
	return l.pages(ctx, asked, left)
}

// probeFields tries each field by itself and reports whether it found one that the API server cannot select by.
func (l *live) probeFields(ctx context.Context, q engine.Query) (learned bool, err error) {
	gvk := schema.FromAPIVersionAndKind(q.APIVersion, q.Kind)
	for _, one := range terms(q) {
		err := l.client.List(ctx, listOf(gvk), client.InNamespace(q.Namespace), client.Limit(1), client.MatchingFieldsSelector{Selector: one})
		switch {
		case apierrors.IsBadRequest(err):
			l.unselectable.known.Add(fieldOf{gvk, one.Requirements()[0].Field}, nil, unselectableFor)
			learned = true
		case err != nil:
			return false, err
		}
	}
	return learned, nil
}

// listing collects the objects of one or more namespaces for a query.
type listing struct {
	found
	asked, left engine.Query
	read, bytes int
	limit       int64 // of the next page
	// cache is set if metadata are listed, and compared with it. changed are the objects that differ.
	cache   toolscache.Indexer
	changed []*object
}

// pages lists the objects that asked selects and keeps those that left selects. It fails rather than truncate the answer.
func (l *live) pages(ctx context.Context, asked, left engine.Query) (found, error) {
	if of, err := l.cached(schema.FromAPIVersionAndKind(asked.APIVersion, asked.Kind)); err == nil {
		f, err := l.allPages(ctx, listing{found: found{part: asked.Part}, asked: asked, left: left, limit: firstPage, cache: of.GetIndexer()})
		if !errors.Is(err, errManyChanged) && !apierrors.IsNotAcceptable(err) { // an API server may have no metadata
			return f, err
		}
	}
	return l.allPages(ctx, listing{found: found{part: asked.Part}, asked: asked, left: left, limit: firstPage})
}

func (l *live) allPages(ctx context.Context, all listing) (found, error) {
	places := all.asked.Places()
	switch {
	case places == nil:
		places = []string{metav1.NamespaceAll}
	case len(places) > mostPlaces:
		all.left.Namespaces, places = places, []string{metav1.NamespaceAll}
	}
	for _, namespace := range places {
		if err := l.pagesOf(ctx, namespace, &all); err != nil {
			return found{}, err
		}
	}
	now, err := l.again(ctx, all.changed, all.asked, all.left)
	all.objects = append(all.objects, now...)
	return all.found, err
}

// pagesOf adds the objects of a namespace to a listing.
func (l *live) pagesOf(ctx context.Context, namespace string, all *listing) error {
	options := []client.ListOption{
		client.InNamespace(namespace), client.MatchingLabels(all.asked.Labels),
		client.MatchingFieldsSelector{Selector: fields.AndSelectors(terms(all.asked)...)},
	}
	for token := ""; ; {
		page := all.page()
		if err := l.client.List(ctx, page, append(options, client.Limit(all.limit), client.Continue(token))...); err != nil {
			return err
		}
		if err := all.add(page); err != nil {
			return err
		}
		token = page.GetContinue()
		switch {
		case all.bytes > maxBytes:
			return fmt.Errorf("the matching objects of kind %s have more than %d MiB", all.asked.Kind, maxBytes>>20)
		case token == "":
			return nil
		case all.cache == nil && all.read >= maxObjects, all.read >= maxCompared:
			return tooMany(all.asked.Kind, all.left)
		}
	}
}

// page returns an empty page.
func (all *listing) page() client.ObjectList {
	gvk := schema.FromAPIVersionAndKind(all.asked.APIVersion, all.asked.Kind)
	if all.cache == nil {
		return listOf(gvk)
	}
	metadata := &metav1.PartialObjectMetadataList{}
	metadata.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	return metadata
}

// add keeps the selected objects of a page, and sets the next page's size from the size of these objects.
func (all *listing) add(page client.ObjectList) (err error) {
	all.resourceVersion = cmp.Or(all.resourceVersion, page.GetResourceVersion())
	n, bytes := 0, 0
	switch page := page.(type) {
	case *metav1.PartialObjectMetadataList:
		n, bytes = len(page.Items), page.Size()
		err = all.compare(page.Items)
	case *unstructured.UnstructuredList:
		n = len(page.Items)
		bytes, err = all.keep(page.Items)
	}
	if n > 0 {
		all.read += n
		all.limit = int64(min(max(pageBytes*n/max(bytes, 1), 1), pageSize))
	}
	return err
}

// keep keeps the selected objects, and returns about how many bytes all of them have.
func (all *listing) keep(page []unstructured.Unstructured) (bytes int, err error) {
	for i := range page {
		bytes += weight(page[i].Object)
		o, err := newFact(&page[i])
		if err != nil {
			return 0, err
		}
		if o.selected(all.left) {
			o = o.reduced(all.part)
			all.objects = append(all.objects, o)
			all.bytes += o.value.Size()
		}
	}
	return bytes, nil
}

// weight returns about how many bytes of JSON a decoded value has.
func weight(value any) (bytes int) {
	switch v := value.(type) {
	case string:
		return len(v)
	case []any:
		for _, item := range v {
			bytes += weight(item)
		}
	case map[string]any:
		for name, member := range v {
			bytes += len(name) + weight(member)
		}
	}
	return bytes + len("[],:")
}

// tooMany returns the error for more objects than one query may read.
func tooMany(kind string, left engine.Query) error {
	by := slices.Sorted(maps.Keys(left.Fields))
	by = append(by, slices.Sorted(maps.Keys(left.Except))...)
	if len(by) == 0 {
		return fmt.Errorf("more than %d objects of kind %s match", maxObjects, kind)
	}
	return fmt.Errorf("more than %d objects of kind %s to search, because the API server cannot select by %s",
		maxObjects, kind, strings.Join(by, ", "))
}

// terms returns the field selectors of a query, one for each value.
func terms(q engine.Query) (all []fields.Selector) {
	for field, value := range q.Fields {
		all = append(all, fields.OneTermEqualSelector(field, value))
	}
	for field, values := range q.Except {
		for _, value := range values {
			all = append(all, fields.OneTermNotEqualSelector(field, value))
		}
	}
	return all
}
