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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/webhooks/engine"
)

// filtered are the fields by which the API server does not select, as far as that is known: it can select by the metadata, by a few
// fields of each of its own kinds, and by the selectableFields of custom resources, and lists them nowhere. What it refuses is asked
// again after a while, because a definition may gain a selectable field.
type filtered struct{ refused *utilcache.LRUExpireCache }

// fieldOf is a field of a kind.
type fieldOf struct {
	schema.GroupVersionKind
	path string
}

const (
	// mostFiltered is how many fields are known to be refused. Policies may name the fields of exceptions as a request says.
	mostFiltered = 1000
	// filteredFor is for how long what the API server refuses is not asked again.
	filteredFor = time.Minute
)

func newFiltered() filtered { return filtered{utilcache.NewLRUExpireCache(mostFiltered)} }

// has tells whether the API server is not to be asked to select by a field.
func (f filtered) has(gvk schema.GroupVersionKind, path string) bool {
	_, refused := f.refused.Get(fieldOf{gvk, path})
	return refused || strings.Contains(path, "[]")
}

// split takes a query apart into what the API server selects by and what is left to us.
func (f filtered) split(q engine.Query) (asked, left engine.Query) {
	gvk := schema.FromAPIVersionAndKind(q.APIVersion, q.Kind)
	asked = q
	asked.Fields, left.Fields = divided(q.Fields, func(path string) bool { return f.has(gvk, path) })
	asked.Except, left.Except = divided(q.Except, func(path string) bool { return f.has(gvk, path) })
	return asked, left
}

func divided[V any](all map[string]V, ours func(path string) bool) (asked, left map[string]V) {
	asked, left = maps.Clone(all), maps.Clone(all)
	maps.DeleteFunc(asked, func(path string, _ V) bool { return ours(path) })
	maps.DeleteFunc(left, func(path string, _ V) bool { return !ours(path) })
	return asked, left
}

// list reads the objects that a query asks for. What the API server refuses to select by is filtered here.
func (l *live) list(ctx context.Context, q engine.Query) (found, error) {
	if _, err := labels.ValidatedSelectorFromSet(q.Labels); err != nil { // written out, one could select by more than one label
		return found{}, fmt.Errorf("invalid labels: %w", err)
	}
	asked, left := l.filtered.split(q)
	f, err := l.pages(ctx, asked, left)
	if !apierrors.IsBadRequest(err) {
		return f, err
	}
	if learned, failed := l.learn(ctx, asked); failed != nil || !learned {
		return found{}, errors.Join(failed, err)
	}
	asked, left = l.filtered.split(q)
	return l.pages(ctx, asked, left)
}

// learn asks for each field by itself whether the API server selects by it, and tells whether it does not select by all.
func (l *live) learn(ctx context.Context, q engine.Query) (learned bool, err error) {
	gvk := schema.FromAPIVersionAndKind(q.APIVersion, q.Kind)
	for _, one := range terms(q) {
		err := l.client.List(ctx, listOf(gvk), client.InNamespace(q.Namespace), client.Limit(1), client.MatchingFieldsSelector{Selector: one})
		switch {
		case apierrors.IsBadRequest(err):
			l.filtered.refused.Add(fieldOf{gvk, one.Requirements()[0].Field}, nil, filteredFor)
			learned = true
		case err != nil:
			return false, err
		}
	}
	return learned, nil
}

// listing is the objects that were read for a question, from one place or several.
type listing struct {
	found
	asked, left engine.Query
	read, bytes int
	limit       int64 // of the next page
}

// pages reads what the API server is asked for, and keeps of it what is selected by what is left. An answer that would be cut short is
// an error.
func (l *live) pages(ctx context.Context, asked, left engine.Query) (found, error) {
	places := asked.Places()
	switch {
	case places == nil:
		places = []string{metav1.NamespaceAll}
	case len(places) > mostPlaces:
		left.Namespaces, places = places, []string{metav1.NamespaceAll}
	}
	all := listing{asked: asked, left: left, limit: firstPage}
	all.part = asked.Part
	for _, namespace := range places {
		if err := l.pagesOf(ctx, namespace, &all); err != nil {
			return found{}, err
		}
	}
	return all.found, nil
}

// pagesOf adds the objects of a namespace to a listing.
func (l *live) pagesOf(ctx context.Context, namespace string, all *listing) error {
	options := []client.ListOption{
		client.InNamespace(namespace), client.MatchingLabels(all.asked.Labels),
		client.MatchingFieldsSelector{Selector: fields.AndSelectors(terms(all.asked)...)},
	}
	for token := ""; ; {
		page := listOf(schema.FromAPIVersionAndKind(all.asked.APIVersion, all.asked.Kind))
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
		case all.read >= maxObjects:
			return tooMany(all.asked.Kind, all.left)
		}
	}
}

// add keeps what is read of the objects of a page. The next page is as large as objects of this size allow.
func (all *listing) add(page *unstructured.UnstructuredList) error {
	all.resourceVersion = cmp.Or(all.resourceVersion, page.GetResourceVersion())
	bytes := 0
	for i := range page.Items {
		o, err := newObject(&page.Items[i])
		if err != nil {
			return err
		}
		bytes += o.value.Size()
		if o.selected(all.left) {
			o.value = all.part.Of(o.value)
			all.objects = append(all.objects, o)
			all.bytes += o.value.Size()
		}
	}
	if n := len(page.Items); n > 0 {
		all.read += n
		all.limit = int64(min(max(pageBytes*n/max(bytes, 1), 1), pageSize))
	}
	return nil
}

// tooMany is the error for more objects than are read for one question.
func tooMany(kind string, left engine.Query) error {
	by := slices.Sorted(maps.Keys(left.Fields))
	by = append(by, slices.Sorted(maps.Keys(left.Except))...)
	if len(by) == 0 {
		return fmt.Errorf("more than %d objects of kind %s match", maxObjects, kind)
	}
	return fmt.Errorf("more than %d objects of kind %s to search, because the API server cannot select by %s",
		maxObjects, kind, strings.Join(by, ", "))
}

// terms are the field selectors of a query, one for each value.
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
